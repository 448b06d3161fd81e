"""Writes the moments of a recording as rows of a plan."""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable
from typing import Any, assert_never

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

STAGED_BYTES = 64 * 1024
"""A copy from pageable memory to a device up to this size is staged, and its call returns before the copy has run.

CUDA C++ Programming Guide, asynchronous concurrent execution: "memory copies from host to device of a memory block of
64 KB or less" are asynchronous with respect to the host. In traces of V100, A100 and H100 larger ones hold their thread
until all but the last part has been copied.
"""


BEFORE = -2
"""The thread of what was launched before the recording began."""


class RowWriter:
    """Writes moments as rows. ``clock_s`` is, for each thread, the recorded time up to which its rows account."""

    def __init__(self, recording: Recording) -> None:
        self.builder = PlanBuilder()
        self.seconds: list[float] = []
        self.launch_s: list[float] = []
        self.threads = {thread: self.builder.thread(f"thread {thread}") for thread in recording.thread_end_s}
        self.main = next(iter(self.threads))
        self.host = self.builder.device("host")
        self.clock_s = dict.fromkeys(self.threads, 0.0)
        self.devices: dict[str, int] = {}
        self.streams: dict[tuple[str, int], int] = {}
        self.on_lane: dict[tuple[str, int], list[tuple[int, float]]] = defaultdict(list)
        self.recorded: dict[int, list[tuple[int, float]]] = {}
        self.waits: dict[int, list[Wait]] = defaultdict(list)
        self.last_lane: dict[int, tuple[str, int]] = {}
        self.given: dict[int, int] = {}
        self.done: dict[int, list[int]] = defaultdict(list)

    def write_launched_before(self, rows: list[DeviceRow]) -> None:
        """Nothing tells what these rows waited for, since their launch was not recorded: each may start when it did."""
        if rows:
            thread = BEFORE
            self.threads[thread], self.clock_s[thread] = self.builder.thread("before the recording"), 0.0
            for row in sorted(rows, key=lambda row: row.start_s):
                self.host_until(thread, row.start_s)
                self.device_row(row, thread, launch_s=0.0)

    def write(self, moment: Moment) -> None:
        match moment:
            case Wake():
                self.clock_s[moment.thread] = moment.give_s
                self.host_row(moment.thread, "hand over", after=[self.given[moment.number]])
                return
            case Take():
                self.host_row(moment.thread, "hand over", after=self.done[moment.number])
                self.clock_s[moment.thread] = moment.start_s
                return
        self.host_until(moment.thread, moment.start_s)
        match moment:
            case Launch():
                self._launch(moment)
            case Sync():
                self._sync(moment)
            case Record():
                self.recorded[moment.number] = self._last_rows(moment.stream)
            case Wait():
                self.waits[moment.thread].append(moment)
            case Border():
                self.mark(moment.mark, moment.thread)
            case Give():
                self.given[moment.number] = self.host_row(moment.thread, "hand over")
            case Done():
                self.done[moment.number].append(self.host_row(moment.thread, "hand over"))
            case _:
                assert_never(moment)

    def host_until(self, thread: int, time_s: float) -> None:
        """Host work from the thread's clock up to ``time_s``."""
        if time_s > self.clock_s[thread]:
            self.host_row(thread, "host", seconds=time_s - self.clock_s[thread])
            self.clock_s[thread] = time_s

    def host_row(self, thread: int, what: str, *, seconds: float = 0.0, after: list[int] | None = None) -> int:
        self._cost(seconds, 0.0)
        return self.builder.host(self.builder.work(what), thread=self.threads[thread], after=after or ())

    def mark(self, name: str, thread: int, *, after: list[int] | None = None) -> None:
        self.builder.mark(name, self.host_row(thread, "step border", after=after))

    def device_row(self, row: DeviceRow, thread: int, *, launch_s: float, blocks: bool = False) -> None:
        self._cost(row.end_s - row.start_s, launch_s)
        after = self._waited_for(row, thread)
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
        self.on_lane[row.lane].append((number, row.end_s))
        self.last_lane[thread] = row.lane

    def last_rows(self) -> list[int]:
        """Rows that have ended when all streams and threads have."""
        on_threads = [self.host_row(thread, "host") for thread in self.threads]
        return on_threads + [rows[-1][0] for rows in self.on_lane.values()]

    def _cost(self, seconds: float, launch_s: float) -> None:
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
            earlier = self.on_lane[first.lane]
            free_s = earlier[-1][1] if earlier else begin_s
            launch_s = first.start_s - max(begin_s, free_s)
        else:
            launch_s = launch.end_s - begin_s
        self.device_row(first, thread, launch_s=max(0.0, launch_s), blocks=blocks)
        for row in launch.rows[1:]:
            self.device_row(row, thread, launch_s=0.0)
        self.clock_s[thread] = max(begin_s, first.end_s if blocks else launch.end_s)

    def _sync(self, sync: Sync) -> None:
        """The thread is accounted for up to the end of what it waited for; the rest of the call is host work."""
        awaited = self._awaited(sync)
        if awaited:
            self.host_row(sync.thread, "wait", after=[row for row, _ in awaited])
            waited_s = min(sync.end_s, max(end_s for _, end_s in awaited))
            self.clock_s[sync.thread] = max(self.clock_s[sync.thread], waited_s)

    def _awaited(self, sync: Sync) -> list[tuple[int, float]]:
        """The last row of each stream that a synchronisation waits for, with its recorded end.

        Where the stream is not recorded it is the one whose last row ended last before the call returned. Where it is
        not recorded either which row an event stands behind, it is the last one that had ended by then.
        """
        if sync.awaits in self.recorded:
            return self.recorded[sync.awaits]
        if "Event" in sync.name:
            return self._ended_by(sync.end_s, stream=sync.stream)[:1]
        if "Stream" in sync.name:
            return self._last_rows(sync.stream) or self._idle_by(sync.end_s)[:1]
        used = self.last_lane.get(sync.thread)
        return [rows[-1] for lane, rows in self.on_lane.items() if used is None or lane[0] == used[0]]

    def _waited_for(self, row: DeviceRow, thread: int) -> list[int]:
        """What the stream of ``row`` was told to wait for since its last row, by the thread that launches ``row``.

        Where a wait does not say which stream it holds back, it is that of the next launch. Where it does not say what
        for, each wait stands for one row of another stream: of those that had ended when ``row`` began, the last of
        its stream, and of these the ones that ended last.
        """
        waits = [wait for wait in self.waits[thread] if wait.stream in (-1, row.stream)]
        if not waits:
            return []
        self.waits[thread] = [wait for wait in self.waits[thread] if wait not in waits]
        known = [behind for wait in waits for behind in self.recorded.get(wait.awaits, [])]
        num_unknown = sum(wait.awaits not in self.recorded for wait in waits)
        inferred = self._ended_by(row.start_s, other_than=row.lane)[:num_unknown]
        return [number for number, _ in (*known, *inferred)]

    def _last_rows(self, stream: int) -> list[tuple[int, float]]:
        """The last row, with its recorded end, on each lane of ``stream``; none for -1."""
        return [rows[-1] for lane, rows in self.on_lane.items() if lane[1] == stream]

    def _idle_by(self, time_s: float) -> list[tuple[int, float]]:
        """The last row of each lane that had ended all its rows by ``time_s``, the latest first."""
        return _latest_first(rows[-1] for rows in self.on_lane.values() if rows[-1][1] <= time_s)

    def _ended_by(
        self, time_s: float, *, stream: int = -1, other_than: tuple[str, int] | None = None
    ) -> list[tuple[int, float]]:
        """The last row of each lane that had ended by ``time_s``, the latest first; of ``stream`` alone if it is given.

        Ends rise along a lane.
        """
        found = []
        for lane, rows in self.on_lane.items():
            if lane != other_than and stream in (-1, lane[1]):
                place = bisect_right(rows, time_s, key=lambda row: row[1])
                found += rows[place - 1 : place]
        return _latest_first(found)


def _latest_first(rows: Iterable[tuple[int, float]]) -> list[tuple[int, float]]:
    return sorted(rows, key=lambda row: -row[1])


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
