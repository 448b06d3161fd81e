"""Which format a file of measurements has, by its content, and what reads it."""

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NoReturn

from stepsim.errors import FileError
from stepsim.traces.bandwidth_logs import looks_like_bandwidth_log, read_bandwidth_log
from stepsim.traces.chakra import looks_like_chakra, read_chakra
from stepsim.traces.execution_trace import looks_like_execution_trace, refuse_execution_trace
from stepsim.traces.kineto import read_kineto
from stepsim.traces.memory_snapshot import looks_like_memory_snapshot
from stepsim.traces.memory_timeline import looks_like_memory_timeline
from stepsim.traces.nccl_tests import looks_like_nccl_tests, read_nccl_tests
from stepsim.traces.nsys import looks_like_nsys, read_nsys
from stepsim.traces.pipedream import looks_like_pipedream, read_pipedream_trace
from stepsim.traces.trace import Trace
from stepsim.traces.triosim import looks_like_triosim, read_triosim

HEAD_BYTES = 2**18
"""What is looked at, unzipped: more than the headers that any of the formats has before its first event."""


@dataclass(frozen=True, slots=True)
class Format:
    """``looks_like`` sees the first `HEAD_BYTES`, unzipped, and must not raise; ``read`` takes the path."""

    name: str
    looks_like: Callable[[bytes], bool]
    read: Callable[[str | Path], Trace]


def _looks_like_kineto(head: bytes) -> bool:
    opens = head.lstrip()[:1]
    return opens in (b"{", b"[") and any(key in head for key in (b'"traceEvents"', b'"schemaVersion"', b'"ph"'))


def _refuse(form: str, path: str | Path) -> NoReturn:
    raise FileError(path, "times", None, f"are not in a {form}: stepsim traces show tells what it holds")


FORMATS = (
    Format("stepsim trace", lambda head: head.startswith(b"PAR1"), Trace.load),
    Format("Kineto trace", _looks_like_kineto, read_kineto),
    Format("nccl-tests log", looks_like_nccl_tests, read_nccl_tests),
    Format("bandwidth log", looks_like_bandwidth_log, read_bandwidth_log),
    Format("PipeDream graph", looks_like_pipedream, read_pipedream_trace),
    Format("TrioSim trace", looks_like_triosim, read_triosim),
    Format("Nsight Systems export", looks_like_nsys, read_nsys),
    Format("Chakra trace", looks_like_chakra, read_chakra),
    Format("PyTorch execution trace", looks_like_execution_trace, refuse_execution_trace),
    Format("PyTorch memory snapshot", looks_like_memory_snapshot, partial(_refuse, "PyTorch memory snapshot")),
    Format("PyTorch memory timeline", looks_like_memory_timeline, partial(_refuse, "PyTorch memory timeline")),
)
"""The first that a file looks like reads it. A new reader joins with one line."""


def read_any(path: str | Path) -> Trace:
    """The trace in the file ``path``, whatever its format. Raises `FileError` for none of `FORMATS`."""
    return format_of(path).read(path)


def format_of(path: str | Path) -> Format:
    """Told by content; names of files say nothing."""
    head = head_of(path)
    form = form_of(head)
    if form is None:
        raise FileError(path, "format", head[:20], f"must be one of {', '.join(form.name for form in FORMATS)}")
    return form


def form_of(head: bytes) -> Format | None:
    """The format of a file that begins with ``head``; None for one that is not known."""
    return next((form for form in FORMATS if form.looks_like(head)), None)


def head_of(path: str | Path) -> bytes:
    """The first `HEAD_BYTES`, unzipped. Raises `FileError` for a file that is empty or cannot be read."""
    try:
        with Path(path).open("rb") as file:
            head = file.read(HEAD_BYTES)
    except OSError as error:
        raise FileError(path, "file", None, f"cannot be read: {error.strerror}") from error
    if not head:
        raise FileError(path, "file", None, "is empty")
    if head[:2] != b"\x1f\x8b":
        return head
    try:
        return zlib.decompressobj(wbits=31).decompress(head, HEAD_BYTES)
    except zlib.error as error:
        raise FileError(path, "gzip", None, f"is damaged: {error}") from error
