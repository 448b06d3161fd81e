"""Reader for logs of NVIDIA's nccl-tests: ``all_reduce_perf`` and its sisters, one test or several in one file.

A log has the ranks, then a table with one row for each size: elements, type, and out of place and in place the time of
one operation (microseconds, the mean over all iterations) with two bandwidths that follow from it. What ``size`` means
depends on the collective. nccl-tests, doc/PERFORMANCE.md, with n ranks:

==============  ==========================================  ===================
kind            ``size`` in the log                         a member contributes
==============  ==========================================  ===================
all_reduce      the array that every rank has               size
reduce_scatter  the whole array, n times what a rank gets   size
all_gather      the whole array, n times what a rank sends  size / n
all_to_all      all that a rank sends, n parts              size
broadcast       what the root sends                         size
send_receive    what each rank sends to the next            size
==============  ==========================================  ===================
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from stepsim.errors import FileError
from stepsim.traces.log_lines import Line, Sample, positive, read_lines, size_in_bytes, trace_of, warn_of_columns
from stepsim.traces.trace import Trace

KINDS = {
    "allreduce": "all_reduce",
    "allgather": "all_gather",
    "reducescatter": "reduce_scatter",
    "broadcast": "broadcast",
    "alltoall": "all_to_all",
    "sendrecv": "send_receive",
}
"""What nccl-tests calls a collective, without underscores, and what stepsim does."""

COLUMNS = ("size", "count", "type", "redop", "root", "time", "algbw", "busbw", "#wrong", "error")
"""Of the tables of all versions up to 2.17; ``#wrong`` was called ``error`` before."""

PLACEMENTS = ("out_of_place", "in_place")
"""In the order of the columns; they stand in the column ``work`` of the trace."""

ROUNDING = 2e-3
"""Times have four digits at least, and bandwidths two behind the point."""

_DIVIDED = ("all_gather", "reduce_scatter", "all_to_all")
"""Here ``size`` is n times the elements of the column ``count``."""

_ELEMENT_BYTES = {
    **dict.fromkeys(("int8", "uint8", "fp8_e4m3", "fp8_e5m2", "f8e4m3", "f8e5m2"), 1),
    **dict.fromkeys(("half", "bfloat16"), 2),
    **dict.fromkeys(("int32", "uint32", "float"), 4),
    **dict.fromkeys(("int64", "uint64", "double"), 8),
}

_RANK = re.compile(r"# *Rank +([0-9]{1,9}) .*\bon +(\S+) +device +([0-9]{1,9}) +\[[^\]]*\] +(.+)")
_PROGRAM = re.compile(r"(\w+)_perf\b")
_END = "Avg bus bandwidth"
_FACTS = {
    "nccl_tests_version": re.compile(r"# *nccl-tests version (\S+)"),
    "nccl_library": re.compile(r"\bnccl-library=(\d+)"),
    "nccl_version": re.compile(r"\bNCCL version ([\w.+]+)"),
    "iterations": re.compile(r"# *nThread .*?(?<!warmup )(?<!agg )\biters: (\d+)"),
}
_SETTING = re.compile(r"\b(NCCL_[A-Z0-9_]+) set by environment to (.+?)\.?$")


@dataclass(frozen=True, slots=True)
class Rank:
    host: str
    device: int
    gpu: str


def looks_like_nccl_tests(head: bytes) -> bool:
    return b"# nccl-tests version" in head or re.search(rb"#\s*size\s+count\s.*\balgbw\b", head) is not None


def read_nccl_tests(path: str | Path) -> Trace:
    """The log ``path``: a collective for each size and placement, with what each member contributes.

    Provenance has the ranks, nodes and GPUs, versions, and the NCCL settings that the log tells. Older versions do not
    say which collective they ran; then the name of the file must. Raises `FileError` for a log that is cut off, has no
    table, mixes GPUs or groups, or contradicts itself (results marked wrong, a bandwidth that is not size by time).
    Warns once of columns that are not `COLUMNS`.
    """
    lines = [(number, re.sub(r"^\[\d+,\d+\]<stdout>: ?", "", text)) for number, text in read_lines(path)]
    samples: list[Sample] = []
    group: dict[int, Rank] = {}
    for test in _tests(path, lines):
        ranks = _ranks(path, test)
        if group and ranks != group:
            problem = "must be as many and the same as in the first test of the log: split it"
            raise FileError(path, f"line {test[0][0]}: ranks", len(ranks), problem)
        group = ranks
        samples += _read_test(path, test, group)
    tables = [text.removeprefix("#").split() for _, text in lines if "algbw" in text.split()]
    warn_of_columns(path, chain.from_iterable(tables), COLUMNS)
    return trace_of(path, samples, _provenance(lines, group))


def _tests(path: str | Path, lines: Sequence[Line]) -> Iterator[list[Line]]:
    """The lines of each test, up to its closing mean."""
    test: list[Line] = []
    found = False
    for line in lines:
        test.append(line)
        if _END in line[1]:
            yield test
            test, found = [], True
    if any(_RANK.match(text) or "algbw" in text for _, text in test):
        raise FileError(path, f"line {lines[-1][0]}", lines[-1][1], f"the log is cut off: {_END!r} must follow")
    if not found:
        raise FileError(path, f"line {lines[-1][0]}", lines[-1][1], "no table of nccl-tests in this file")


def _ranks(path: str | Path, test: Sequence[Line]) -> dict[int, Rank]:
    ranks: dict[int, Rank] = {}
    for number, text in test:
        if match := _RANK.match(text):
            rank, host, device, gpu = match.groups()
            if int(rank) in ranks:
                raise FileError(path, f"line {number}: rank", int(rank), "is there twice in one test")
            ranks[int(rank)] = Rank(host, int(device), gpu)
            first = next(iter(ranks.values()))
            if gpu != first.gpu:
                raise FileError(path, f"line {number}: GPU", gpu, f"must be {first.gpu[:40]}, as of the ranks before")
    if not ranks:
        raise FileError(path, f"line {test[0][0]}: ranks", 0, "must be >= 1: no line '# Rank ...' in this test")
    return ranks


def _read_test(path: str | Path, test: Sequence[Line], ranks: dict[int, Rank]) -> list[Sample]:
    kind = _kind(path, test)
    device = f"gpu{next(iter(ranks.values())).device}"
    columns: list[str] = []
    samples: list[Sample] = []
    for number, text in test:
        cells = text.split()
        if "algbw" in cells:
            columns = _columns(path, number, text)
        elif columns and _is_row(cells):
            samples += _read_row(path, number, dict(_labelled(path, number, columns, cells)), kind, len(ranks), device)
    if not samples:
        raise FileError(path, f"line {test[-1][0]}", None, f"no size was measured in this test of {kind}")
    return samples


def _is_row(cells: Sequence[str]) -> bool:
    """Whether it begins with a number, or has a type where rows have it; other programs print between the rows."""
    return len(cells) > 0 and (re.fullmatch(r"-?\d+", cells[0]) is not None or "".join(cells[2:3]) in _ELEMENT_BYTES)


def _kind(path: str | Path, test: Sequence[Line]) -> str:
    """From the last program that is named before the table, else from the name of the file."""
    named = ""
    for _, text in test:
        if "algbw" in text:
            break
        for match in _PROGRAM.finditer(text):
            named = match[1]
    if named:
        kind = KINDS.get(named.replace("_", ""))
        if kind is None:
            raise FileError(path, f"line {test[0][0]}: collective", named, f"must be one of {', '.join(KINDS)}")
        return kind
    told = [kind for name, kind in KINDS.items() if name in re.sub("[^a-z]", "", Path(path).stem.lower())]
    if len(told) != 1:
        problem = f"the log does not say which: name the file after one of {', '.join(KINDS)}"
        raise FileError(path, f"line {test[0][0]}: collective", Path(path).name, problem)
    return told[0]


def _columns(path: str | Path, number: int, text: str) -> list[str]:
    """Names of the columns; of what comes twice the second is ``in_place``."""
    columns: list[str] = []
    for name in text.removeprefix("#").split():
        columns.append(f"{name} in_place" if name in columns else name)
    for name in ("size", "count", "type", "time"):
        if name not in columns:
            raise FileError(path, f"line {number}: columns", " ".join(columns), f"must have {name!r}")
    return columns


def _labelled(path: str | Path, number: int, columns: Sequence[str], cells: Sequence[str]) -> Iterator[tuple[str, str]]:
    if len(cells) != len(columns):
        raise FileError(path, f"line {number}", " ".join(cells), f"must have {len(columns)} values, has {len(cells)}")
    return zip(columns, cells, strict=True)


def _read_row(
    path: str | Path, number: int, row: dict[str, str], kind: str, num_ranks: int, device: str
) -> Iterator[Sample]:
    size = size_in_bytes(path, number, "size", row["size"])
    parts = num_ranks if kind in _DIVIDED else 1
    element_bytes = _ELEMENT_BYTES.get(row["type"])
    if element_bytes and size != size_in_bytes(path, number, "count", row["count"]) * element_bytes * parts:
        problem = (
            f"must be {row['count']} elements of {element_bytes} B, {parts} times, for {kind} of {num_ranks} ranks"
        )
        raise FileError(path, f"line {number}: size", size, problem)
    for placement, suffix in zip(PLACEMENTS, ("", " in_place"), strict=True):
        took = row.get(f"time{suffix}", "N/A")
        if took == "N/A":
            continue
        time_us = positive(path, number, "time", took)
        _check_row(path, number, row, suffix, size / time_us / 1e3)
        contributed = size // num_ranks if kind == "all_gather" else size
        yield Sample(
            kind="collective",
            name=kind,
            device=device,
            size_bytes=contributed,
            duration_s=time_us * 1e-6,
            work=placement,
        )


def _check_row(path: str | Path, number: int, row: dict[str, str], suffix: str, gb_per_s: float) -> None:
    wrong = row.get(f"#wrong{suffix}", "0")
    if wrong not in ("0", "N/A"):
        raise FileError(path, f"line {number}: #wrong", wrong, "must be 0: the results were wrong")
    told = row.get(f"algbw{suffix}", "N/A")
    try:
        agrees = told == "N/A" or abs(float(told) - gb_per_s) <= 0.006 + ROUNDING * gb_per_s
    except ValueError:
        agrees = False
    if not agrees:
        raise FileError(path, f"line {number}: algbw", told, f"must be size by time, {gb_per_s:.2f} GB/s")


def _provenance(lines: Sequence[Line], group: dict[int, Rank]) -> dict[str, str]:
    first = next(iter(group.values()))
    facts = {
        "format": "nccl-tests",
        "ranks": str(len(group)),
        "nodes": str(len({rank.host for rank in group.values()})),
        "gpus": f"{len(group)} x {first.gpu}",
        f"gpu{first.device}": first.gpu,
    }
    for _, text in lines:
        for name, pattern in _FACTS.items():
            if name not in facts and (match := pattern.search(text)):
                facts[name] = match[1]
        if match := _SETTING.search(text):
            facts[match[1]] = match[2]
    return facts
