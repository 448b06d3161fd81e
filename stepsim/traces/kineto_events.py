"""The events of a Kineto trace, each checked where it enters.

Kineto writes complete events (``"ph": "X"``) with times in microseconds. Its categories changed names over the years;
both generations are read. Categories that no reader of steps needs (Python frames, the profiler's own overhead,
annotations that Kineto projects onto the GPU) are ignored, and so are unknown ones.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeGuard

from stepsim.errors import FileError

ON_DEVICE = ("kernel", "collective", "copy", "memset")
"""Kinds that run on a stream of a device."""

CATEGORIES = {
    "kernel": "kernel",
    "memcpy": "copy",
    "gpu_memcpy": "copy",
    "memset": "memset",
    "gpu_memset": "memset",
    "runtime": "runtime",
    "cuda_runtime": "runtime",
    "cuda_driver": "runtime",
    "operator": "host",
    "cpu_op": "host",
    "user_annotation": "host",
    "cuda_sync": "note",
}
"""Lower-cased category to kind: those of `stepsim.traces.Trace`, and two that a reader resolves: ``runtime``, a call
whose meaning is in its name, and ``note``, what a call of the same correlation waited for."""

_LARGEST_US = 1e17
"""Year 5138 in microseconds; far beyond, float64 cannot tell one microsecond from the next."""


@dataclass(slots=True)
class Event:
    """One event. Times in microseconds on the clock of the file; ``place`` says where in the file it stands."""

    kind: str
    name: str
    start_us: float
    duration_us: float
    args: Mapping[str, Any]
    place: str
    correlation: int
    awaits: int = -1
    device: str = ""
    stream: int = -1
    thread: int = -1


def read_events(path: str | Path, entries: list[Any]) -> Iterator[Event]:
    """The complete events of known categories. Raises `FileError` for a field of a wrong type or an absurd value."""
    for number, entry in enumerate(entries):
        if not isinstance(entry, dict):
            raise FileError(path, f"traceEvents[{number}]", entry, "must be an object")
        category = entry.get("cat")
        if entry.get("ph") == "X" and isinstance(category, str):
            kind = CATEGORIES.get(category.lower())
            if kind is not None:
                yield _event(path, f"traceEvents[{number}]", kind, entry)


def _event(path: str | Path, place: str, kind: str, entry: Mapping[str, Any]) -> Event:
    name, args = entry.get("name"), entry.get("args", {})
    if not isinstance(name, str):
        raise FileError(path, f"{place}.name", name, "must be text")
    if not isinstance(args, dict):
        raise FileError(path, f"{place}.args", args, "must be an object")
    start_us = _time(path, place, "ts", entry)
    duration_us = _time(path, place, "dur", entry)
    if duration_us < 0:
        raise FileError(path, f"{place}.dur", duration_us, "must be >= 0 microseconds")
    event = Event(_kind(kind, name), name, start_us, duration_us, args, place, _correlation(args))
    if event.kind in ON_DEVICE:
        event.device = f"gpu{_integer(path, place, 'args.device', args.get('device', entry.get('pid')))}"
        event.stream = _integer(path, place, "args.stream", args.get("stream", entry.get("tid")))
    elif kind != "note":
        event.thread = _integer(path, place, "tid", entry.get("tid"))
    return event


def _kind(kind: str, name: str) -> str:
    if kind == "kernel" and "nccl" in name.lower():
        return "collective"
    if kind == "host" and name.startswith("ProfilerStep#"):
        return "step"
    return kind


def _time(path: str | Path, place: str, key: str, entry: Mapping[str, Any]) -> float:
    value = entry.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise FileError(path, f"{place}.{key}", value, f"must be a number of microseconds, not {_type(value)}")
    if not (math.isfinite(value) and abs(value) <= _LARGEST_US):
        raise FileError(path, f"{place}.{key}", value, f"must be within {_LARGEST_US:g} microseconds")
    return value


def _integer(path: str | Path, place: str, key: str, value: object) -> int:
    """An integer, also from text such as ``"1234"`` or ``"stream 7"``, which older traces have."""
    if isinstance(value, str):
        digits = value.removeprefix("stream ")
        if digits.isascii() and digits.removeprefix("-").isdigit() and len(digits) < 20:
            value = int(digits)
    if isinstance(value, bool) or not isinstance(value, int) or abs(value) >= 2**63:
        raise FileError(path, f"{place}.{key}", value, f"must be an integer, not {_type(value)}")
    return value


def _type(value: object) -> str:
    return "missing" if value is None else type(value).__name__


def _correlation(args: Mapping[str, Any]) -> int:
    """The id that ties a launch to what it launched; -1 for anything that is no id."""
    value = args.get("correlation")
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 2**63 else -1


def is_size(value: object) -> TypeGuard[int]:
    """Whether ``value`` can be a number of bytes or elements."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**53
