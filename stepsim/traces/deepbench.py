"""Reader for the training results of DeepBench (baidu-research/DeepBench, ``results/train``): products, convolutions.

cuBLAS stores matrices by columns: DeepBench's result of M x N is ours of ``m`` = N rows and ``n`` = M columns, as a
layer of M outputs gives for N inputs (Code: DeepBench, ``code/nvidia/gemm_bench.cu``). R is the height of a filter and
S its width. Sizes of outputs are computed: some of the tables have them unrounded.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from stepsim.errors import FileError
from stepsim.traces.kernel_tables import finished_samples
from stepsim.traces.workbooks import Cells, Rows, read_workbook

LARGEST_SIZE = 2**31
"""Of a dimension: what the indices of these libraries hold."""

LONGEST_MS = 1e7
"""Nearly three hours: a longer kernel is a misread one."""

NOT_MEASURED = ("", "N/A", "N/A*")

_PRODUCT = ("M", "N", "K", "A Transpose", "B Transpose", "Time (msec)")
_IMAGE = ("W", "H", "C", "N", "K", "R", "S", "pad_h", "pad_w", "Vertical stride", "Horizontal stride")
_TIMES = {"Forward (msec)": "forward", "wrt Inputs (msec)": "data", "wrt Parameters (msec)": "filter"}

Sample = dict[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """A row of a table: ``cells`` by the names of its columns."""

    path: Path
    row: int
    cells: Cells

    def size(self, name: str, least: int = 1) -> int:
        text = self.cells.get(name, "")
        value = _number(text)
        if not (least <= value <= LARGEST_SIZE and value == int(value)):
            raise self.error(name, text, f"must be a whole number from {least} to {LARGEST_SIZE}")
        return int(value)

    def seconds(self, name: str) -> float | None:
        """None where nothing was measured."""
        text = self.cells.get(name, "")
        if text in NOT_MEASURED:
            return None
        if not 0 < _number(text) <= LONGEST_MS:
            raise self.error(name, text, f"must be milliseconds above 0, at most {LONGEST_MS:.0f}")
        return _number(text) * 1e-3

    def error(self, name: str, value: object, problem: str) -> FileError:
        return FileError(self.path, f"row {self.row}, {name}", value, problem)


def read_deepbench(path: Path) -> pd.DataFrame:
    """Products and convolutions in float32 as `stepsim.traces.kernel_tables` explains, with a column ``variant``.

    ``variant`` is, of a product, which operands are transposed (``NN``, ``NT``, ``TN``); of a convolution ``forward``,
    ``data`` or ``filter``: gradients have the dimensions of the forward convolution. ``gpu`` is what sheet ``Specs``
    says. Left out is what was not measured, and the sheets of other precisions. Raises `FileError`.
    """
    sheets = read_workbook(path)
    rows = next((rows for name, rows in sheets.items() if "FP32" in name), None)
    if rows is None or "Specs" not in sheets:
        raise FileError(path, "sheets", ", ".join(sheets), "must hold Specs and one of results in FP32")
    gpu = next((row["B"] for row in sheets["Specs"].values() if row.get("A") == "GPU Model" and "B" in row), None)
    if gpu is None:
        raise FileError(path, "Specs", None, "must say GPU Model")
    products = [_product(place) for place in _table(path, rows, _PRODUCT)]
    convolutions = [row for place in _table(path, rows, (*_IMAGE, *_TIMES)) for row in _convolution(place)]
    frames = [_frame(path, gpu, products), _frame(path, gpu, convolutions)]
    return pd.concat(frames, ignore_index=True)


def _table(path: Path, rows: Rows, columns: tuple[str, ...]) -> Iterator[_Place]:
    """The rows below the header with ``columns``, up to the next title; a row without the first column is a note."""
    below = iter(rows.items())
    letters = next((found for _, cells in below if columns[-1] in (found := _header(cells))), None)
    if letters is None:
        raise FileError(path, "column", columns[-1], "must be there")
    for column in columns:
        if column not in letters:
            raise FileError(path, "column", column, "must be there")
    for row, cells in below:
        if "A" in cells:
            return
        if letters[columns[0]] in cells:
            named = {name: cells[letter] for name, letter in letters.items() if letter in cells}
            yield _Place(path=path, row=row, cells=named)


def _header(cells: Cells) -> Mapping[str, str]:
    """Letters by name; ``S (Filter width)`` is ``S``."""
    return {text.partition(" (Filter")[0]: letter for letter, text in cells.items()}


def _product(place: _Place) -> Sample:
    shape: Sample = {"batch": 1, "m": place.size("N"), "n": place.size("M"), "k": place.size("K")}
    variant = place.cells.get("A Transpose", "") + place.cells.get("B Transpose", "")
    rest = {"op_class": "linear", "kernel_area": 1, "stride": 1, "kernels": ""}
    return {**shape, **rest, "variant": variant, "seconds": place.seconds("Time (msec)")}


def _convolution(place: _Place) -> Iterator[Sample]:
    height = _output(place, "H", "R", "pad_h", "Vertical stride")
    width = _output(place, "W", "S", "pad_w", "Horizontal stride")
    area = place.size("R") * place.size("S")
    shape = {"batch": place.size("N"), "m": height * width, "n": place.size("K"), "k": place.size("C") * area}
    stride = round(math.sqrt(place.size("Vertical stride") * place.size("Horizontal stride")))
    pixels = place.size("H") * place.size("W")
    rest = {"op_class": "conv", "kernel_area": area, "stride": stride, "input_pixels": pixels}
    for column, variant in _TIMES.items():
        kernels = "!" + place.cells.get("Forward Algorithm", "") if variant == "forward" else ""
        yield {**shape, **rest, "kernels": kernels, "variant": variant, "seconds": place.seconds(column)}


def _output(place: _Place, image: str, kernel: str, padding: str, stride: str) -> int:
    room = place.size(image) + 2 * place.size(padding, least=0) - place.size(kernel)
    if room < 0:
        raise place.error(kernel, place.size(kernel), "must fit into the padded image")
    return room // place.size(stride) + 1


def _frame(path: Path, gpu: str, rows: list[Sample]) -> pd.DataFrame:
    measured = pd.DataFrame([row for row in rows if row["seconds"] is not None])
    if measured.empty:
        raise FileError(path, "rows", 0, "must be > 0")
    shape = measured.drop(columns="seconds").assign(gpu=gpu, dtype="float32")
    return finished_samples(path, shape, measured["seconds"]).assign(variant=measured["variant"])


def _number(text: str) -> float:
    """NaN for what is no number."""
    try:
        return float(text) if text.isascii() and "_" not in text else math.nan
    except ValueError:
        return math.nan
