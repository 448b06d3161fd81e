"""Writes the moments of a recording as rows of a plan."""

from collections import defaultdict
from collections.abc import Iterable
from typing import Any, assert_never

import numpy as np

from stepsim.plan import TaskKind
from stepsim.plan.builder import PlanBuilder
from stepsim.traces.moments import (
    Border,
    DeviceRow,
    Done,
    Give,
    Launch,
    Moment,
    Record,
    Recording,
    Sync,
    Take,
    Wait,
    Wake,
)
from stepsim.traces.waits import Waits

STAGED_BYTES = 64 * 1024
"""A copy from pageable memory to a device up to this size is staged, and its call returns before the copy has run.

CUDA C++ Programming Guide, asynchronous concurrent execution: "memory copies from host to device of a memory block of
64 KB or less" are asynchronous with respect to the host. In traces of V100, A100 and H100 larger ones hold their thread
until all but the last part has been copied.
"""

TURNAROUND_S = 20e-6
"""The longest time that a stream takes to turn from one row to the next that was issued by then.

In traces of a single stream (V100, RTX 2080 Ti, H100, MI300X), where there is little else to wait for, it takes at most
5 microseconds for 99 of 100 rows, and 15 for 999 of 1000. What takes longer than this waits for something.
"""

GAP = "host"
"""The work of a row that stands for what a host thread did between two calls."""

NOT_RECORDED = "not recorded"
"""The work of a row that stands for what a graph did and the profiler did not record."""

Rows = Iterable[int]

BEFORE = -2
"""The thread of what was launched before the recording began."""


class RowWriter:
    """Writes moments as rows. ``clock_s`` is, for each thread, the recorded time up to which its rows account."""

    def __init__(self, recording: Recording) -> None:
        self.builder = PlanBuilder()
        self.start_s: list[float] = []
        self.seconds: list[float] = []
        self.launch_s: list[float] = []
        self.threads = {thread: self.builder.thread(f"thread {thread}") for thread in recording.thread_end_s}
        self.main = next(iter(self.threads))
        self.host = self.builder.device("host")
        self.clock_s = dict.fromkeys(self.threads, 0.0)
        self.devices: dict[str, int] = {}
        self.streams: dict[tuple[str, int], int] = {}
        self.waits = Waits()
        self.given: dict[int, int] = {}
        self.done: dict[int, list[int]] = defaultdict(list)

    def write_launched_before(self, rows: list[DeviceRow]) -> None:
        """Nothing tells what these rows waited for, since their launch was not recorded: each may start when it did."""
        if rows:
            thread = BEFORE
            self.threads[thread], self.clock_s[thread] = self.builder.thread("before the recording"), 0.0
            for row in sorted(rows, key=lambda row: row.start_s):
                self.host_until(thread, row.start_s)
                self.device_row(row, thread, 0.0)

    def write(self, moment: Moment) -> None:
        match moment:
            case Wake():
                self.clock_s[moment.thread] = moment.give_s
                self.host_row(moment.thread, "hand over", after=[self.given[moment.number]])
                self.waits.pass_on(self.main, moment.thread)
                return
            case Take():
                self.host_row(moment.thread, "hand over", after=self.done[moment.number])
                self.clock_s[moment.thread] = moment.start_s
                return
            case Record():
                self.waits.record(moment)
                return
            case Wait():
                self.waits.tell(moment)
                return
        self.host_until(moment.thread, moment.start_s)
        match moment:
            case Launch():
                self._launch(moment)
            case Sync():
                self._sync(moment)
            case Border():
                self.mark(moment.mark, moment.thread)
            case Give():
                self.given[moment.number] = self.host_row(moment.thread, "hand over")
            case Done():
                self.done[moment.number].append(self.host_row(moment.thread, "hand over"))
                self.waits.pass_on(moment.thread, self.main)
            case _:
                assert_never(moment)

    def host_until(self, thread: int, time_s: float) -> None:
        """Host work from the thread's clock up to ``time_s``."""
        if time_s > self.clock_s[thread]:
            self.host_row(thread, GAP, seconds=time_s - self.clock_s[thread])
            self.clock_s[thread] = time_s

    def host_row(self, thread: int, what: str, *, seconds: float = 0.0, after: list[int] | None = None) -> int:
        self._cost(self.clock_s[thread], seconds, 0.0)
        return self.builder.host(self.builder.work(what), thread=self.threads[thread], after=after or ())

    def mark(self, name: str, thread: int, *, after: list[int] | None = None) -> None:
        self.builder.mark(name, self.host_row(thread, "step border", after=after))

    def device_row(
        self,
        row: DeviceRow,
        thread: int,
        launch_s: float,
        *,
        turn_s: float = 0.0,
        blocks: bool = False,
        after: Rows = (),
    ) -> None:
        """``turn_s`` is what its stream took to turn to the row."""
        self._cost(row.start_s - turn_s, row.end_s - row.start_s + turn_s, launch_s)
        columns: dict[str, Any] = {"thread": self.threads[thread], "blocks_thread": blocks, "after": after}
        stream, work = self._stream(row.lane), self.builder.work(row.name)
        host_end = [row.source, row.destination].count("device") == 1
        if row.kind == "collective":
            group = self.builder.group()
            number = self.builder.collective(
                row.name, [self.devices[row.device]], stream, group, size_bytes=row.size_bytes, **columns
            )
        elif row.kind == "copy" and host_end:
            ends = (self.host, self.devices[row.device])
            route = ends if row.destination == "device" else ends[::-1]
            number = self.builder.add(
                TaskKind.COPY, stream=stream, work=work, route=route, size_bytes=row.size_bytes, **columns
            )
        else:
            number = self.builder.compute(work, stream, size_bytes=row.size_bytes, **columns)
        self.waits.add(row.lane, number, row.end_s, thread)

    def last_rows(self) -> list[int]:
        """Rows that have ended when all streams and threads have."""
        on_threads = [self.host_row(thread, "host") for thread in self.threads]
        return on_threads + self.waits.last_rows()

    def _cost(self, start_s: float, seconds: float, launch_s: float) -> None:
        self.start_s.append(start_s)
        self.seconds.append(seconds)
        self.launch_s.append(launch_s)

    def _stream(self, lane: tuple[str, int]) -> int:
        device, stream = lane
        if device not in self.devices:
            self.devices[device] = self.builder.device(device)
        if lane not in self.streams:
            self.streams[lane] = self.builder.stream(f"stream {stream}", self.devices[device])
        return self.streams[lane]

    def _launch(self, launch: Launch) -> None:
        """A copy that holds its thread pays what it took to start once its stream was free; the rest is waiting."""
        thread, first = launch.thread, launch.rows[0]
        begin_s = self.clock_s[thread]
        blocks = _blocks(launch.name, first)
        if blocks:
            free_s = max([begin_s, *(row.end_s for row in self.waits.last_on(first.lane))])
            launch_s = first.start_s - free_s
        else:
            launch_s = launch.end_s - begin_s
        self._launched(first, launch, max(0.0, launch_s), blocks=blocks)
        for row in launch.rows[1:]:
            self._launched(row, launch, 0.0)
        self.clock_s[thread] = max(begin_s, first.end_s if blocks else launch.end_s)

    def _launched(self, row: DeviceRow, launch: Launch, launch_s: float, *, blocks: bool = False) -> None:
        """A row with what its stream took to turn to it, or with what its graph did before it.

        All of a graph is issued at once, so no host holds it up; and profilers drop some of its kernels. So the time in
        which its stream, as far as recorded, had nothing to do is a row of its own.
        """
        thread, behind = launch.thread, self.waits.of_row(row, launch.thread)
        after = [number for number, _ in behind]
        released_s = max((end_s for _, end_s in (*behind, *self.waits.last_on(row.lane))), default=-np.inf)
        idle_s = row.start_s - max(launch.end_s, released_s)
        if "GraphLaunch" in launch.name and idle_s > TURNAROUND_S:
            self._cost(row.start_s - idle_s, idle_s, launch_s)
            work, stream = self.builder.work(NOT_RECORDED), self._stream(row.lane)
            self.builder.compute(work, stream, thread=self.threads[thread], after=after)
            launch_s, after = 0.0, []
        turns = launch.end_s <= released_s and 0 < idle_s <= TURNAROUND_S
        self.device_row(row, thread, launch_s, turn_s=idle_s if turns else 0.0, blocks=blocks, after=after)

    def _sync(self, sync: Sync) -> None:
        """The thread is accounted for up to the end of what it waited for; the rest of the call is host work."""
        awaited = self.waits.of_sync(sync)
        if awaited:
            self.host_row(sync.thread, "wait", after=[row for row, _ in awaited])
            waited_s = min(sync.end_s, max(end_s for _, end_s in awaited))
            self.clock_s[sync.thread] = max(self.clock_s[sync.thread], waited_s)


def _blocks(call: str, row: DeviceRow) -> bool:
    """Whether the thread that issued a copy waits for its end.

    CUDA Runtime API, API synchronization behavior; AMD's ``hipMemcpyWithStream`` synchronises its stream.
    """
    if row.kind != "copy":
        return False
    if row.source == row.destination:
        return "WithStream" in call
    if row.destination == "pageable":
        return True
    if row.source == "pageable":
        return row.size_bytes > STAGED_BYTES
    return "Async" not in call
