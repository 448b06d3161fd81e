"""How well are steps with swaps and recomputation predicted: by HOME's evaluator, and by the simulator, on a CPU?

Reproduces: HOME (IEEE TC 2023), figure 9: the evaluator's error, below 1 % on its GPU.
Claim:      (a) HOME's evaluator (Algorithm 2) beside the full simulator, on random policies that fit: the mean
            difference is at most 8 % on each of the six models, and at most 2 % for the best policy. (b) The simulator
            beside this machine: a small VGG16 runs on the CPU, its swaps beside it on an emulated link, under 20 random
            policies and the plan of each strategy, within a limit that keep-all exceeds. Median error at most 10 %, and
            the ranks of steps that differ by more than the noise correlate by at least 0.9.
Needs:      torch; about six minutes on two cores, no GPU. The CPU should have nothing else to do.
Writes:     home_figure9_evaluator.csv, home_figure9_cpu.csv and home_figure9.png in the output folder.

What a difference comes from: with queues of copies each way, as in a plan, there is none. Read without queues (the
paper does not say) the evaluator is 15 to 32 % too short, most on SqueezeNet. The table has a column for each reading.

The link is emulated: a thread copies, and then sleeps until a link of that rate would be done.
"""

from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from numpy.typing import NDArray

from experiments.experiment import Claim
from experiments.home_constants import FITTED
from experiments.home_costs import PaperCosts, limit_bytes, machine_with
from experiments.home_paper import FIGURE_6_BATCHES, FIGURE_9, MODELS
from experiments.home_setting import step
from experiments.places import InLine
from stepsim.costmodels import Calibration
from stepsim.machines import Machine, this_cpu, with_emulated_link
from stepsim.plan import Costs, Plan
from stepsim.report import Report, report
from stepsim.simulator import simulate
from stepsim.strategies import STRATEGIES
from stepsim.strategies.memory.home.building import home_problem
from stepsim.strategies.memory.home.options import Rules, Swarm
from stepsim.strategies.memory.lowering import plan_for_policy
from stepsim.strategies.memory.prices import prices_of
from stepsim.strategies.memory.schedule import Action, can_recompute, candidates
from stepsim.workloads import Workload

NUM_POLICIES = 1000
RANDOM_PLANS = 20
LIMIT_SHARE = 0.7
"""Of keep-all's peak."""

UNDER_THE_LIMIT = ("greedy", "home", "home-extended", "refined", "capuchin-best", "superneurons", "chen-greedy")
WITHOUT_A_LIMIT = ("keep-all", "vdnn-all", "vdnn-conv")

READINGS = {
    "no_queues_s": Rules(queues="none"),
    "one_queue_s": Rules(queues="one"),
    "out_after_read_s": Rules(out_after="read"),
    "free_in_flight_s": Rules(held=False),
}
"""Other readings of Algorithm 2, where the paper is silent, with a column each in the table."""

BATCH, SHRINK, RUNS = 32, 2, 9
LINK_SHARE = 1.0
"""The link is so fast that all that autograd saves leaves and comes back in this share of the step."""

SEED = 0


def run(folder: Path, *, quick: bool) -> list[Claim]:
    models = ("vgg16",) if quick else MODELS
    with_evaluator = evaluator_errors(models, 10 if quick else NUM_POLICIES)
    with_evaluator.to_csv(folder / "home_figure9_evaluator.csv", index=False)
    on_cpu = cpu_steps(quick)
    on_cpu.to_csv(folder / "home_figure9_cpu.csv", index=False)
    plot(with_evaluator, on_cpu).savefig(folder / "home_figure9.png", dpi=150)
    return [*_evaluator_claims(with_evaluator), *_cpu_claims(on_cpu, quick)]


def evaluator_errors(models: Sequence[str], num_policies: int) -> pd.DataFrame:
    """One row for each model and policy: seconds of the evaluator and of the simulator."""
    if len(models) == 1:
        return pd.DataFrame(_evaluated(models[0], num_policies))
    with ProcessPoolExecutor() as processes:
        parts = processes.map(_evaluated, models, [num_policies] * len(models))
        return pd.DataFrame([row for part in parts for row in part])


def _evaluated(model: str, num_policies: int) -> list[dict[str, Any]]:
    """Random policies that fit at the largest batch of figure 6, and the best that a small swarm finds."""
    from stepsim.strategies.memory.home.evaluator import Evaluator
    from stepsim.strategies.memory.home.swarm import search

    workload, machine, costs = step(model, FIGURE_6_BATCHES[model][-1]), machine_with(FITTED), PaperCosts(FITTED)
    problem = home_problem(workload, prices_of(workload, machine, costs))
    evaluator, rng = Evaluator(problem, limit_bytes(FITTED)), np.random.default_rng(SEED)
    others = {column: Evaluator(problem, limit_bytes(FITTED), rules) for column, rules in READINGS.items()}

    def row(kind: str, actions: NDArray[np.int8]) -> dict[str, Any]:
        plan = plan_for_policy(workload, machine, problem.policy(actions), limit_bytes(FITTED))
        seconds = simulate(plan, machine, costs).makespan_s
        told = {column: other.evaluate(actions).seconds for column, other in others.items()}
        ours_s = evaluator.evaluate(actions).seconds
        return {"model": model, "policy": kind, "evaluator_s": ours_s, "simulator_s": seconds} | told

    found = search(evaluator, Swarm(num_particles=50, num_iterations=30), rng)
    rows = [] if found.actions is None else [row("best", found.actions)]
    while len(rows) <= num_policies:
        actions = rng.integers(0, problem.num_actions, dtype=np.int8)
        if evaluator.evaluate(actions).seconds is not None:
            rows.append(row("random", actions))
    return rows


def cpu_steps(quick: bool) -> pd.DataFrame:
    """One row for each plan: what was predicted, and the median of what was measured."""
    from stepsim.executor import BoundProgram, Recorder, use_threads
    from stepsim.executor.measure import measure
    from stepsim.executor.paced_lanes import PacedLanes
    from stepsim.workloads.families.vgg import vgg16_cifar

    use_threads(1)
    batch, shrink = (4, 16) if quick else (BATCH, SHRINK)
    bound = BoundProgram.of(lambda size: vgg16_cifar(size, shrink=shrink), batch, "vgg16_cifar")
    recorder = Recorder([bound])
    for _ in range(3):
        recorder.run_pass()
    first = InLine(Calibration.fit([recorder.trace()]))
    link_bytes_per_s = _link_rate(bound.workload, first)
    machine = with_emulated_link(this_cpu(), link_bytes_per_s)
    plans = dict(_plans(bound.workload, machine, first, quick))
    measured = measure(
        bound,
        list(plans.values()),
        runs=3 if quick else RUNS,
        lanes=PacedLanes(link_bytes_per_s),
        after_run=recorder.run_pass,
    )
    costs = InLine(Calibration.fit([recorder.trace()]))
    return pd.DataFrame(
        {
            "plan": name,
            "predicted_s": simulate(plan, machine, costs).makespan_s,
            "measured_s": median(run.makespan_s for run in found.runs),
            "spread_s": float(np.std([run.makespan_s for run in found.runs])),
            "gradient_difference": found.max_abs_difference,
            "predicted_peak_bytes": report(simulate(plan, machine, costs), plan).peak_bytes["cpu0"],
            "measured_peak_bytes": found.memory.peak_bytes("cpu0"),
        }
        for (name, plan), found in zip(plans.items(), measured, strict=True)
    )


def _link_rate(workload: Workload, costs: Costs) -> float:
    machine = this_cpu()
    plan = plan_for_policy(workload, machine, {}, 10**15)
    saved_bytes = sum(workload.tensors[tensor].size_bytes for tensor in candidates(workload))
    return saved_bytes / (LINK_SHARE * simulate(plan, machine, costs).makespan_s)


def _plans(workload: Workload, machine: Machine, costs: Costs, quick: bool) -> Iterator[tuple[str, Plan]]:
    """By name: of each strategy, and random ones."""
    kept = plan_for_policy(workload, machine, {}, 10**15)
    peak_bytes = report(simulate(kept, machine, costs), kept).peak_bytes["cpu0"]

    def evaluate(plan: Plan) -> Report:
        return report(simulate(plan, machine, costs), plan)

    limits = dict.fromkeys(WITHOUT_A_LIMIT, 10**15) | dict.fromkeys(UNDER_THE_LIMIT, int(LIMIT_SHARE * peak_bytes))
    for name in ("keep-all", "home-extended", "vdnn-all") if quick else limits:
        proposal = STRATEGIES[name].plan(
            workload, machine, costs, memory_bytes=limits[name], evaluate=evaluate, time_limit_s=60
        )
        yield name, proposal.plan
    rng = np.random.default_rng(SEED)
    for number in range(2 if quick else RANDOM_PLANS):
        yield (
            f"random {number}",
            plan_for_policy(workload, machine, _drawn(workload, rng), int(LIMIT_SHARE * peak_bytes)),
        )


def _drawn(workload: Workload, rng: np.random.Generator) -> dict[int, Action]:
    """A share of tensors, itself drawn, is not kept."""
    kept_share = rng.random()
    policy = {}
    for tensor in candidates(workload):
        if rng.random() > kept_share:
            again = can_recompute(workload, tensor) and rng.random() < 0.5
            policy[tensor] = Action.RECOMPUTE if again else Action.SWAP
    return policy


def _evaluator_claims(table: pd.DataFrame) -> Iterator[Claim]:
    off = (table["evaluator_s"] / table["simulator_s"] - 1).abs()
    for model, rows in table.groupby("model", sort=False):
        errors = off[rows.index]
        mean, best = errors[rows["policy"] == "random"].mean(), errors[rows["policy"] == "best"].max()
        text = f"{model}: HOME's evaluator differs from the simulator by at most 8 % in the mean over random policies"
        yield Claim(claim=text, paper=FIGURE_9[str(model)], ours=float(mean), holds=bool(mean <= 0.08))
        text = f"{model}: and by at most 2 % for the best policy found"
        yield Claim(claim=text, ours=float(best), holds=bool(best <= 0.02))
        random = rows[rows["policy"] == "random"]
        unqueued = float((random["no_queues_s"] / random["simulator_s"] - 1).abs().mean())
        text = f"{model}: one whose copies wait for no other differs by more than 8 %"
        yield Claim(claim=text, ours=unqueued, holds=unqueued > 0.08)


def _cpu_claims(table: pd.DataFrame, quick: bool) -> Iterator[Claim]:
    error = float((table["predicted_s"] / table["measured_s"] - 1).abs().median())
    most = 1.0 if quick else 0.1
    text = f"CPU with an emulated link: the median error of a step is at most {most:.0%}"
    yield Claim(claim=text, ours=error, holds=error <= most)
    if not quick:
        correlation = _rank_correlation(table)
        yield Claim(claim="and ranks correlate by at least 0.9", ours=correlation, holds=correlation >= 0.9)
    largest = float(table["gradient_difference"].max())
    yield Claim(claim="gradients are those of plain PyTorch, bit for bit", ours=largest, holds=largest == 0)
    over = int((table["measured_peak_bytes"] - table["predicted_peak_bytes"]).max())
    yield Claim(claim="no plan held more bytes than predicted", ours=over, holds=over <= 0)


def _rank_correlation(table: pd.DataFrame) -> float:
    """Of pairs of plans whose measured steps differ by more than twice the noise of both: how many are in order.

    As Kendall's tau: the share in order less the share that is not.
    """
    measured, predicted, noise = (table[name].to_numpy() for name in ("measured_s", "predicted_s", "spread_s"))
    first, second = np.triu_indices(len(table), 1)
    differ = np.abs(measured[first] - measured[second]) > 2 * np.hypot(noise[first], noise[second])
    agree = np.sign(measured[first] - measured[second]) == np.sign(predicted[first] - predicted[second])
    return float(2 * agree[differ].mean() - 1) if differ.any() else 0.0


def plot(with_evaluator: pd.DataFrame, on_cpu: pd.DataFrame) -> Figure:
    """The evaluator over the simulator, by model and reading; predicted against measured on the CPU."""
    figure = Figure(figsize=(9, 4), layout="constrained")
    left, right = figure.subplots(1, 2)
    groups = with_evaluator.groupby("model", sort=False).groups
    for column, color, label in (("evaluator_s", "C0", "copies queue"), ("no_queues_s", "C1", "no queues")):
        ratio = with_evaluator[column] / with_evaluator["simulator_s"]
        boxes = left.boxplot([ratio[rows] for rows in groups.values()], tick_labels=list(groups), whis=(0, 100))
        for part in (*boxes["boxes"], *boxes["medians"], *boxes["whiskers"], *boxes["caps"]):
            part.set_color(color)
        boxes["boxes"][0].set_label(label)
    left.set(ylabel="evaluator / simulator", title="random policies", ylim=(0, 1.1))
    left.tick_params(axis="x", rotation=30)
    left.legend(fontsize=8)
    right.errorbar(on_cpu["predicted_s"] * 1e3, on_cpu["measured_s"] * 1e3, on_cpu["spread_s"] * 1e3, fmt=".")
    ends = [on_cpu["measured_s"].min() * 1e3, on_cpu["measured_s"].max() * 1e3]
    right.plot(ends, ends, color="0.6", linewidth=1)
    right.set(xlabel="predicted, ms", ylabel="measured, ms", title="small VGG16 on this CPU, emulated link")
    return figure
