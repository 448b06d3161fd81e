"""What readers of text logs share: lines with their numbers, values with their errors, and samples as a trace."""

import math
import warnings
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from stepsim.errors import FileError
from stepsim.traces.trace import Trace, events_of
from stepsim.traces.whole_files import read_whole

LARGEST_BYTES = 2**50
"""A pebibyte: no machine moves more at once, so a larger size is a misread one."""

LARGEST_FILE_BYTES = 2**26
MOST_LINES = 2**20
"""Unzipped. Logs and graphs have some thousand lines: larger, it is something else or a bomb."""

Line = tuple[int, str]
"""Number in the file, from 1, and text without the spaces around it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One measured operation. ``beside`` says that it began together with the one before it."""

    kind: str
    name: str
    device: str
    size_bytes: int
    duration_s: float
    source: str = ""
    destination: str = ""
    work: str = ""
    beside: bool = False


def read_lines(path: str | Path) -> list[Line]:
    """The lines of a text file, plain or gzipped.

    Raises `FileError` for a file that cannot be read, is empty, is no text, or holds more than `LARGEST_FILE_BYTES`
    or `MOST_LINES`.
    """
    content = read_whole(path, LARGEST_FILE_BYTES)
    if not content.strip():
        raise FileError(path, "line 1", "", "the file is empty")
    if b"\0" in content:
        raise FileError(path, f"line {1 + content[: content.index(0)].count(10)}", "\0", "is no text")
    num_lines = content.count(b"\n") + content.count(b"\r")
    if num_lines > MOST_LINES:
        raise FileError(path, "lines", num_lines, f"must be at most {MOST_LINES}")
    return list(enumerate(map(str.strip, content.decode(errors="replace").splitlines()), start=1))


def warn_of_columns(path: str | Path, columns: Iterable[str], known: Collection[str], *, what: str = "columns") -> None:
    """One warning for all ``columns`` that are not ``known``: a newer version may have added them.

    ``what`` is what the format calls them.
    """
    new = sorted(set(columns) - set(known))
    if new:
        told = ", ".join(map(repr, new))[:80]
        warnings.warn(f"{path}: {what} that are not known are left out: {told}", stacklevel=3)


def positive(path: str | Path, number: int, field: str, text: str) -> float:
    """The number > 0 that ``text`` on line ``number`` is."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise FileError(path, f"line {number}: {field}", text, "must be a number > 0")
    return value


def amount(path: str | Path, number: int, field: str, text: str, largest: float) -> float:
    """The number from 0 to ``largest`` that ``text`` on line ``number`` is."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value <= largest:
        raise FileError(path, f"line {number}: {field}", text, f"must be a number from 0 to {largest:g}")
    return value


def size_in_bytes(path: str | Path, number: int, field: str, text: str) -> int:
    """The whole number of bytes from 0 to `LARGEST_BYTES` that ``text`` is."""
    size = int(text) if text.isascii() and text.isdigit() and len(text) < 20 else -1
    if not 0 <= size <= LARGEST_BYTES:
        raise FileError(path, f"line {number}: {field}", text, f"must be a whole number of bytes up to {LARGEST_BYTES}")
    return size


def trace_of(path: str | Path, samples: Iterable[Sample], facts: Mapping[str, str]) -> Trace:
    """The samples one behind the other, because such logs tell how long things took and not when they began."""
    start_s, now_s, rows = 0.0, 0.0, []
    for sample in samples:
        start_s = start_s if sample.beside else now_s
        now_s = max(now_s, start_s + sample.duration_s)
        rows.append(
            {
                "kind": sample.kind,
                "name": sample.name,
                "device": sample.device,
                "start_s": start_s,
                "duration_s": sample.duration_s,
                "size_bytes": sample.size_bytes,
                "source": sample.source,
                "destination": sample.destination,
                "work": sample.work,
            }
        )
    provenance = {"file": Path(path).name, "start_s": "not recorded: one behind the other", **facts}
    return Trace(events=events_of(rows), provenance=provenance)
