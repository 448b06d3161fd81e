"""Timelines as one Chrome trace, which Perfetto and chrome://tracing open.

A process for each timeline, a thread for each lane, an ``X`` event for each span, a counter for the memory of each
device, an instant for each mark, and an arrow (``s``, ``f``) for each dependency that crosses lanes. The format is the
"Trace Event Format" document of the Catapult project.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from stepsim.errors import StepsimError
from stepsim.plan import Plan, TaskKind
from stepsim.tables import write_bytes
from stepsim.timeline import Timeline

Event = dict[str, Any]

NS_PER_US = 1000


def write_chrome_trace(
    path: str | Path, timelines: Mapping[str, Timeline], *, plans: Mapping[str, Plan] | None = None
) -> None:
    """Write ``timelines`` by label (predicted, measured) to ``path``: all of it, or nothing.

    A timeline whose plan is in ``plans`` (by the same label) gets arrows. Raises `StepsimError` if a plan is not the
    timeline's, `FileError` if ``path`` cannot be written.
    """
    events: list[Event] = []
    for process, (label, timeline) in enumerate(timelines.items(), start=1):
        events += [*_names(process, label, timeline), *_spans(process, timeline)]
        events += [*_memory(process, timeline), *_marks(process, timeline)]
        if plans is not None and label in plans:
            events += _arrows(process, timeline, plans[label], first_id=len(events))
    facts = {label: {"source": line.source, "plan": line.plan_hash} for label, line in timelines.items()}
    body = {"displayTimeUnit": "ms", "otherData": facts, "traceEvents": events}
    write_bytes(path, orjson.dumps(body))


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


def _spans(process: int, timeline: Timeline) -> Iterator[Event]:
    """Spans of a lane come in order of time. Lanes count from 1: thread 0 stands for the process."""
    spans = timeline.spans
    start_ns, end_ns = _ns(spans.start_s), _ns(spans.end_s)
    for row in np.lexsort((end_ns, start_ns, spans.lane)).tolist():
        yield {
            "ph": "X",
            "name": timeline.names[spans.name[row]],
            "cat": TaskKind(int(spans.kind[row])).label,
            "pid": process,
            "tid": int(spans.lane[row]) + 1,
            "ts": int(start_ns[row]) / NS_PER_US,
            "dur": int(end_ns[row] - start_ns[row]) / NS_PER_US,
            "args": {"row": row},
        }


def _memory(process: int, timeline: Timeline) -> Iterator[Event]:
    steps = timeline.memory
    columns = zip(steps.device.tolist(), _ns(steps.time_s).tolist(), steps.resident_bytes.tolist(), strict=True)
    for device, time_ns, resident_bytes in columns:
        yield {
            "ph": "C",
            "name": f"{timeline.devices[device]} memory",
            "pid": process,
            "ts": time_ns / NS_PER_US,
            "args": {"bytes": resident_bytes},
        }


def _marks(process: int, timeline: Timeline) -> Iterator[Event]:
    """Instants, drawn across all lanes of the process."""
    marks = timeline.marks
    for name, time_ns in zip(marks.name, _ns(marks.time_s).tolist(), strict=True):
        yield {"ph": "i", "s": "p", "name": name, "pid": process, "tid": 0, "ts": time_ns / NS_PER_US}


def _arrows(process: int, timeline: Timeline, plan: Plan, *, first_id: int) -> Iterator[Event]:
    """From the end of a span to the start of one on another lane that depends on it.

    A viewer hangs an arrow on the spans around its two ends, and reads it in order of time. So it leaves in the last
    nanosecond of the first span; a row without duration has no place for it, and where the clocks of a measured
    timeline contradict the plan there is none.
    """
    if timeline.plan_hash != plan.content_hash:
        raise StepsimError(f"the timeline is of plan {timeline.plan_hash[:12]}, not of plan {plan.content_hash[:12]}")
    lane, start_ns, end_ns = timeline.spans.lane, _ns(timeline.spans.start_s), _ns(timeline.spans.end_s)
    target, source = plan.tasks.dependencies.owners(), plan.tasks.dependencies.values
    lasts = end_ns > start_ns
    drawn = lasts[source] & lasts[target] & (lane[source] != lane[target]) & (end_ns[source] <= start_ns[target])
    pairs = zip(source[drawn].tolist(), target[drawn].tolist(), strict=True)
    for number, (first, then) in enumerate(pairs, start=first_id):
        arrow = {"name": "dependency", "cat": "dependency", "pid": process, "id": number}
        yield {**arrow, "ph": "s", "tid": int(lane[first]) + 1, "ts": int(end_ns[first] - 1) / NS_PER_US}
        yield {**arrow, "ph": "f", "bp": "e", "tid": int(lane[then]) + 1, "ts": int(start_ns[then]) / NS_PER_US}


def _ns(seconds: NDArray[np.float64]) -> NDArray[np.int64]:
    """Whole nanoseconds, as viewers keep them: rounding start and end alike leaves neighbours without overlap."""
    return np.rint(seconds * 1e9).astype(np.int64)
