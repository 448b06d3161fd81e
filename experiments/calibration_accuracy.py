"""How far are kernels, copies and collectives from predictions that never saw them?

Runs `kernel_accuracy` and `link_accuracy` into one folder and writes their figures as one page, ``accuracy.md``; that
of the last full run is ``docs/reference/accuracy.md``. About 7 minutes, no GPU; needs the measured files, STEPSIM_DATA.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path

import pandas as pd

from experiments import kernel_accuracy, link_accuracy
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

COLLECTIVES = """
## Collectives

From 1 MiB up. Sizes left out, every fourth; then groups of ranks left out between two others.
"""

COPIES = """
## Copies

From 64 KiB up, pinned memory. Sizes left out, every fourth.
"""


def run(folder: Path, *, quick: bool) -> list[Claim]:
    """Write ``accuracy.md`` and all that the two experiments write; claim what they claim."""
    claims = [*kernel_accuracy.run(folder, quick=quick), *link_accuracy.run(folder, quick=quick)]
    (folder / "accuracy.md").write_text(page(folder), encoding="utf-8")
    return claims


def page(folder: Path) -> str:
    """The page, from the tables in ``folder``."""
    kernels, collectives, groups, copies = (
        pd.read_csv(folder / f"{name}.csv") for name in ("kernel_accuracy", "collectives", "groups", "copies")
    )
    parts = [
        INTRODUCTION,
        KERNELS,
        *_by(kernels, ["op_class", "fitted_on"], "gpu"),
        COLLECTIVES,
        *_by(collectives, ["machine", "collective"], "method"),
        "\n",
        *_by(groups, ["machine", "collective", "ranks"], "method"),
        COPIES,
        *_by(copies, ["machine", "way"], "method"),
    ]
    return "".join(parts)


def _by(table: pd.DataFrame, rows: Sequence[str], column: str) -> Iterable[str]:
    """Lines of a table in Markdown: a row for each ``rows``, a column for each value of ``column``, means of errors."""
    means = table.groupby([*rows, column], sort=False)[["mape", "median", "p90"]].mean()
    heads = list(dict.fromkeys(table[column]))
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
