"""Reader for PyTorch profiler (Kineto) traces: Chrome trace JSON, plain or gzipped."""

import gzip
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pandas as pd

from stepsim.errors import FileError
from stepsim.traces.calls import NO_STREAM, kind_of_call
from stepsim.traces.kineto_events import ON_DEVICE, Event, is_size, read_events
from stepsim.traces.trace import COLUMNS, Trace

CLIPPED_OVERLAP_S = 10e-6
"""What runs on one stream cannot overlap; rounded clocks make it seem so by less than this."""

LONGEST_TRACE_US = 1e12
"""Eleven days. Farther apart, events are not of one recording, and float64 seconds lose the nanoseconds."""

_ROUNDING_S = 1e-9
"""Kineto's finest digit, far above the rounding of float64 seconds."""

_US = 1e-6


def read_kineto(path: str | Path) -> Trace:
    """The trace in the file ``path``. Times are seconds from its first event.

    Of runtime calls, those that launched something recorded on a device are launches; a kernel whose launch is not
    there was launched before the recording began. Raises `FileError` for a file that cannot be read or is no trace,
    without kernels or with kernels that lack correlation ids, or whose times make no sense (negative durations, kernels
    of one stream that overlap by more than 10 microseconds).
    """
    document = _parse(path)
    entries = document.get("traceEvents") if isinstance(document, dict) else document
    if not isinstance(entries, list):
        raise FileError(path, "traceEvents", None, "is missing: this is no Kineto trace")
    events = list(read_events(path, entries))
    _check_kernels(path, events)
    _check_spans(path, events)
    rows = _frame(_resolve_runtime(events))
    header = document if isinstance(document, dict) else {}
    return Trace(events=_without_overlaps(path, rows), provenance=_provenance(path, header, rows))


def _parse(path: str | Path) -> Any:
    """The parsed JSON. Gzip is told by its first two bytes, not by the file's name."""
    try:
        content = Path(path).read_bytes()
        if content[:2] == b"\x1f\x8b":
            content = gzip.decompress(content)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise FileError(path, "gzip", None, f"is truncated or damaged: {error}") from error
    except OSError as error:
        raise FileError(path, "file", None, f"cannot be read: {error.strerror}") from error
    try:
        return orjson.loads(content)
    except orjson.JSONDecodeError as error:
        raise FileError(path, "file", None, f"is not JSON: {error}") from error


def _check_kernels(path: str | Path, events: list[Event]) -> None:
    on_device = [event for event in events if event.kind in ON_DEVICE]
    if not any(event.kind in ("kernel", "collective") for event in on_device):
        raise FileError(path, "kernels", 0, "must be >= 1: nothing was recorded on a GPU")
    missing = [event for event in on_device if event.correlation < 0]
    if missing:
        field = f"{missing[0].place}.args.correlation"
        problem = f"must be a number > 0; {len(missing)} of {len(on_device)} kernels and copies lack it"
        raise FileError(path, field, missing[0].args.get("correlation"), problem)


def _check_spans(path: str | Path, events: list[Event]) -> None:
    """What is compared with a simulation must last: the steps, and the whole; but no longer than a recording can."""
    for event in events:
        if event.kind == "step" and event.duration_us == 0:
            raise FileError(path, f"{event.place}.dur", 0, f"must be > 0 for step {event.name!r}")
    first = min(events, key=lambda event: event.start_us)
    last = max(events, key=lambda event: event.start_us + event.duration_us)
    span_us = last.start_us + last.duration_us - first.start_us
    if span_us <= 0:
        raise FileError(path, f"{last.place}.dur", 0, "must be > 0 for some event: the trace spans no time")
    if span_us > LONGEST_TRACE_US:
        problem = f"must be within {LONGEST_TRACE_US:g} microseconds of the end of {last.place}"
        raise FileError(path, f"{first.place}.ts", first.start_us, problem)


def _resolve_runtime(events: list[Event]) -> list[Event]:
    """Runtime calls become syncs, waits, records, launches, or host work.

    Newer traces say in events of their own (category ``cuda_sync``) which stream, and which recorded event, a
    synchronisation or a wait was for.
    """
    launched = {event.correlation for event in events if event.kind in ON_DEVICE}
    notes = {event.correlation: event.args for event in events if event.kind == "note" and event.correlation > 0}
    recorded = {_number(args, _RECORD): _stream(args, "wait_on_stream") for args in notes.values()}
    kept = [event for event in events if event.kind != "note"]
    for event in kept:
        if event.kind == "runtime":
            event.kind = kind_of_call(event.name)
            if event.kind == "host" and event.correlation in launched:
                event.kind = "launch"
            note = notes.get(event.correlation, {})
            event.awaits = _number(note, _RECORD)
            if event.kind == "sync":
                event.stream = _stream(note, "wait_on_stream", "stream")
            elif event.kind == "wait":
                event.stream = _stream(note, "stream")
            elif event.kind == "record":
                event.stream = recorded.get(event.correlation, -1)
    return kept


_RECORD = "wait_on_cuda_event_record_corr_id"
"""Names the call that recorded the event, by its correlation."""


def _number(args: Mapping[str, Any], key: str) -> int:
    value = args.get(key)
    return value if is_size(value) and value > 0 else -1


def _stream(args: Mapping[str, Any], *keys: str) -> int:
    """The first of ``keys`` that is there, where it names one stream."""
    value = next((args[key] for key in keys if key in args), None)
    return value if is_size(value) and value < NO_STREAM else -1


def _frame(events: list[Event]) -> pd.DataFrame:
    memories = [_memories(event) for event in events]
    first_us = min(event.start_us for event in events)
    columns = {
        "kind": [event.kind for event in events],
        "name": [event.name for event in events],
        "device": [event.device for event in events],
        "stream": [event.stream for event in events],
        "thread": [event.thread for event in events],
        "start_s": [(event.start_us - first_us) * _US for event in events],
        "duration_s": [event.duration_us * _US for event in events],
        "correlation": [event.correlation for event in events],
        "awaits": [event.awaits for event in events],
        "size_bytes": [_size_bytes(event) for event in events],
        "flop": [0] * len(events),
        "source": [source for source, _ in memories],
        "destination": [destination for _, destination in memories],
        "work": [""] * len(events),
    }
    frame = pd.DataFrame(columns).astype(COLUMNS)
    return frame.sort_values(["start_s", "correlation"], kind="stable", ignore_index=True)


_MEMORIES = {"device": "device", "array": "device", "pageable": "pageable", "pinned": "pinned"}


def _memories(event: Event) -> tuple[str, str]:
    """Where a copy comes from and goes to, as in ``Memcpy HtoD (Pageable -> Device)``."""
    source, arrow, destination = event.name.partition("(")[2].rstrip(")").lower().partition(" -> ")
    if event.kind != "copy" or not arrow:
        return "", ""
    return _MEMORIES.get(source, "host"), _MEMORIES.get(destination, "host")


_ELEMENT_BYTES = {
    **dict.fromkeys(("byte", "char", "bool"), 1),
    **dict.fromkeys(("half", "bfloat16", "short"), 2),
    **dict.fromkeys(("float", "int"), 4),
    **dict.fromkeys(("double", "long"), 8),
}
"""PyTorch scalar types as Kineto spells them in the arguments of NCCL kernels."""


def _size_bytes(event: Event) -> int:
    """Bytes of a copy or memset; of a collective what one member contributes, where the trace says it."""
    size = event.args.get("bytes") if event.kind in ("copy", "memset") else None
    if event.kind == "collective" and is_size(event.args.get("In msg nelems")):
        size = event.args["In msg nelems"] * _ELEMENT_BYTES.get(str(event.args.get("dtype")).lower(), 0)
    return size if size is not None and is_size(size) else 0


def _without_overlaps(path: str | Path, rows: pd.DataFrame) -> pd.DataFrame:
    """End each row of a stream where the next one starts, if it seems to run a little longer."""
    for (device, stream), on_stream in rows[rows["kind"].isin(ON_DEVICE)].groupby(["device", "stream"]):
        start_s, duration_s = (on_stream[name].to_numpy() for name in ("start_s", "duration_s"))
        overlap_s = np.maximum.accumulate(start_s + duration_s)[:-1] - start_s[1:]
        if overlap_s.max(initial=0.0) > CLIPPED_OVERLAP_S + _ROUNDING_S:
            worst = int(np.argmax(overlap_s))
            second = on_stream.iloc[worst + 1]
            what = f"{second['name'][:40]!r} at {second['start_s']:.6f} s overlaps an earlier row by more than 10 us"
            raise FileError(path, f"{device} stream {stream}", f"{overlap_s[worst] / _US:.1f} us", what)
        rows.loc[on_stream.index[:-1], "duration_s"] = np.minimum(duration_s[:-1], np.diff(start_s))
    return rows


def _provenance(path: str | Path, header: Mapping[str, Any], rows: pd.DataFrame) -> dict[str, str]:
    """Text facts: format, file, versions, place in a distributed job, and each GPU's name and memory."""
    facts = {"format": "kineto", "file": Path(path).name}
    for key, value in header.items():
        if key.endswith("_version") or key in ("schemaVersion", "baseTimeNanoseconds"):
            facts[key] = str(value)
    distributed = header.get("distributedInfo")
    if isinstance(distributed, dict):
        facts |= {key: str(distributed[key]) for key in ("backend", "rank", "world_size") if key in distributed}
    listed = header.get("deviceProperties")
    known = [entry for entry in listed if isinstance(entry, dict)] if isinstance(listed, list) else []
    for device in sorted(set(rows["device"]) - {""}):
        facts |= _gpu_facts(device, known)
    return facts


def _gpu_facts(device: str, known: list[dict[str, Any]]) -> dict[str, str]:
    """By id, or from the only entry: on AMD the ids of kernels count host processors too."""
    of_id = [entry for entry in known if f"gpu{entry.get('id')}" == device] or (known if len(known) == 1 else [])
    if not of_id:
        return {device: "not named in the file"}
    facts = {device: str(of_id[0].get("name"))}
    memory_bytes = of_id[0].get("totalGlobalMem")
    if is_size(memory_bytes) and memory_bytes:
        facts[f"{device} memory_bytes"] = str(memory_bytes)
    return facts
