"""How far off the paper is HOME over vDNN, if kernels are as fast as the paper's own throughput tells?

Reproduces: HOME (IEEE TC 2023), figure 6, HOME over vDNN alone.
Claim:      the paper's means of HOME over vDNN, 3.58, 5.43, 4.47, 4.16, 3.35, 1.66, within 15 % (Inception v3 25 %).
Needs:      nothing; about two minutes on two cores, no GPU.
Writes:     home_kernels.csv and home_kernels.png in the output folder.

In `experiments.home_figure6` kernels have the efficiencies fitted on three models, and those of ResNet come out about a
quarter faster than the paper's. Copies hide behind kernels, so what is lost to them depends on that. Here the kernels
of each model are so slow that computing alone, one op after another, gives the best throughput that the paper has of
HOME there: one number a model is taken from the paper, so that this is no test of kernels, and one of copies only.
"""

from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from experiments.experiment import Claim
from experiments.home_constants import FITTED
from experiments.home_figure6 import VDNN_THAT_FITS, ratios
from experiments.home_fit import as_fast_as_published
from experiments.home_paper import FIGURE_6, FIGURE_6_BATCHES, MODELS, mean_ratio
from experiments.home_runs import outcome
from stepsim.strategies import STRATEGIES

OURS = "home-extended"


def run(folder: Path, *, quick: bool) -> list[Claim]:
    models = ("vgg16",) if quick else MODELS
    table = outcomes(models, quick)
    table.to_csv(folder / "home_kernels.csv", index=False)
    plot(table).savefig(folder / "home_kernels.png", dpi=150)
    return list(claims(table, models))


def outcomes(models: Iterable[str], quick: bool) -> pd.DataFrame:
    """One row for each model, batch and system."""
    points = [
        (model, batch, system)
        for model in models
        for batch in FIGURE_6_BATCHES[model][-1 if quick else 0 :]
        for system in (OURS, VDNN_THAT_FITS[model])
    ]
    if quick:
        return pd.DataFrame(map(_row, points))
    with ProcessPoolExecutor() as processes:
        return pd.DataFrame(processes.map(_row, points, chunksize=4))


def _row(point: tuple[str, int, str]) -> dict[str, Any]:
    model, batch, system = point
    return outcome(model, batch, system, STRATEGIES[system], as_fast_as_published(model, FITTED)).as_row()


def claims(table: pd.DataFrame, models: Iterable[str]) -> Iterator[Claim]:
    """Bands are those of figure 6."""
    for model in models:
        ours, paper = float(ratios(table, model, OURS, VDNN_THAT_FITS[model]).mean()), mean_ratio(model, "vdnn")
        most = 0.25 if model == "inception_v3" else 0.15
        text = f"{model}: HOME over the vDNN that fits the figure is within {most:.0%} of the paper's"
        yield Claim(claim=text, paper=paper, ours=ours, holds=abs(ours / paper - 1) <= most)


def plot(table: pd.DataFrame) -> Figure:
    """HOME over vDNN by batch: lines are ours, dots the paper's."""
    figure = Figure(figsize=(7, 4.5), layout="constrained")
    axes = figure.add_subplot()
    for model in dict.fromkeys(table["model"]):
        found = ratios(table, model, OURS, VDNN_THAT_FITS[model])
        share = found.index / FIGURE_6_BATCHES[model][-1]
        (line,) = axes.plot(share, found, label=model)
        pairs = zip(FIGURE_6_BATCHES[model], FIGURE_6[model]["home"], FIGURE_6[model]["vdnn"], strict=True)
        told = [(batch / FIGURE_6_BATCHES[model][-1], home / vdnn) for batch, home, vdnn in pairs if home and vdnn]
        axes.plot(*zip(*told, strict=True), ".", color=line.get_color())
    axes.set(xlabel="batch over the largest", ylabel="HOME over vDNN, throughput", ylim=(0, None))
    figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=6, fontsize=8)
    return figure
