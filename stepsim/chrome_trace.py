"""Timelines as one Chrome trace, which Perfetto and chrome://tracing open.

A process for each timeline, a thread for each lane, an ``X`` event for each span, a counter for the memory of each
device, an instant for each mark, and an arrow (``s``, ``f``) for each dependency that crosses lanes. The format is the
"Trace Event Format" document of the Catapult project.
"""

import itertools
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from stepsim.errors import StepsimError
from stepsim.plan import Plan, TaskKind
from stepsim.tables import write_chunks
from stepsim.timeline import Timeline

Event = dict[str, Any]

BATCH = 10_000
"""Events that are in memory at once: a plan of millions of tasks has more than fit."""

NS_PER_US = 1000


def write_chrome_trace(
    path: str | Path, timelines: Mapping[str, Timeline], *, plans: Mapping[str, Plan] | None = None
) -> None:
    """Write ``timelines`` by label (predicted, measured) to ``path``: all of it, or nothing.

    A timeline whose plan is in ``plans`` (by the same label) gets arrows. Raises `StepsimError` if a plan is not the
    timeline's, `FileError` if ``path`` cannot be written.
    """
    known = {label: plan for label, plan in (plans or {}).items() if label in timelines}
    for label, plan in known.items():
        found, wanted = timelines[label].plan_hash, plan.content_hash
        if found != wanted:
            raise StepsimError(f"the timeline is of plan {found[:12]}, not of plan {wanted[:12]}")
    write_chunks(path, _json(timelines, known))


def _json(timelines: Mapping[str, Timeline], plans: Mapping[str, Plan]) -> Iterator[bytes]:
    """The text of the trace, batch by batch."""
    facts = {label: {"source": line.source, "plan": line.plan_hash} for label, line in timelines.items()}
    yield orjson.dumps({"displayTimeUnit": "ms", "otherData": facts, "traceEvents": []}).removesuffix(b"]}")
    separator = b""
    for batch in _batches(timelines, plans):
        yield separator + orjson.dumps(batch)[1:-1]
        separator = b","
    yield b"]}"


def _batches(timelines: Mapping[str, Timeline], plans: Mapping[str, Plan]) -> Iterator[list[Event]]:
    """Events, some at a time and never none; arrows are numbered through all timelines."""
    numbers = itertools.count()
    for process, (label, timeline) in enumerate(timelines.items(), start=1):
        yield list(_names(process, label, timeline))
        yield from _spans(process, timeline)
        yield from _memory(process, timeline)
        if len(timeline.marks):
            yield _marks(process, timeline)
        if label in plans:
            yield from _arrows(process, timeline, plans[label], numbers)


def _names(process: int, label: str, timeline: Timeline) -> Iterator[Event]:
    """Metadata: what processes and threads are called, and their order."""

    def fact(kind: str, thread: int, **arguments: object) -> Event:
        return {"ph": "M", "name": kind, "pid": process, "tid": thread, "args": arguments}

    yield fact("process_name", 0, name=label)
    yield fact("process_labels", 0, labels=timeline.source)
    yield fact("process_sort_index", 0, sort_index=process)
    for lane, name in enumerate(timeline.lanes):
        yield fact("thread_name", lane + 1, name=name)
        yield fact("thread_sort_index", lane + 1, sort_index=lane)


def _spans(process: int, timeline: Timeline) -> Iterator[list[Event]]:
    """Spans of a lane come in order of time. Lanes count from 1: thread 0 stands for the process."""
    spans, labels = timeline.spans, [kind.label for kind in TaskKind]
    start_ns, end_ns = _ns(spans.start_s), _ns(spans.end_s)
    order = np.lexsort((end_ns, start_ns, spans.lane))
    columns = (spans.name, spans.kind, spans.lane + 1, _us(start_ns), _us(end_ns - start_ns))
    for batch in _in_batches(order, *(column[order] for column in columns)):
        yield [
            {
                "ph": "X",
                "name": timeline.names[name],
                "cat": labels[kind],
                "pid": process,
                "tid": thread,
                "ts": ts,
                "dur": duration,
                "args": {"row": row},
            }
            for row, name, kind, thread, ts, duration in batch
        ]


def _memory(process: int, timeline: Timeline) -> Iterator[list[Event]]:
    steps, names = timeline.memory, [f"{device} memory" for device in timeline.devices]
    for batch in _in_batches(steps.device, _us(_ns(steps.time_s)), steps.resident_bytes):
        yield [
            {"ph": "C", "name": names[device], "pid": process, "ts": ts, "args": {"bytes": resident_bytes}}
            for device, ts, resident_bytes in batch
        ]


def _marks(process: int, timeline: Timeline) -> list[Event]:
    """Instants, drawn across all lanes of the process."""
    times = _us(_ns(timeline.marks.time_s)).tolist()
    return [
        {"ph": "i", "s": "p", "name": name, "pid": process, "tid": 0, "ts": ts}
        for name, ts in zip(timeline.marks.name, times, strict=True)
    ]


def _arrows(process: int, timeline: Timeline, plan: Plan, numbers: Iterator[int]) -> Iterator[list[Event]]:
    """From the end of a span to the start of one on another lane that depends on it.

    A viewer hangs an arrow on the spans around its two ends, and reads it in order of time. So it leaves in the last
    nanosecond of the first span; a row without duration has no place for it, and where the clocks of a measured
    timeline contradict the plan there is none.
    """
    lane, start_ns, end_ns = timeline.spans.lane, _ns(timeline.spans.start_s), _ns(timeline.spans.end_s)
    target, source = plan.tasks.dependencies.owners(), plan.tasks.dependencies.values
    lasts = end_ns > start_ns
    drawn = lasts[source] & lasts[target] & (lane[source] != lane[target]) & (end_ns[source] <= start_ns[target])
    source, target = source[drawn], target[drawn]
    leaves, arrives = _us(end_ns[source] - 1), _us(start_ns[target])
    for batch in _in_batches(lane[source] + 1, leaves, lane[target] + 1, arrives):
        events: list[Event] = []
        for (first, leave, then, arrive), number in zip(batch, numbers, strict=False):
            arrow = {"name": "dependency", "cat": "dependency", "pid": process, "id": number}
            events.append({**arrow, "ph": "s", "tid": first, "ts": leave})
            events.append({**arrow, "ph": "f", "bp": "e", "tid": then, "ts": arrive})
        yield events


def _in_batches(*columns: NDArray[Any]) -> Iterator[Iterator[tuple[Any, ...]]]:
    """Entries of all columns side by side, as plain numbers, `BATCH` at a time."""
    for begin in range(0, len(columns[0]), BATCH):
        yield zip(*(column[begin : begin + BATCH].tolist() for column in columns), strict=True)


def _ns(seconds: NDArray[np.float64]) -> NDArray[np.int64]:
    """Whole nanoseconds, as viewers keep them: rounding start and end alike leaves neighbours without overlap."""
    return np.rint(seconds * 1e9).astype(np.int64)


def _us(ns: NDArray[np.int64]) -> NDArray[np.float64]:
    return ns / NS_PER_US
