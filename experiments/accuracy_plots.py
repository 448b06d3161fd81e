"""Pictures of the accuracy page: how far kernels, collectives and copies are from what was measured, by their size."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

# Okabe and Ito, "Color Universal Design" (2008): colours that people with any colour vision can tell apart.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7")

QUESTIONS = {"known": "the GPU", "left out": "the other GPUs"}
"""What a column of a picture shows, and how ``fitted_on`` begins there."""

PICTURES = {
    "accuracy-products.png": (("linear", "bmm", "conv"), "flop"),
    "accuracy-rows.png": (("elementwise", "softmax", "layernorm"), "size_bytes"),
}
"""Op classes of each picture, and what bounds them, which is the size that it shows."""

AXES = {"flop": "FLOP", "size_bytes": "bytes read and written"}

MOST_POINTS = 150
"""Of each GPU in one drawing, so that a picture stays readable, and small."""

FARTHEST = 4.0
"""Predicted over measured beyond which a point is drawn at the border."""

BINS = 12
"""Sizes that one line of medians joins."""

LINKS = "accuracy-links.png"

MARKS = "ovsD"
"""Machines with links are more than colours."""


def write_pictures(predictions: pd.DataFrame, folder: Path) -> None:
    """Write `PICTURES` to ``folder``; ``predictions`` is what `kernel_accuracy` writes, one row a prediction."""
    for name, (classes, size) in PICTURES.items():
        residuals(predictions, classes, size).savefig(folder / name, dpi=70)


def write_links(collectives: pd.DataFrame, copies: pd.DataFrame, folder: Path) -> None:
    """Write `LINKS` to ``folder``; tables are those that `link_accuracy` writes, one row a size that was left out."""
    link_residuals({"collectives": collectives, "copies": copies}).savefig(folder / LINKS, dpi=70)


def link_residuals(parts: Mapping[str, pd.DataFrame]) -> Figure:
    """Predicted over measured against bytes: a row for each of ``parts``, a column for each method.

    Points are sizes that were left out, coloured by machine; lines the medians over all machines.
    """
    methods = list(dict.fromkeys(method for table in parts.values() for method in table["method"]))
    figure = Figure(figsize=(9, 3.6 * len(parts)), layout="constrained")
    grid = figure.subplots(len(parts), len(methods), squeeze=False, sharex="row", sharey=True)
    for row, (title, table) in zip(grid, parts.items(), strict=True):
        for axes, method in zip(row, methods, strict=True):
            _draw_links(axes, table[table["method"] == method])
            axes.set(title=f"{title}, {method}", xlabel="bytes")
        row[0].set_ylabel("predicted / measured")
        row[-1].legend(fontsize=6, loc="center left", bbox_to_anchor=(1, 0.5))
    return figure


def _draw_links(axes: Axes, asked: pd.DataFrame) -> None:
    ordered = asked.sort_values("size_bytes")
    ratio = _ratio(ordered)
    for place, (machine, rows) in enumerate(ordered.groupby("machine")):
        colour, mark = COLOURS[place % len(COLOURS)], MARKS[place // len(COLOURS) % len(MARKS)]
        points = {"color": colour, "markersize": 3, "alpha": 0.5, "label": str(machine)}
        axes.plot(rows["size_bytes"], ratio[rows.index], mark, **points)
    axes.plot(*zip(*_medians(ordered["size_bytes"], ratio), strict=True), color="black", label="all, medians")
    _scale(axes)


def _ratio(rows: pd.DataFrame) -> "pd.Series[float]":
    return (rows["predicted_s"] / rows["seconds"]).clip(1 / FARTHEST, FARTHEST)


def residuals(predictions: pd.DataFrame, classes: Sequence[str], size: str) -> Figure:
    """Predicted over measured against ``size``: a row for each class, a column for each of `QUESTIONS`.

    Points are single kernels, lines the medians of equally many kernels each.
    """
    figure = Figure(figsize=(9, 2.6 * len(classes)), layout="constrained")
    grid = figure.subplots(len(classes), len(QUESTIONS), squeeze=False, sharex="row", sharey=True)
    colours = dict(zip(sorted(set(predictions["gpu"])), COLOURS, strict=False))
    for row, op_class in zip(grid, classes, strict=True):
        for axes, (title, begin) in zip(row, QUESTIONS.items(), strict=True):
            asked = (predictions["op_class"] == op_class) & _answers(predictions, begin)
            _draw(axes, predictions[asked], size, colours)
            axes.set_title(f"{op_class}, GPU {title}", fontsize=9)
            axes.set_xlabel(AXES[size])
        row[0].set_ylabel("predicted / measured")
    handles, labels = grid[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), fontsize=8)
    return figure


def _answers(predictions: pd.DataFrame, begin: str) -> "pd.Series[bool]":
    """Where drift is known besides, that answer; never the one from shape only."""
    told = predictions["fitted_on"]
    return told.isin([begin, f"{begin}, drift known"])


def _draw(axes: Axes, asked: pd.DataFrame, size: str, colours: dict[str, str]) -> None:
    for gpu, rows in asked.groupby("gpu"):
        ordered = rows.sort_values(size)
        ratio = _ratio(ordered)
        every = -(-len(rows) // MOST_POINTS)
        colour = colours[str(gpu)]
        axes.plot(ordered[size][::every], ratio[::every], ".", color=colour, markersize=2, alpha=0.4)
        middles = list(_medians(ordered[size], ratio))
        axes.plot(*zip(*middles, strict=True), color=colour, linewidth=1.5, label=str(gpu))
    _scale(axes)


def _scale(axes: Axes) -> None:
    axes.axhline(1, color="black", linewidth=0.8)
    axes.set(xscale="log", yscale="log", ylim=(0.95 / FARTHEST, 1.05 * FARTHEST))
    ticks = [1 / FARTHEST, 0.5, 1, 2, FARTHEST]
    axes.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.minorticks_off()


def _medians(sizes: "pd.Series[float]", ratio: "pd.Series[float]") -> Iterator[tuple[float, float]]:
    for places in np.array_split(np.arange(len(sizes)), min(BINS, len(sizes))):
        yield float(sizes.iloc[places].median()), float(ratio.iloc[places].median())
