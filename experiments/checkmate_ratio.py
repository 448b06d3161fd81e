"""How much more work than the optimum do Checkmate's rounding and Chen's checkpoints take?

Reproduces: Checkmate (MLSys 2020), table 2: cost of heuristics over the optimum, geometric mean over budgets.
Claim:      of the paper: rounding 1.00-1.06; the square-root rule 1.28 (VGG16), 1.54 (VGG19), 1.14 (MobileNet).
            `experiments.control_setting` has batches and budgets.
Needs:      nothing; about seven minutes on two cores, no GPU.
Writes:     checkmate_ratio.csv and checkmate_ratio.png in the output folder.

As in the paper, nodes are layers with what hangs on them (`experiments.control_layers`), Chen's checkpoints are given
to the problem of least work, and a mean is over the budgets at which a rule fits. Costs are FLOP: the paper has these
and measured ones, and does not say which its table takes; the released code that makes the table reads both.

``rounded once`` is the rule of the paper's text: one relaxation, for nine tenths of the budget, rounded at 0.5.
``rounded`` takes the cheapest that fits of several relaxations and thresholds. So does the released code where it
compares, but its relaxations are those of all its budgets, ours cuts of one (`stepsim.strategies.memory.remat`).
It fits at more of the small budgets, which are the harder ones.

The bound that the solver proves stands for the optimum, so that a ratio is at most what is printed; where it ended by
itself (``complete``) the two are within its gap of 1e-4. An optimum over the budget by its tolerance is left out.
"""

from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from math import isqrt, sqrt
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from experiments.control_layers import cut_nodes, forward_nodes, kept_of, layer_problem
from experiments.control_setting import CHECKMATE_BATCHES, CHECKMATE_SHARES, CHECKMATE_TIME_LIMIT_S
from experiments.experiment import Claim
from stepsim.strategies.memory.remat.checkmate import solve, solve_rounded
from stepsim.strategies.memory.remat.problem import Recomputation, Schedule, peak_bytes, with_least_work
from stepsim.workloads.shipped import load_workload

MODELS = ("vgg16", "vgg19", "mobilenet")
"""ResNet-50 is left out: of its 146 nodes one relaxation alone takes half a minute."""

SQUARE_ROOT: Mapping[str, float] = {"vgg16": 1.28, "vgg19": 1.54, "mobilenet": 1.14}
GREEDY: Mapping[str, float] = {"vgg16": 1.06, "vgg19": 1.39, "mobilenet": 1.07}
ROUNDED: Mapping[str, float] = {"vgg16": 1.01, "vgg19": 1.00, "mobilenet": 1.06}
"""Table 2 of the paper."""

RULES = ("bound", "optimum", "rounded", "rounded once", "square root", "greedy")

MOST_OF_ROUNDING = 1.06
SQUARE_ROOT_BAND = (1.14, 1.54)

GRID = 6
"""Bounds that are tried around the first guess (Chen et al., appendix B)."""

QUICK_MODELS, QUICK_SHARES, QUICK_TIME_LIMIT_S = ("vgg16",), (0.9,), 5.0


def run(folder: Path, *, quick: bool) -> list[Claim]:
    models, shares, limit_s = (
        (QUICK_MODELS, QUICK_SHARES, QUICK_TIME_LIMIT_S)
        if quick
        else (MODELS, CHECKMATE_SHARES, CHECKMATE_TIME_LIMIT_S)
    )
    table = costs([(model, share, limit_s) for model in models for share in shares])
    table.to_csv(folder / "checkmate_ratio.csv", index=False)
    plot(table).savefig(folder / "checkmate_ratio.png", dpi=150)
    return list(claims(table, models))


def costs(points: list[tuple[str, float, float]]) -> pd.DataFrame:
    """One row for each model and budget, given with the seconds for one solve."""
    if len(points) == 1:
        return pd.DataFrame([_row(points[0])])
    with ProcessPoolExecutor() as processes:
        return pd.DataFrame(processes.map(_row, points))


def _row(point: tuple[str, float, float]) -> dict[str, Any]:
    """Costs in runs of everything, NaN where nothing fits; ``bound`` is proven."""
    model, share, time_limit_s = point
    workload = load_workload(model).at_batch(CHECKMATE_BATCHES[model])
    problem, num_forward = layer_problem(workload), forward_nodes(workload)
    budget_bytes = budget(problem, num_forward, share)
    exact = solve(problem, budget_bytes, time_limit_s=time_limit_s)
    rounded = solve_rounded(problem, budget_bytes, time_limit_s=time_limit_s)
    as_told = solve_rounded(problem, budget_bytes, time_limit_s=time_limit_s, cuts=(0.1,), thresholds=(0.5,))
    total_s, nothing_fits = float(problem.seconds.sum()), exact.complete and exact.schedule is None
    return {
        "model": model,
        "share": share,
        "budget_bytes": budget_bytes,
        "complete": exact.complete,
        "bound": np.nan if nothing_fits else max(exact.bound_s, rounded.bound_s, total_s) / total_s,
        "optimum": _cost(problem, [exact.schedule], budget_bytes),
        "rounded": _cost(problem, [rounded.schedule], budget_bytes),
        "rounded once": _cost(problem, [as_told.schedule], budget_bytes),
        "square root": _cost(problem, [square_root(problem, num_forward)], budget_bytes),
        "greedy": _cost(problem, greedy(problem, num_forward), budget_bytes),
    }


def budget(problem: Recomputation, num_forward: int, share: float) -> int:
    """Bytes ``share`` of the way from what any schedule needs to the peak of the one that keeps everything."""
    needs = (int(problem.size_bytes[[node, *parents]].sum()) for node, parents in enumerate(problem.parents))
    least_bytes = problem.fixed_bytes + max(needs)
    keep_all_bytes = peak_bytes(problem, _chen(problem, num_forward, range(num_forward)))
    return least_bytes + round(share * (keep_all_bytes - least_bytes))


def _cost(problem: Recomputation, schedules: Iterable[Schedule | None], budget_bytes: int) -> float:
    """Of the cheapest that fits."""
    found = [s.seconds(problem) for s in schedules if s is not None and peak_bytes(problem, s) <= budget_bytes]
    return min(found, default=np.nan) / float(problem.seconds.sum())


def square_root(problem: Recomputation, num_forward: int) -> Schedule:
    """One cut node in the root of their number is a checkpoint."""
    cuts = cut_nodes(problem, num_forward)
    every = max(1, isqrt(len(cuts)))
    return _chen(problem, num_forward, cuts[every - 1 :: every])


def greedy(problem: Recomputation, num_forward: int) -> list[Schedule]:
    """Algorithm 3 of Chen et al. at each bound: a checkpoint at a cut once the bytes since the last exceed it."""
    first = _walk(problem, num_forward, 0)
    kept = int(problem.size_bytes[first].sum())
    begins = [0, *(node + 1 for node in first)]
    largest = max(int(problem.size_bytes[b:e].sum()) for b, e in zip(begins, [*begins[1:], num_forward], strict=True))
    guess = sqrt(kept * largest)
    bounds = [guess * 2 ** (step / (GRID - 1) - 0.5) for step in range(GRID)]
    return [_chen(problem, num_forward, _walk(problem, num_forward, bound)) for bound in (0, guess, *bounds)]


def _walk(problem: Recomputation, num_forward: int, bound_bytes: float) -> list[int]:
    cuts, found, since_bytes = {*cut_nodes(problem, num_forward)}, list[int](), 0
    for node in range(num_forward):
        since_bytes += int(problem.size_bytes[node])
        if node in cuts and since_bytes > bound_bytes:
            found.append(node)
            since_bytes = 0
    return found


def _chen(problem: Recomputation, num_forward: int, checkpoints: Iterable[int]) -> Schedule:
    return with_least_work(problem, kept_of(problem, num_forward, frozenset(checkpoints)))


def mean_ratio(table: pd.DataFrame, model: str, rule: str) -> float:
    """Geometric mean over the budgets at which the rule fits; NaN without any."""
    found = table[table["model"] == model]
    return float(np.exp(np.log(found[rule] / found["bound"]).mean()))


def claims(table: pd.DataFrame, models: Iterable[str]) -> Iterator[Claim]:
    low, high = SQUARE_ROOT_BAND
    for model in models:
        proven = "" if table[table["model"] == model]["complete"].all() else " (over a proven bound)"
        for rule, paper, least, most in (
            ("rounded", ROUNDED, 1.0, MOST_OF_ROUNDING),
            ("rounded once", ROUNDED, 1.0, MOST_OF_ROUNDING),
            ("square root", SQUARE_ROOT, low, high),
        ):
            ours = mean_ratio(table, model, rule)
            text = f"{model}: {rule} over the optimum{proven} is from {least} to {most}"
            fits = bool(np.isfinite(ours))
            holds = fits and least - 1e-9 <= ours <= most
            yield Claim(claim=text, paper=paper[model], ours=ours if fits else None, holds=holds)
        ours = mean_ratio(table, model, "greedy")
        if np.isfinite(ours):
            text = f"{model}: Chen's greedy walk over the optimum{proven} is at most the paper's and 0.1"
            yield Claim(claim=text, paper=GREEDY[model], ours=ours, holds=ours <= GREEDY[model] + 0.1)


def plot(table: pd.DataFrame) -> Figure:
    """A panel for each model: cost over one run of everything, against the budget."""
    models = list(dict.fromkeys(table["model"]))
    figure = Figure(figsize=(4 * len(models), 3), layout="constrained")
    for number, model in enumerate(models):
        axes, found = figure.add_subplot(1, len(models), number + 1), table[table["model"] == model]
        for rule in RULES:
            axes.plot(found["budget_bytes"] / 1e9, found[rule], marker="o", markersize=3, label=rule)
        axes.set(title=model, xlabel="budget, GB", ylabel="work / one run of everything")
    axes.legend(fontsize=7)
    return figure
