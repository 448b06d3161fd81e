"""What the host threads of a trace did, moment by moment: launches, synchronisations, step borders, hand-overs."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import pandas as pd

from stepsim.timeline import end_mark
from stepsim.traces.handover import HostEvents, handovers, of_engine
from stepsim.traces.intervals import intervals_of
from stepsim.traces.trace import Trace

ON_DEVICE = ("kernel", "collective", "copy", "memset")
CALLS = ("launch", "sync", "record", "wait")
ON_HOST = ("host", *CALLS, "step")

DECIMALS = 12
"""Profilers write whole nanoseconds: what differs by less than a picosecond is one instant."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceRow:
    """A kernel, collective, copy or memset as recorded."""

    kind: str
    name: str
    device: str
    stream: int
    start_s: float
    end_s: float
    size_bytes: int
    source: str
    destination: str

    @property
    def lane(self) -> tuple[str, int]:
        return self.device, self.stream


@dataclass(slots=True)
class Launch:
    """A runtime call and what it put on streams: mostly one row, many for a graph."""

    thread: int
    start_s: float
    end_s: float
    name: str
    rows: list[DeviceRow] = field(default_factory=list)
    rank: ClassVar[int] = 5


@dataclass(frozen=True, slots=True)
class Sync:
    """A runtime call that waits for a stream, a device or an event.

    ``stream`` and ``awaits``, the `Record` of the event, are -1 where they are not recorded.
    """

    thread: int
    start_s: float
    end_s: float
    name: str
    stream: int
    awaits: int
    rank: ClassVar[int] = 5


@dataclass(frozen=True, slots=True)
class Record:
    """A runtime call that marks how far ``stream`` has come, for a `Wait` or `Sync` to refer to by ``number``."""

    thread: int
    start_s: float
    stream: int
    number: int
    rank: ClassVar[int] = 5


@dataclass(frozen=True, slots=True)
class Wait:
    """A runtime call that lets ``stream`` go on only behind the `Record` ``awaits``; -1 where they are not recorded."""

    thread: int
    start_s: float
    stream: int
    awaits: int
    rank: ClassVar[int] = 5


@dataclass(frozen=True, slots=True)
class Border:
    """Begin or end of a step."""

    thread: int
    start_s: float
    mark: str
    rank: ClassVar[int] = 2


@dataclass(frozen=True, slots=True)
class Give:
    """The main thread starts to wait (hand-over ``number``)."""

    thread: int
    start_s: float
    number: int
    rank: ClassVar[int] = 3


@dataclass(frozen=True, slots=True)
class Wake:
    """Another thread begins what the main thread waits for, which gave the turn at ``give_s``."""

    thread: int
    start_s: float
    number: int
    give_s: float
    rank: ClassVar[int] = 4


@dataclass(frozen=True, slots=True)
class Done:
    """Another thread has done what the main thread waits for."""

    thread: int
    start_s: float
    number: int
    rank: ClassVar[int] = 0


@dataclass(frozen=True, slots=True)
class Take:
    """The main thread goes on."""

    thread: int
    start_s: float
    number: int
    rank: ClassVar[int] = 1


Moment = Launch | Sync | Record | Wait | Border | Give | Wake | Done | Take
"""``rank`` orders moments of one instant: ends before begins, and a hand-over before what it sets off."""


@dataclass(frozen=True, kw_only=True)
class Recording:
    """Moments in time order, what was launched before them, and the last instant of each thread, main thread first."""

    moments: list[Moment]
    launched_before: list[DeviceRow]
    thread_end_s: dict[int, float]


def recording_of(trace: Trace) -> Recording:
    """Of host threads, those that launch or carry steps count; the main thread carries the steps, or lasts longest."""
    start_s, end_s = (np.round(times_s, DECIMALS) for times_s in intervals_of(trace.events))
    events = trace.events.assign(start_s=start_s, end_s=end_s)
    launches, before = _launches(events)
    steps = events[events["kind"] == "step"]
    acting = {launch.thread for launch in launches} | set(steps["thread"].tolist())
    on_host = events[events["kind"].isin(ON_HOST) & events["thread"].isin(acting)]
    rows_of = {int(str(thread)): rows for thread, rows in on_host.groupby("thread")}
    threads = {thread: _host_events(rows) for thread, rows in rows_of.items()}
    main = int(steps["thread"].iloc[0]) if len(steps) else max(threads, key=lambda t: threads[t].span_s, default=-1)
    moments = [
        *launches,
        *_calls(Sync, on_host, "sync", "thread", "start_s", "end_s", "name", "stream", "awaits"),
        *_calls(Record, on_host, "record", "thread", "start_s", "stream", "correlation"),
        *_calls(Wait, on_host, "wait", "thread", "start_s", "stream", "awaits"),
        *_borders(steps),
        *(_turns(rows_of, main) if main in rows_of else ()),
    ]
    ends = {thread: float(rows.end_s.max()) for thread, rows in threads.items()}
    return Recording(
        moments=sorted(moments, key=lambda moment: (moment.start_s, moment.rank)),
        launched_before=before,
        thread_end_s={main: ends.get(main, 0.0), **ends},
    )


def _launches(events: pd.DataFrame) -> tuple[list[Launch], list[DeviceRow]]:
    """Launches with their rows, and the rows that come before any launch on their stream.

    A later row without a recorded launch (the recording dropped it) joins the launch of its predecessor on the stream.
    """
    calls = events[events["kind"] == "launch"]
    columns = (calls[name].tolist() for name in ("correlation", "thread", "start_s", "end_s", "name"))
    by_correlation: dict[int, Launch] = {}
    for correlation, *call in zip(*columns, strict=True):
        by_correlation.setdefault(correlation, Launch(*call))
    latest: dict[tuple[str, int], Launch] = {}
    before: list[DeviceRow] = []
    for correlation, row in _device_rows(events):
        launch = by_correlation.get(correlation, latest.get(row.lane))
        if launch is None:
            before.append(row)
        else:
            launch.rows.append(row)
            latest[row.lane] = launch
    return [launch for launch in by_correlation.values() if launch.rows], before


def _device_rows(events: pd.DataFrame) -> Iterator[tuple[int, DeviceRow]]:
    names = ("kind", "name", "device", "stream", "start_s", "end_s", "size_bytes", "source", "destination")
    rows = events[events["kind"].isin(ON_DEVICE)]
    columns = (rows[name].tolist() for name in ("correlation", *names))
    for correlation, *values in zip(*columns, strict=True):
        yield correlation, DeviceRow(**dict(zip(names, values, strict=True)))


def _calls(make: Callable[..., Moment], on_host: pd.DataFrame, kind: str, *names: str) -> Iterator[Moment]:
    rows = on_host[on_host["kind"] == kind]
    return (make(*values) for values in zip(*(rows[name].tolist() for name in names), strict=True))


def _borders(steps: pd.DataFrame) -> Iterator[Border]:
    columns = (steps[name].tolist() for name in ("thread", "start_s", "end_s", "name"))
    for thread, start_s, end_s, name in zip(*columns, strict=True):
        yield Border(thread, start_s, name)
        yield Border(thread, end_s, end_mark(name))


def _host_events(rows: pd.DataFrame) -> HostEvents:
    return HostEvents(rows["start_s"].to_numpy(), rows["end_s"].to_numpy(), rows["kind"].isin(CALLS).to_numpy())


def _turns(rows_of: dict[int, pd.DataFrame], main: int) -> Iterator[Moment]:
    own = rows_of[main]
    present = own[own["kind"].isin(CALLS) | ~of_engine(own)]
    threads = {thread: _host_events(rows) for thread, rows in {**rows_of, main: present}.items()}
    for number, handover in enumerate(handovers(threads, main)):
        yield Give(main, handover.give_s, number)
        for thread, begin_s, end_s in handover.runs:
            yield Wake(thread, begin_s, number, handover.give_s)
            yield Done(thread, end_s, number)
        yield Take(main, handover.take_s, number)
