"""How much does HOME's lead over its rivals depend on the link, on what is stored, and on what each of them may do?

Reproduces: nothing; HOME (IEEE TC 2023) shows one setting. Around that of `experiments.home_figure6`, at two of its
            batches a model, one factor at a time takes other values.
Claim:      at every value HOME is not behind the vDNN that fits the paper's figure, and at most 1.5 % behind Capuchin
            with its best slack. What moves each ratio most, an earlier prototype told: the link that over vDNN, memory
            in flight that over Capuchin, cancellation that over SuperNeurons.
Needs:      nothing; about four minutes on two cores, no GPU.
Writes:     home_sensitivity.csv and home_sensitivity.png in the output folder.

The factors; all values were fixed before any result:

- The link. 12 GB/s is nominal for PCIe 3.0 x16; 6 and 24 are half and twice as much, 8 is what the prototype tried.
- Duplex: both directions share the rate of one. HOME plans for two queues of copies, or knows of only one.
- Storage: what autograd saves. The limit is then the same share of what keeping everything takes.
- Memory in flight: what goes out takes no room from when it was read last. No plan can do so; the steps are simulated
  without the waits for it. Or only HOME believes so, and its plan waits. What comes back has its room from when it is
  asked for in any case: plans allocate there.
- Cancellation: SuperNeurons, instead of what a cache evicts, offloads what all convolutions make, or leaves out what is
  predicted to be out after its next use. A plan cannot give up a copy that has begun, and the searches of the others
  leave such swaps out by themselves.
- Slack of the Capuchin that has none in figure 6.
- Prefetch window of HOME, in ops, eight in figure 6; and the paper's own search, with one.

What does not hold. With a window of few ops HOME waits for what comes back, and is some per cent behind the best
Capuchin, which has no window. So is a HOME that thinks room in flight free: its plan waits for the room. Its lead over
Capuchin without slack is that it sees this. The paper's leads over Capuchin (but for ResNet and Inception v3) and over
SuperNeurons (MobileNet and Plain20) are beyond what any value here gives. Duplex hardly matters: little leaves while
anything comes back.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from experiments.experiment import Claim
from experiments.home_constants import FITTED
from experiments.home_figure6 import VDNN_THAT_FITS
from experiments.home_paper import FIGURE_6, FIGURE_6_BATCHES, MODELS, mean_ratio
from experiments.home_worlds import World, samples_per_s
from stepsim.strategies import STRATEGIES, HomeExtended, Strategy
from stepsim.strategies.memory.capuchin import Capuchin

RIVALS = ("vdnn", "capuchin", "capuchin-best", "superneurons")

NOT_BEHIND = {
    "vdnn": ("behind the vDNN that fits the figure", 1.0),
    "capuchin-best": ("more than 1.5 % behind Capuchin with its best slack", 0.985),
}

MOST_MOVED_BY = {"vdnn": "link", "capuchin": "memory in flight", "superneurons": "cancellation"}

FREE = "free"

QUICK_RIVALS = ("vdnn", "capuchin", "superneurons")


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One value of one factor. ``systems`` are those that it changes, the others are as in figure 6."""

    factor: str
    value: str
    world: World = field(default_factory=World)
    systems: Mapping[str, Strategy] = field(default_factory=dict)


def _home(**rules: Any) -> dict[str, Strategy]:
    return {"home": replace(HomeExtended(), rules=replace(HomeExtended().rules, **rules))}


def _link(gb_per_s: int) -> Case:
    world = World(constants=replace(FITTED, link_bytes_per_s=gb_per_s * 1e9))
    return Case(factor="link", value=f"{gb_per_s} GB/s", world=world)


FIGURE_6_CASE = Case(factor="none", value="as in figure 6")

CASES = (
    FIGURE_6_CASE,
    *map(_link, (6, 8, 12, 24)),
    Case(factor="duplex", value="shared", world=World(duplex=False)),
    Case(factor="duplex", value="shared, HOME knows", world=World(duplex=False), systems=_home(queues="one")),
    Case(factor="storage", value="what autograd saves", world=World(all_outputs=False)),
    Case(factor="memory in flight", value=FREE, world=World(in_flight=False), systems=_home(held=False)),
    Case(factor="memory in flight", value="HOME thinks it free", systems=_home(held=False)),
    Case(factor="cancellation", value="all go out", systems={"superneurons": STRATEGIES["superneurons-no-cache"]}),
    Case(factor="cancellation", value="late left out", systems={"superneurons": STRATEGIES["superneurons-in-time"]}),
    *(
        Case(factor="slack", value=f"{slack:.0%}", systems={"capuchin": Capuchin(slack=slack)})
        for slack in (0.02, 0.05, 0.1, 0.3)
    ),
    *(
        Case(factor="prefetch", value=f"{window} ops", systems=_home(prefetch_stages=window))
        for window in (1, 2, 4, 16)
    ),
    Case(factor="prefetch", value="1 op, the paper's search", systems={"home": STRATEGIES["home"]}),
)

QUICK_CASES = (FIGURE_6_CASE, *(case for case in CASES if case.value in ("12 GB/s", "late left out", "5%", "1 ops")))


def run(folder: Path, *, quick: bool) -> list[Claim]:
    models, cases, rivals = (("vgg16",), QUICK_CASES, QUICK_RIVALS) if quick else (MODELS, CASES, RIVALS)
    table = ratios(models, cases, rivals, quick)
    table.to_csv(folder / "home_sensitivity.csv", index=False)
    plot(table, rivals).savefig(folder / "home_sensitivity.png", dpi=150)
    return list(claims(table)) + ([] if quick else list(_of_all_models(table)))


Run = tuple[World, str, int, Strategy]


def ratios(models: Iterable[str], cases: Iterable[Case], rivals: Sequence[str], quick: bool) -> pd.DataFrame:
    """One row for each value and model: HOME's throughput over each rival's, mean over the batches at which that fits.

    0 at a batch at which HOME does not.
    """
    rows = [(case, model) for case in cases for model in models]
    runs = [_runs(case, model, ("home", *rivals), quick) for case, model in rows]
    distinct = list(dict.fromkeys(run for row in runs for batch in row for run in batch))
    if quick:
        rates = dict(zip(distinct, map(_rate, distinct), strict=True))
    else:
        with ProcessPoolExecutor() as processes:
            rates = dict(zip(distinct, processes.map(_rate, distinct), strict=True))
    return pd.DataFrame(
        {"factor": case.factor, "value": case.value, "model": model}
        | dict(zip(rivals, over_rivals([[rates[run] for run in batch] for batch in row]), strict=True))
        for (case, model), row in zip(rows, runs, strict=True)
    )


def _runs(case: Case, model: str, systems: Sequence[str], quick: bool) -> list[list[Run]]:
    """By batch and system."""
    strategies = {
        "home": STRATEGIES["home-extended"],
        "vdnn": STRATEGIES[VDNN_THAT_FITS[model]],
        **{name: STRATEGIES[name] for name in ("capuchin", "capuchin-best", "superneurons")},
        **case.systems,
    }
    return [
        [(case.world, model, batch, strategies[system]) for system in systems]
        for batch in batches(model)[-1 if quick else 0 :]
    ]


def batches(model: str) -> list[int]:
    """The middle one and the largest of those at which figure 6 of the paper has all systems."""
    columns = zip(FIGURE_6_BATCHES[model], *FIGURE_6[model].values(), strict=True)
    plotted = [batch for batch, *rates in columns if None not in rates]
    return [plotted[len(plotted) // 2], plotted[-1]]


def _rate(run: Run) -> float:
    return samples_per_s(*run)


def over_rivals(rates: Sequence[Sequence[float]]) -> list[float]:
    """From rates by batch, the first of them HOME's, its mean ratio to each of the others; NaN where that never fits.

    >>> over_rivals([[6.0, 2.0, 0.0], [4.0, 4.0, 0.0]])
    [2.0, nan]
    """
    return [
        float(np.mean(fits)) if (fits := [home / rival for home, rival in pairs if rival]) else np.nan
        for pairs in ([(row[0], row[number]) for row in rates] for number in range(1, len(rates[0])))
    ]


def claims(table: pd.DataFrame) -> Iterator[Claim]:
    """For each factor the least ratio of all values and models."""
    for factor, rows in table.groupby("factor", sort=False):
        changed = "as in figure 6" if factor == FIGURE_6_CASE.factor else f"whatever the {factor}"
        for rival, (told, least) in NOT_BEHIND.items():
            if rival in rows:
                ours = float(rows[rival].min())
                yield Claim(claim=f"{changed}: HOME is on no model {told}", ours=ours, holds=ours >= least)


def _of_all_models(table: pd.DataFrame) -> Iterator[Claim]:
    for rival, expected in MOST_MOVED_BY.items():
        moved = moved_by(table, rival)
        times = float(moved[expected] / moved.drop(expected).max())
        text = f"{expected} moves HOME over {rival} more than any other factor, so many times as much"
        yield Claim(claim=text, ours=times, holds=times >= 1)
    free = float(table.loc[table["value"] == FREE, "capuchin"].mean())
    text = "with memory in flight free nothing is left of HOME's lead over Capuchin without slack: at most 2 %"
    yield Claim(claim=text, ours=free, holds=free <= 1.02)
    for rival in MOST_MOVED_BY:
        found = sum(within(rows[rival], mean_ratio(str(model), rival)) for model, rows in table.groupby("model"))
        text = f"on each of the six models some factor's values reach the paper's HOME over {rival}"
        yield Claim(claim=text, ours=found, holds=found == len(MODELS))


def moved_by(table: pd.DataFrame, rival: str) -> pd.Series:
    """By factor how far its values and figure 6 lie apart, over the ratio there; mean over the models."""
    by_model = table.pivot_table(rival, ["factor", "value"], "model")
    there = by_model.loc[FIGURE_6_CASE.factor].iloc[0]
    moved = {
        factor: ((values.max().clip(lower=there) - values.min().clip(upper=there)) / there).mean()
        for factor, values in by_model.groupby(level="factor")
        if factor != FIGURE_6_CASE.factor
    }
    return pd.Series(moved)


def within(ratios: pd.Series, ratio: float) -> bool:
    return bool(ratios.min() <= ratio <= ratios.max())


def plot(table: pd.DataFrame, rivals: Sequence[str]) -> Figure:
    """A panel for each rival: dots are models, the line is that of equal speed, and the last row is the paper's."""
    labels = [*dict.fromkeys(table["factor"] + ": " + table["value"]), "the paper"]
    labels[0] = FIGURE_6_CASE.value
    models = list(dict.fromkeys(table["model"]))
    figure = Figure(figsize=(3 * len(rivals) + 2, 0.25 * len(labels) + 1.5), layout="constrained")
    for rival, axes in zip(rivals, figure.subplots(1, len(rivals), sharey=True), strict=True):
        for model in models:
            paper = mean_ratio(model, "capuchin" if rival == "capuchin-best" else rival)
            axes.plot([*table.loc[table["model"] == model, rival], paper], labels, "o", markersize=4, label=model)
        axes.axvline(1, color="0.6", linewidth=1)
        axes.set(title=f"HOME over {rival}", xscale="log" if rival == "vdnn" else "linear")
        axes.grid(axis="y", color="0.9")
    axes.invert_yaxis()
    figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=len(models), fontsize=8)
    return figure
