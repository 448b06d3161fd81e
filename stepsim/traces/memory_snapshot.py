"""Reader for memory snapshots of PyTorch: the pickle that ``torch.cuda.memory._dump_snapshot`` writes.

Meaning of the fields: pytorch/pytorch, torch/cuda/memory.py (`_snapshot`). The pickle is read by a machine that can
build plain containers and nothing else. Stack frames are left out.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from stepsim.errors import FileError
from stepsim.traces.log_lines import warn_of_columns
from stepsim.traces.plain_pickle import load_plain, looks_like_pickle

if TYPE_CHECKING:
    from stepsim.traces.allocations import AllocatorTrace

Fields = Mapping[str, Any]

MOST_ROWS = 2**22
"""Blocks or events, four million. PyTorch keeps as many events as it is told, mostly 100,000."""

_SNAPSHOT = {"segments", "device_traces", "allocator_settings", "external_annotations"}
_SEGMENT = {"device", "address", "total_size", "allocated_size", "active_size", "requested_size", "stream"}
_SEGMENT |= {"segment_type", "segment_pool_id", "is_expandable", "frames", "blocks"}
_BLOCK = {"address", "size", "requested_size", "state", "frames", "history"}
_EVENT = {"action", "addr", "device_free", "size", "stream", "time_us", "frames", "compile_context", "user_metadata"}
_KNOWN = _SNAPSHOT | _SEGMENT | _BLOCK | _EVENT
"""Fields that versions up to 2.9 of PyTorch write, whether read or not."""

_LARGEST = 2**63 - 1
_SHARED_POOL = (0, 0)


def looks_like_memory_snapshot(head: bytes) -> bool:
    return looks_like_pickle(head) and b"segments" in head and (b"device_traces" in head or b"total_size" in head)


def read_memory_snapshot(path: str | Path, *, device: int | None = None) -> "AllocatorTrace":
    """The recorded events and the segments of one device, for `stepsim.traces.allocations.replay_allocations`.

    ``device`` may be left out where only one has any. Streams are numbered in the order of their handles.

    Raises `FileError` for a pickle that holds anything but plain containers, for fields that are missing or no numbers,
    and for what the published rules do not cover: private pools, expandable segments, segments that were freed.
    Warns once of fields that are not known.
    """
    from stepsim.traces.allocations import allocator_trace

    snapshot = load_plain(path)
    if not isinstance(snapshot, dict):
        raise FileError(path, "snapshot", type(snapshot).__name__, "must be a dictionary")
    segments = list(_listed(path, snapshot, "", "segments"))
    traces = _list(path, snapshot, "", "device_traces")
    number = _only_device(path, segments, traces) if device is None else device
    events = _events(path, number, traces)
    blocks = _blocks(path, [(place, segment) for place, segment in segments if segment.get("device", 0) == number])
    if events.empty and blocks.empty:
        raise FileError(path, "device", number, "has neither events nor segments")
    warn_of_columns(path, _fields(snapshot, number), _KNOWN, what="fields")
    handles = {handle: name for name, handle in enumerate(sorted({*events["stream"], *blocks["stream"]}))}
    events["stream"], blocks["stream"] = events["stream"].map(handles), blocks["stream"].map(handles)
    return allocator_trace(path, events, path, blocks)


def _fields(snapshot: Fields, device: int) -> Iterator[str]:
    """Of the snapshot, and of all segments, blocks and events of a ``device``, once these have been checked."""
    yield from snapshot
    for segment in snapshot["segments"]:
        if segment.get("device", 0) == device:
            yield from chain(segment, *segment["blocks"])
    for events in snapshot["device_traces"][device : device + 1]:
        yield from chain.from_iterable(events)


def _only_device(path: str | Path, segments: Sequence[tuple[str, Fields]], traces: Sequence[Any]) -> int:
    seen = {_number(path, segment, place, "device") if "device" in segment else 0 for place, segment in segments}
    seen |= {number for number, trace in enumerate(traces) if trace}
    if len(seen) != 1:
        shown = ", ".join(map(str, sorted(seen)[:8])) or "none"
        raise FileError(path, "device", None, f"must be told: the snapshot has events or segments of {shown}")
    return seen.pop()


def _events(path: str | Path, device: int, traces: Sequence[Any]) -> pd.DataFrame:
    """Columns action, addr, size, stream. The index is the place in the recording; a snapshot taken is no event."""
    rows = {}
    if 0 <= device < len(traces):
        field = f"device_traces[{device}]"
        for number, (place, entry) in enumerate(_listed(path, {field: traces[device]}, "", field)):
            action = _text(path, entry, place, "action")
            if action != "snapshot":
                rows[number] = (action, *(_number(path, entry, place, key) for key in ("addr", "size", "stream")))
    columns = ["action", "addr", "size", "stream"]
    return pd.DataFrame.from_dict(rows, orient="index", columns=columns).astype(dict.fromkeys(columns[1:], "int64"))


def _blocks(path: str | Path, segments: Sequence[tuple[str, Fields]]) -> pd.DataFrame:
    """Columns segment, total, type, stream, block_size, state: a row a block."""
    rows: list[tuple[object, ...]] = []
    for place, segment in segments:
        _check_rules(path, segment, place)
        of_segment = (
            _number(path, segment, place, "address"),
            _number(path, segment, place, "total_size"),
            _text(path, segment, place, "segment_type"),
            _number(path, segment, place, "stream"),
        )
        for where, block in _listed(path, segment, place, "blocks"):
            rows.append((*of_segment, _number(path, block, where, "size"), _text(path, block, where, "state")))
        if len(rows) > MOST_ROWS:
            raise FileError(path, f"{place}.blocks", len(rows), f"must be at most {MOST_ROWS} in all")
    table = pd.DataFrame(rows, columns=["segment", "total", "type", "stream", "block_size", "state"])
    return table.astype(dict.fromkeys(("segment", "total", "stream", "block_size"), "int64"))


def _check_rules(path: str | Path, segment: Fields, place: str) -> None:
    if segment.get("is_expandable"):
        raise FileError(path, f"{place}.is_expandable", True, "must be false: expandable segments have other rules")
    if segment.get("segment_pool_id", _SHARED_POOL) != _SHARED_POOL:
        raise FileError(path, f"{place}.segment_pool_id", None, "must be (0, 0): private pools have other rules")


def _listed(path: str | Path, owner: Fields, place: str, key: str) -> Iterator[tuple[str, Fields]]:
    """The dictionaries in a list, each with its place in the file."""
    entries = _list(path, owner, place, key)
    for number, entry in enumerate(entries):
        where = f"{_field(place, key)}[{number}]"
        if not isinstance(entry, dict):
            raise FileError(path, where, type(entry).__name__, "must be a dictionary")
        yield where, entry


def _list(path: str | Path, owner: Fields, place: str, key: str) -> list[Any]:
    value = _value(path, owner, place, key)
    if not isinstance(value, list):
        raise FileError(path, _field(place, key), type(value).__name__, "must be a list")
    if len(value) > MOST_ROWS:
        raise FileError(path, _field(place, key), len(value), f"must have at most {MOST_ROWS} entries")
    return value


def _number(path: str | Path, owner: Fields, place: str, key: str) -> int:
    value = _value(path, owner, place, key)
    if type(value) is not int or not 0 <= value <= _LARGEST:
        shown = value if isinstance(value, int | float | str) else type(value).__name__
        raise FileError(path, _field(place, key), shown, "must be a whole number of 63 bits")
    return value


def _text(path: str | Path, owner: Fields, place: str, key: str) -> str:
    value = _value(path, owner, place, key)
    if not isinstance(value, str) or not value.isascii():
        raise FileError(path, _field(place, key), type(value).__name__, "must be a string of ASCII")
    return value


def _value(path: str | Path, owner: Fields, place: str, key: str) -> Any:
    if key not in owner:
        raise FileError(path, _field(place, key), None, "is missing: this is no memory snapshot")
    return owner[key]


def _field(place: str, key: str) -> str:
    return f"{place}.{key}" if place else key
