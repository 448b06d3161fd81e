"""How far are kernels, copies and collectives from predictions that never saw them?

Runs `kernel_accuracy`, `deepbench_accuracy` and `link_accuracy` into one folder and writes their figures as one page,
``accuracy.md``, with the pictures of `experiments.accuracy_plots`; those of the last full run are in
``docs/reference``. About 12 minutes, no GPU; needs the measured files, STEPSIM_DATA.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from experiments import deepbench_accuracy, kernel_accuracy, link_accuracy
from experiments.accuracy_plots import write_links, write_pictures
from experiments.experiment import Claim

INTRODUCTION = """# Accuracy

Errors of predictions for what no fit has seen, written by `python -m experiments run calibration_accuracy` from public
measurements ([where they come from](files.md)). Each cell is the mean of absolute relative errors, then their median
and 90th percentile.

For whole training steps see `python -m experiments run training_steps`. Published for steps of GPT-3 on an H100, which
no fit had seen: NeuSight 2.3 %, Habitat 121 % (Lee et al., ASPLOS 2025, abstract). For single kernels of these tables
nothing comparable was found.
"""

KERNELS = """
## Kernels

In float32. A fifth of the shapes is held out, the same on every GPU. "The GPU" was fitted on the other shapes of that
GPU, "the other GPUs" on the other shapes of the three others: what to expect of a GPU that nobody measured. A "plain
roofline" is the data sheet.

The tables of convolutions drift: each call took longer than the one before, whatever it computed. "Drift known" means
that the drift, fitted on the other rows of the table, is added to the prediction of the kernel; "shape only" is a fit
without it.
"""

RESIDUALS = """
### Predicted over measured

Points are single kernels, lines the medians of equally many. "Known" is a fit on the GPU, "left out" one on the three
others.

![Predicted over measured time of products and convolutions against FLOP, GPU known and left out](accuracy-products.png)

![Predicted over measured time of elementwise, softmax and layer norm against bytes](accuracy-rows.png)

On a known GPU the errors scatter around 1 at every size. On a GPU left out much of the error is one factor for the
whole GPU, which its data sheet does not tell: batched products and softmax of the P100 took 1.5 times what is
predicted, whatever their size. Large linear layers of the P4 took up to 3 times as long: they reached 0.15 of its peak
where its batched products reach 0.55, so it throttled in that run.
"""

SIZES = """
### By size

Products and convolutions by FLOP, the others by the bytes that they read and write.
"""

DEEPBENCH = """
### Measured elsewhere

The kernels of DeepBench, which another laboratory measured with other versions of the libraries: products (N and T say
which operand is transposed) and convolutions, forward and the gradients by data and by filter. "The GPU, NeuSight" was
fitted on the tables above, "DeepBench's other shapes" on four fifths of these, all others know nothing of them.

DeepBench's products on the P100 took 0.7 of the time of NeuSight's linear layers, and as long as NeuSight's batched
products, in the median: those linear layers ran slow. The high means of batched products come from inner lengths of
500,000, far outside what NeuSight measured.
"""

COLLECTIVES = """
## Collectives

From 1 MiB up. Sizes left out, every fourth; then groups of ranks left out between two others.
"""

COLLECTIVE_SIZES = """
By size of the whole array, over all groups, sizes left out, from three lines, which are what ships:
"""

COPIES = """
## Copies

From 64 KiB up, pinned memory. Sizes left out, every fourth.
"""

COPY_SIZES = """
By size, from three lines:
"""

LINK_RESIDUALS = """
### Predicted over measured

Points are sizes that were left out, lines the medians over all machines.

![Predicted over measured time of collectives and copies against bytes, by both methods](accuracy-links.png)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bands:
    """Sizes in ``column``, parted at ``edges``; ``names`` are one more. ``classes`` are those that this size bounds."""

    classes: tuple[str, ...] = ()
    column: str
    edges: tuple[float, ...]
    names: tuple[str, ...]


BANDS = (
    Bands(
        classes=("linear", "bmm", "conv"),
        column="flop",
        edges=(1e8, 1e9, 1e10),
        names=("below 0.1 GFLOP", "0.1 to 1 GFLOP", "1 to 10 GFLOP", "from 10 GFLOP"),
    ),
    Bands(
        classes=("elementwise", "softmax", "layernorm"),
        column="size_bytes",
        edges=(1e6, 1e7, 1e8),
        names=("below 1 MB", "1 to 10 MB", "10 to 100 MB", "from 100 MB"),
    ),
)

KERNEL_KEY = ("op_class", "gpu", "fitted_on")

LINK_BANDS = Bands(
    column="size_bytes",
    edges=(2**16, 2**20, 2**24, 2**28),
    names=("below 64 KiB", "64 KiB to 1 MiB", "1 to 16 MiB", "16 to 256 MiB", "from 256 MiB"),
)

SHIPPED_METHOD = "three lines"
"""Of those that `link_accuracy` compares."""


def run(folder: Path, *, quick: bool) -> list[Claim]:
    """Write ``accuracy.md`` and all that the three experiments write; claim what they claim."""
    parts = (kernel_accuracy, deepbench_accuracy, link_accuracy)
    claims = [claim for part in parts for claim in part.run(folder, quick=quick)]
    write_pictures(pd.read_csv(folder / "kernel_predictions.csv"), folder)
    write_links(*(pd.read_csv(folder / f"{name}_predictions.csv") for name in ("collective", "copy")), folder)
    (folder / "accuracy.md").write_text(page(folder), encoding="utf-8")
    return claims


def page(folder: Path) -> str:
    """The page, from the tables in ``folder``."""
    names = ("kernel_accuracy", "kernel_predictions", "deepbench_accuracy", "collectives", "groups", "copies")
    kernels, predictions, deepbench, collectives, groups, copies = (
        pd.read_csv(folder / f"{name}.csv") for name in names
    )
    sizes = {name: pd.read_csv(folder / f"{name}_predictions.csv") for name in ("collective", "copy")}
    parts = [
        INTRODUCTION,
        KERNELS,
        *_by(kernels, ["op_class", "fitted_on"], "gpu"),
        RESIDUALS,
        SIZES,
        *(line for bands in BANDS for line in _size_table(_bounded(predictions, bands), bands, KERNEL_KEY)),
        DEEPBENCH,
        *_by(deepbench, ["op_class", "variant", "fitted_on"], "gpu"),
        COLLECTIVES,
        *_by(collectives, ["machine", "collective"], "method"),
        "\n",
        *_by(groups, ["machine", "collective", "ranks"], "method"),
        COLLECTIVE_SIZES,
        *_size_table(_shipped(sizes["collective"]), LINK_BANDS, ("machine", "collective")),
        COPIES,
        *_by(copies, ["machine", "way"], "method"),
        COPY_SIZES,
        *_size_table(_shipped(sizes["copy"]), LINK_BANDS, ("machine", "way")),
        LINK_RESIDUALS,
    ]
    return "".join(parts)


def _bounded(predictions: pd.DataFrame, bands: Bands) -> pd.DataFrame:
    return predictions[predictions["op_class"].isin(bands.classes)]


def _shipped(predictions: pd.DataFrame) -> pd.DataFrame:
    return predictions[predictions["method"] == SHIPPED_METHOD]


def _size_table(predictions: pd.DataFrame, bands: Bands, key: Sequence[str]) -> Iterable[str]:
    return _by(by_size(predictions, bands, key), key, "size", bands.names)


def by_size(predictions: pd.DataFrame, bands: Bands, key: Sequence[str]) -> pd.DataFrame:
    """Errors by ``key`` and band of size, which is the column ``size``; empty bands are no rows."""
    size = pd.cut(predictions[bands.column], [0, *bands.edges, np.inf], labels=bands.names, right=False)
    off = (predictions["predicted_s"] / predictions["seconds"] - 1).abs()
    groups = predictions.assign(size=size.astype(str), off=off).groupby([*key, "size"], sort=False)["off"]
    return groups.agg(mape="mean", median="median").assign(p90=groups.quantile(0.9)).reset_index()


def _by(table: pd.DataFrame, rows: Sequence[str], column: str, heads: Sequence[str] = ()) -> Iterable[str]:
    """Lines of a table in Markdown: a row for each ``rows``, a column for each value of ``column``, means of errors.

    Columns stand in the order of ``heads``, without it in that of the table.
    """
    means = table.groupby([*rows, column], sort=False)[["mape", "median", "p90"]].mean()
    heads = heads or list(dict.fromkeys(table[column]))
    yield "\n" + _line([*rows, *heads]) + _line(["---"] * (len(rows) + len(heads)))
    for key in dict.fromkeys(table[list(rows)].itertuples(index=False, name=None)):
        cells = [_cell(means, (*key, head)) for head in heads]
        yield _line([*map(str, key), *cells])


def _cell(means: pd.DataFrame, key: tuple[object, ...]) -> str:
    if key not in means.index:
        return ""
    mean, median, high = (f"{100 * value:.1f}" for value in means.loc[key])
    return f"**{mean} %** {median} / {high}"


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |\n"
