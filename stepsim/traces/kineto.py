"""Reader for PyTorch profiler (Kineto) traces: Chrome trace JSON, plain or gzipped."""

import gc
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from stepsim.traces.calls import kind_of_call
from stepsim.traces.event_stream import EventStream
from stepsim.traces.kineto_calls import tell_launches, tell_waits
from stepsim.traces.kineto_checks import check_kernels, check_spans, clip_overlaps, warn_of_clocks, without_duplicates
from stepsim.traces.kineto_events import EventReader
from stepsim.traces.kineto_facts import facts_of
from stepsim.traces.trace import ABSENT, COLUMNS, Trace

KNOWN_SCHEMA = 1
"""The ``schemaVersion`` that every version of Kineto has written so far."""

_ON_DEVICE = ("kernel", "collective", "copy", "memset")
_KINDS = (*_ON_DEVICE, "call", "launch", "sync", "record", "wait", "host", "step", "note")
_US = 1e-6


def read_kineto(path: str | Path) -> Trace:
    """The trace in the file ``path``. Times are seconds from its first event.

    Of runtime calls, those that launched something recorded on a device are launches; a kernel whose launch is not
    there was launched before the recording began. The file is read in blocks, so that memory holds its rows only.

    Raises `FileError` for a file that cannot be read or is no trace, without kernels or with kernels that lack
    correlation ids, or whose times make no sense (negative durations, kernels of one stream that overlap by more than
    10 microseconds). Warns, once of each, of a newer schema, events that stand there twice, clocks that jump, and sizes
    that can be none.
    """
    stream, reader = EventStream(path), EventReader(path)
    with _no_garbage_collection():
        chunks = [reader.columns(entries) for entries in stream]
    labels = _labels(reader)
    rows = without_duplicates(path, _in_time_order(chunks, labels))
    on_device = rows["kind"].isin(_ON_DEVICE)
    check_kernels(path, rows, on_device)
    check_spans(path, rows)
    warn_of_clocks(path, rows, on_device)
    _warn(path, stream.header.get("schemaVersion"), reader.odd_sizes)
    tell_waits(rows, reader.notes)
    tell_launches(rows, on_device)
    devices = sorted(rows.loc[on_device, "device"].unique())
    facts = facts_of(path, stream.header, devices)
    return Trace(events=clip_overlaps(path, _events(rows, labels), on_device), provenance=facts)


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """Parsed JSON has no cycles, and to look for them takes a third of the time of reading."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _labels(reader: EventReader) -> pd.DataFrame:
    """For each label the columns ``kind``, ``name``, ``source`` and ``destination``."""
    known = [(_kind(*label), label[1], *_memories(*label)) for label in reader.labels]
    return pd.DataFrame(known, columns=["kind", "name", "source", "destination"], dtype="str")


def _kind(holds: str, name: str) -> str:
    if holds == "kernel" and "nccl" in name.lower():
        return "collective"
    if holds == "host" and name.startswith("ProfilerStep#"):
        return "step"
    if holds == "call" and (told := kind_of_call(name)) != "host":
        return told
    return holds


_MEMORIES = {"device": "device", "array": "device", "pageable": "pageable", "pinned": "pinned"}


def _memories(holds: str, name: str) -> tuple[str, str]:
    """Where a copy comes from and goes to, as in ``Memcpy HtoD (Pageable -> Device)``."""
    source, arrow, destination = name.partition("(")[2].rstrip(")").lower().partition(" -> ")
    if holds != "copy" or not arrow:
        return "", ""
    return _MEMORIES.get(source, "host"), _MEMORIES.get(destination, "host")


def _in_time_order(chunks: list[dict[str, NDArray[Any]]], labels: pd.DataFrame) -> pd.DataFrame:
    """All rows but notes, with their ``kind``. Takes the columns out of ``chunks``, so that no two copies are held."""
    columns = {name: np.concatenate([chunk.pop(name) for chunk in chunks]) for name in list(chunks[0])}
    kinds = pd.Categorical(labels["kind"], categories=_KINDS)
    rows = pd.DataFrame(columns).assign(kind=kinds.take(columns["label"]))
    return rows[rows["kind"] != "note"].sort_values(["start_us", "correlation"], kind="stable", ignore_index=True)


def _events(rows: pd.DataFrame, labels: pd.DataFrame) -> pd.DataFrame:
    texts = {name: labels[name].take(rows["label"].to_numpy()).array for name in ("name", "source", "destination")}
    devices = rows["device"].map({device: f"gpu{device}" if device >= 0 else "" for device in rows["device"].unique()})
    times = {
        "start_s": (rows["start_us"] - rows["start_us"].iloc[0]) * _US,
        "duration_s": rows["duration_us"] * _US,
    }
    events = rows.assign(**texts, **times, device=devices, flop=ABSENT["flop"], work=ABSENT["work"])
    return events[list(COLUMNS)].astype(COLUMNS)


def _warn(path: str | Path, schema: object, odd_sizes: list[int]) -> None:
    if schema not in (None, KNOWN_SCHEMA):
        problem = f"schemaVersion: {schema!r:.40} is not {KNOWN_SCHEMA}: read as far as it is known"
        warnings.warn(f"{path}: {problem}", stacklevel=3)
    if odd_sizes:
        problem = f"{len(odd_sizes)} sizes are no number of bytes or elements of a known type: read as 0"
        warnings.warn(f"{path}: traceEvents[{odd_sizes[0]}].args: {problem}", stacklevel=3)
