"""Where does the time of a step go under HOME and its rivals: computing, waiting for copies, or computing again?

Reproduces: HOME (IEEE TC 2023), figure 7: the parts of one step of VGG16 at batch 3950 and of Inception v3 at 170.
Claim:      copies that nothing hides are 75 % of vDNN's step on VGG16 (within 5 points), and at most 2 % of HOME's.
Needs:      nothing; about fifteen seconds on two cores, no GPU.
Writes:     home_figure7.csv and home_figure7.png in the output folder.

Rivals stand there in all their readings, as in `experiments.home_figure6`. For those the paper's numbers are shown and
not claimed: they depend on the reading. A reading whose plan does not fit is in the table, and not in the picture. So
is the vDNN that offloads only what one convolution alone takes: it fits at neither point, and figure 6 of the paper
plots no vDNN for Inception v3 at 170 either.

The share of vDNN on VGG16 is no test on new data: the link's rate was fitted on HOME over vDNN, on VGG16 too.
"""

from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from experiments.experiment import Claim
from experiments.home_constants import FITTED
from experiments.home_paper import FIGURE_7, Breakdown
from experiments.home_runs import outcome
from stepsim.strategies import STRATEGIES

SYSTEMS = (
    "home",
    "home-extended",
    "capuchin",
    "capuchin-5",
    "capuchin-best",
    "superneurons",
    "superneurons-in-time",
    "superneurons-no-cache",
    "vdnn-every",
    "vdnn-single-conv",
)

QUICK_SYSTEMS = ("home-extended", "vdnn-every")

PARTS = {"alone_s": "tab:blue", "overlap_s": "tab:cyan", "exposed_s": "tab:red"}
"""What a step divides into, and its colour. Recomputing is a part of the first two."""


def run(folder: Path, *, quick: bool) -> list[Claim]:
    points = [("vgg16", 3950)] if quick else list(FIGURE_7)
    table = breakdowns([(*point, system) for point in points for system in (QUICK_SYSTEMS if quick else SYSTEMS)])
    table.to_csv(folder / "home_figure7.csv", index=False)
    plot(table).savefig(folder / "home_figure7.png", dpi=150)
    return list(claims(table))


def breakdowns(points: list[tuple[str, int, str]]) -> pd.DataFrame:
    """One row for each model, batch and system, with the share of the step in which only copies run."""
    if len(points) <= len(QUICK_SYSTEMS):
        rows = [_row(point) for point in points]
    else:
        with ProcessPoolExecutor() as processes:
            rows = list(processes.map(_row, points))
    table = pd.DataFrame(rows)
    return table.assign(exposed_share=table["exposed_s"] / table["step_s"])


def _row(point: tuple[str, int, str]) -> dict[str, Any]:
    model, batch, system = point
    return outcome(model, batch, system, STRATEGIES[system], FITTED).as_row()


def claims(table: pd.DataFrame) -> Iterator[Claim]:
    """Bands are those of the project's plan."""
    for row in table.itertuples():
        told = f"{row.model} at {row.batch}"
        if row.system in ("home", "home-extended"):
            paper = exposed_share(FIGURE_7[row.model, row.batch]["home"])
            text = f"{told}: copies that nothing hides are at most 2 % of the step of {row.system}"
            share = float(row.exposed_share)
            yield Claim(claim=text, paper=paper, ours=share, holds=bool(row.feasible) and share <= 0.02)
        if (row.model, row.system) == ("vgg16", "vdnn-every"):
            paper = exposed_share(FIGURE_7[row.model, row.batch]["vdnn"])
            text = f"{told}: copies that nothing hides are 75 % of the step of {row.system}, within 5 points"
            share = float(row.exposed_share)
            yield Claim(claim=text, paper=paper, ours=share, holds=bool(row.feasible) and abs(share - 0.75) <= 0.05)


def exposed_share(parts: Breakdown) -> float:
    """Of the whole step. Recomputing stands beside the computing of the figure, and is a part of the step.

    >>> round(exposed_share(FIGURE_7["vgg16", 3950]["vdnn"]), 2)
    0.75
    """
    return parts.exposed / (parts.computing + parts.overlap + parts.exposed + parts.recomputing)


def plot(table: pd.DataFrame) -> Figure:
    """A panel for each model: bars of ours, and grey ones of the paper, whose red part is exposed too."""
    groups = list(table[table["feasible"]].groupby(["model", "batch"], sort=False))
    figure = Figure(figsize=(5 * len(groups), 4.5), layout="constrained")
    for number, ((model, batch), rows) in enumerate(groups):
        axes = figure.add_subplot(1, len(groups), number + 1)
        left = 0.0
        for part, colour in PARTS.items():
            axes.barh(rows["system"], rows[part], left=left, color=colour, label=part.removesuffix("_s"))
            left = left + rows[part]
        axes.plot(rows["recomputing_s"], rows["system"], "k|", markersize=12, label="of it recomputing")
        for system, told in FIGURE_7[model, batch].items():
            kernels_s = told.computing + told.overlap + told.recomputing
            axes.barh(f"paper: {system}", kernels_s, color="0.6")
            axes.barh(f"paper: {system}", told.exposed, left=kernels_s, color=PARTS["exposed_s"])
        axes.invert_yaxis()
        axes.set(title=f"{model}, batch {batch}", xlabel="seconds of one step")
    figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=4, fontsize=8)
    return figure
