"""Reader for the pairs of CSV files of TrioSim: ``trace.csv`` (operators) and beside it ``tensor.csv``.

Format: sarchlab/triosim, tracer/dataprocess.py (what is written) and trace.go (what is read). Times are microseconds.
"""

import csv
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from stepsim.errors import FileError
from stepsim.traces.log_lines import LARGEST_BYTES, Sample, amount, read_lines, size_in_bytes, trace_of, warn_of_columns
from stepsim.traces.trace import Trace

LONGEST_US = 1e12
"""Eleven days: a longer operator is a misread one."""

LONGEST_SHAPE = 200
"""Characters. An operator may name a tensor many times, and its signature has the shape each time."""

_US = 1e-6
_TIME = "Operator_cudatimenooverlap"
_OPERATOR = ("OperatorName", "Operator_input", "Operator_output", _TIME, "gpuid", "stage")
_TENSOR = ("TensorID", "TensorShape", "TensorNumElement", "TensorEachByte")
_UNUSED = ("OperatorID", "Operator_cudatime", "InputSize", "OutputSize", "tpflag")
_UNUSED_OF_TENSOR = ("Index", "TensorType", "TensorStorgeid", "gpuid")

_LARGEST_GPU = 2**20
"""No machine has more: a larger number is a misread one."""

Row = tuple[int, Mapping[str, str]]
"""Line in the file and the values by column."""


@dataclass(frozen=True, slots=True)
class _Tensor:
    shape: str
    size_bytes: int


def looks_like_triosim(head: bytes) -> bool:
    first = head.partition(b"\n")[0]
    return b"OperatorName" in first and b"Operator_cudatimenooverlap" in first


def read_triosim(path: str | Path, tensors_path: str | Path | None = None) -> Trace:
    """The operators in ``path`` as kernels, with the tensors of ``tensors_path``: by default ``tensor.csv`` beside it.

    A duration is what the kernels of an operator took, without the gaps between them; ``size_bytes`` those of all
    tensors that it names, so that what it updates in place and does not name again counts once. Operators that took no
    time are left out. Raises `FileError` for a missing column, a tensor that is not in the table, or two sizes for one.
    Warns, once of each, of unknown columns and of operators that stand there twice.
    """
    tensors_path = Path(path).with_name("tensor.csv") if tensors_path is None else tensors_path
    rows = _without_duplicates(path, _rows(path, _OPERATOR, _UNUSED))
    tensors = _tensors(tensors_path)
    operators = [_sample(path, row, tensors) for row in rows]
    samples = [sample for sample in operators if sample.duration_s > 0]
    if not samples:
        raise FileError(path, _TIME, 0, "must be > 0 for some operator: nothing was timed")
    untimed = len(operators) - len(samples)
    left_out = {"left out": f"{untimed} operators that took no time"} if untimed else {}
    gpus = {sample.device: "not named in the file" for sample in samples}
    return trace_of(path, samples, {"format": "TrioSim", "tensors": Path(tensors_path).name, **gpus, **left_out})


def _rows(path: str | Path, columns: Sequence[str], unused: Sequence[str]) -> Iterator[Row]:
    lines = [text for _, text in read_lines(path)]
    reader = csv.DictReader(lines, skipinitialspace=True, strict=True)
    try:
        for column in columns:
            if column not in (reader.fieldnames or ()):
                raise FileError(path, "line 1: columns", lines[0], f"must have {column!r}")
        warn_of_columns(path, reader.fieldnames or (), (*columns, *unused))
        for row in reader:
            if None in row or None in row.values():
                raise FileError(path, f"line {reader.line_num}", lines[reader.line_num - 1], "must fill every column")
            yield reader.line_num, row
    except csv.Error as error:
        raise FileError(path, f"line {reader.reader.line_num}", None, f"is no CSV: {error}") from error


def _without_duplicates(path: str | Path, rows: Iterable[Row]) -> list[Row]:
    """Operators are numbered: one that is alike in everything was written again."""
    seen: dict[tuple[str, ...], Row] = {}
    again = [number for number, row in rows if seen.setdefault(tuple(row.values()), (number, row))[0] != number]
    if again:
        warnings.warn(f"{path}: line {again[0]}: {len(again)} operators stand there twice: read once", stacklevel=3)
    return list(seen.values())


def _tensors(path: str | Path) -> dict[str, _Tensor]:
    """By id. A tensor has a row for each use of it."""
    tensors: dict[str, _Tensor] = {}
    for number, row in _rows(path, _TENSOR, _UNUSED_OF_TENSOR):
        elements = size_in_bytes(path, number, "TensorNumElement", row["TensorNumElement"])
        each_bytes = size_in_bytes(path, number, "TensorEachByte", row["TensorEachByte"])
        if elements * each_bytes > LARGEST_BYTES:
            raise FileError(path, f"line {number}: TensorNumElement", elements, f"is more than {LARGEST_BYTES} bytes")
        tensor = _Tensor(_shape(path, number, row["TensorShape"]), elements * each_bytes)
        if tensors.setdefault(row["TensorID"], tensor).size_bytes != tensor.size_bytes:
            raise FileError(path, f"line {number}: TensorID", row["TensorID"], "must have one size in all its rows")
    return tensors


def _shape(path: str | Path, number: int, text: str) -> str:
    if len(text) > LONGEST_SHAPE:
        raise FileError(path, f"line {number}: TensorShape", text, f"must have at most {LONGEST_SHAPE} characters")
    return text.replace(" ", "")


def _sample(path: str | Path, row: Row, tensors: Mapping[str, _Tensor]) -> Sample:
    number, values = row
    inputs = list(_listed(path, number, "Operator_input", values["Operator_input"], tensors))
    outputs = list(_listed(path, number, "Operator_output", values["Operator_output"], tensors))
    size_bytes = sum(tensor.size_bytes for tensor in (*inputs, *outputs))
    if size_bytes > LARGEST_BYTES:
        raise FileError(path, f"line {number}: Operator_input", size_bytes, f"must be at most {LARGEST_BYTES} bytes")
    microseconds = amount(path, number, _TIME, values[_TIME], LONGEST_US)
    return Sample(
        kind="kernel",
        name=values["OperatorName"],
        device=f"gpu{_gpu(path, number, values['gpuid'])}",
        size_bytes=size_bytes,
        duration_s=microseconds * _US,
        work=f"{values['stage']} {values['OperatorName']} {_shapes(inputs)} -> {_shapes(outputs)}",
    )


def _gpu(path: str | Path, number: int, text: str) -> int:
    gpu = int(text) if text.isascii() and text.isdigit() and len(text) < 20 else -1
    if not 0 <= gpu <= _LARGEST_GPU:
        raise FileError(path, f"line {number}: gpuid", text, f"must be a whole number up to {_LARGEST_GPU}")
    return gpu


def _listed(path: str | Path, number: int, field: str, text: str, tensors: Mapping[str, _Tensor]) -> Iterator[_Tensor]:
    """The tensors of a list like ``[4; 6; 8]``."""
    if text[:1] != "[" or text[-1:] != "]":
        raise FileError(path, f"line {number}: {field}", text, "must be a list like [4; 6; 8]")
    for tensor in filter(None, (part.strip(" '") for part in text[1:-1].split(";"))):
        if tensor not in tensors:
            raise FileError(path, f"line {number}: {field}", tensor, "must be a tensor of the table")
        yield tensors[tensor]


def _shapes(tensors: Iterable[_Tensor]) -> str:
    return "; ".join(tensor.shape for tensor in tensors)
