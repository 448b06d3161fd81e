"""PlanBuilder: write a plan row by row.

The builder adds the dependencies that the data demands and stream order does not give: a reader waits for the writer,
a writer in place for earlier users, a release for all users, and an allocation on a foreign stream for the last row of
the owner stream. What a strategy wants beyond that it says with ``after``.
"""

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any, TypeVar, cast

import numpy as np

from stepsim.errors import PlanError
from stepsim.plan import (
    NONE,
    BufferTable,
    CollectiveTable,
    DeviceTable,
    MarkTable,
    Plan,
    RouteTable,
    StreamTable,
    TaskKind,
    TaskTable,
    ThreadTable,
    WorkTable,
)
from stepsim.plan.check import check_plan
from stepsim.tables import Columns, Ragged, column_types

Rows = Iterable[int]

_WHOLE = (int, np.integer, np.bool_)


class PlanBuilder:
    """Collects rows and tables; `build` freezes and checks them.

    >>> builder = PlanBuilder()
    >>> gpu = builder.device("gpu0")
    >>> stream = builder.stream("compute", gpu)
    >>> first = builder.compute(builder.work("F0"), stream)
    >>> len(builder.build())
    1
    """

    def __init__(self) -> None:
        self._work: dict[tuple[Any, ...], int] = {}
        self._buffers: list[tuple[Any, ...]] = []
        self._streams: list[tuple[Any, ...]] = []
        self._threads: list[tuple[str, int]] = []
        self._devices: list[tuple[str, int]] = []
        self._routes: dict[tuple[int, int], int] = {}
        self._collectives: dict[tuple[str, str, tuple[int, ...]], int] = {}
        self._marks: list[tuple[str, int]] = []
        self._tasks: list[tuple[Any, ...]] = []
        self._lanes: list[int] = []
        self._last_on_lane: dict[int, int] = {}
        self._uses: list[dict[int, int]] = []
        self._writer: list[int] = []
        self._groups = 0

    # --- tables -------------------------------------------------------------------------------------------------

    def device(self, name: str, *, process: int = 0) -> int:
        self._devices.append((name, process))
        return len(self._devices) - 1

    def thread(self, name: str, *, process: int = 0) -> int:
        self._threads.append((name, process))
        return len(self._threads) - 1

    def stream(self, name: str, device: int, *, role: str = "compute", priority: int = 0) -> int:
        self._streams.append((name, device, role, priority))
        return len(self._streams) - 1

    def work(
        self,
        kind: str,
        *,
        shapes: str = "",
        dtype: str = "",
        batch: int = 0,
        flop: int = 0,
        bytes_read: int = 0,
        bytes_written: int = 0,
        signature: str = "",
        graph: str = "",
        ops: Sequence[int] = (),
    ) -> int:
        """A piece of work; equal pieces share one entry."""
        entry = (kind, shapes, dtype, batch, flop, bytes_read, bytes_written, signature, graph, tuple(ops))
        return self._work.setdefault(entry, len(self._work))

    def buffer(
        self,
        size_bytes: int,
        device: int,
        *,
        owner: int = NONE,
        role: str = "activation",
        name: str = "",
        tensor: int = NONE,
        microbatch: int = 0,
        part: tuple[int, int, int] = (NONE, 0, 0),
    ) -> int:
        """A storage on ``device``; ``owner`` is its stream (none for a host buffer)."""
        number = len(self._buffers)
        label = name or f"b{number}"
        self._buffers.append((label, size_bytes, role, device, tensor, microbatch, *part, owner))
        self._uses.append({})
        self._writer.append(NONE)
        return number

    def mark(self, name: str, row: int) -> None:
        """Name the start of row ``row``."""
        self._marks.append((name, row))

    def group(self) -> int:
        """A new group, for the two rows of a send and its receive or the members of a collective."""
        self._groups += 1
        return self._groups - 1

    # --- rows ---------------------------------------------------------------------------------------------------

    def compute(self, work: int, stream: int, **columns: Any) -> int:
        return self.add(TaskKind.COMPUTE, stream=stream, work=work, **columns)

    def recompute(self, work: int, stream: int, **columns: Any) -> int:
        return self.add(TaskKind.RECOMPUTE, stream=stream, work=work, **columns)

    def swap_out(self, source: int, host: int, stream: int, **columns: Any) -> int:
        """Copy buffer ``source`` into the host buffer ``host``, which this row allocates."""
        return self._move(TaskKind.SWAP_OUT, source, host, stream, allocates=[host], **columns)

    def swap_in(self, host: int, target: int, stream: int, **columns: Any) -> int:
        """Copy ``host`` back into ``target``, which this row allocates; ``host`` is released."""
        return self._move(TaskKind.SWAP_IN, host, target, stream, allocates=[target], releases=[host], **columns)

    def copy(self, source: int, target: int, stream: int, **columns: Any) -> int:
        return self._move(TaskKind.COPY, source, target, stream, **columns)

    def host(self, work: int, *, thread: int = 0, **columns: Any) -> int:
        """Work on the issuing thread itself."""
        return self.add(TaskKind.HOST, work=work, thread=thread, **columns)

    def release(self, buffers: Sequence[int], stream: int, **columns: Any) -> int:
        """Give ``buffers`` back on their owner stream, after all their users."""
        return self.add(TaskKind.RELEASE, stream=stream, releases=buffers, **columns)

    def send(self, buffer: int, to: int, stream: int, group: int, **columns: Any) -> int:
        """Send ``buffer`` to device ``to``; the receive of the same group takes it.

        To send a part, give the ``work`` that narrows the buffer (a view, which needs no row) and its ``size_bytes``.
        """
        columns = {"size_bytes": self._size_of(buffer)} | columns
        columns |= {"route": (self._device_of(buffer), to), "group": group}
        return self.add(TaskKind.SEND, stream=stream, reads=[buffer], **columns)

    def receive(self, buffer: int, source: int, stream: int, group: int, **columns: Any) -> int:
        route = (source, self._device_of(buffer))
        columns |= {"size_bytes": self._size_of(buffer), "route": route, "group": group}
        return self.add(TaskKind.RECEIVE, stream=stream, writes=[buffer], **columns)

    def collective(
        self,
        kind: str,
        team: Sequence[int],
        stream: int,
        group: int,
        *,
        size_bytes: int,
        algorithm: str = "auto",
        **columns: Any,
    ) -> int:
        """One member of a collective over the devices of ``team``; ``size_bytes`` is what each of them contributes."""
        entry = self._collectives.setdefault((kind, algorithm, tuple(team)), len(self._collectives))
        columns |= {"size_bytes": size_bytes, "collective": entry, "group": group}
        return self.add(TaskKind.COLLECTIVE, stream=stream, **columns)

    def add(
        self,
        kind: TaskKind,
        *,
        stream: int = NONE,
        thread: int = 0,
        blocks_thread: bool = False,
        work: int = NONE,
        size_bytes: int = 0,
        route: tuple[int, int] | None = None,
        collective: int = NONE,
        group: int = NONE,
        after: Rows = (),
        reads: Sequence[int] = (),
        writes: Sequence[int] = (),
        allocates: Sequence[int] = (),
        releases: Sequence[int] = (),
    ) -> int:
        """Append a row of any kind and return its number. The other methods are short forms of this one."""
        if not self._threads:
            self.thread("main")
        row = len(self._tasks)
        self._check_row(stream, thread, (*reads, *writes, *allocates, *releases))
        lane = stream if stream != NONE else -2 - thread
        needs = self._needed(lane, reads, writes, allocates, releases).union(after)
        device = self._streams[stream][1] if stream != NONE else NONE
        path = NONE if route is None else self._routes.setdefault(route, len(self._routes))
        place = (int(kind), device, stream, thread, blocks_thread, work, size_bytes, path, collective, group)
        # Tuples of numbers cost the garbage collector nothing, lists do.
        lists = (tuple(sorted(needs)), tuple(reads), tuple(writes), tuple(allocates), tuple(releases))
        self._tasks.append((*place, *lists))
        self._lanes.append(lane)
        self._last_on_lane[lane] = row
        for buffer in (*reads, *writes):
            self._uses[buffer][lane] = row
        for buffer in writes:
            self._writer[buffer] = row
        return row

    def _check_row(self, stream: int, thread: int, buffers: Rows) -> None:
        """The rest is for the self-check; these would fail, or count from the end, before it comes."""
        self._check_index("stream", stream, NONE, len(self._streams))
        self._check_index("thread", thread, 0, len(self._threads))
        for buffer in buffers:
            self._check_index("buffer", buffer, 0, len(self._buffers))

    def _check_index(self, name: str, number: int, lowest: int, size: int) -> None:
        if not (isinstance(number, _WHOLE) and lowest <= number < size):
            held = f"must be in {lowest}..{size - 1}, got {number!r}" if size else f"is {number!r}: the plan has none"
            raise PlanError(f"row {len(self._tasks)}: {name} {held}")

    def _needed(
        self,
        lane: int,
        reads: Sequence[int],
        writes: Sequence[int],
        allocates: Sequence[int],
        releases: Sequence[int],
    ) -> set[int]:
        """Rows on other lanes that the data makes this one wait for."""
        writers = {self._writer[buffer] for buffer in reads} - {NONE}
        needed = {row for row in writers if self._lanes[row] != lane}
        for buffer in (*writes, *releases):
            needed.update(row for other, row in self._uses[buffer].items() if other != lane)
        for buffer in allocates:
            owner = self._buffers[buffer][-1]
            if owner != lane and owner in self._last_on_lane:
                needed.add(self._last_on_lane[owner])
        return needed

    def _move(self, kind: TaskKind, source: int, target: int, stream: int, **columns: Any) -> int:
        route = (self._device_of(source), self._device_of(target))
        columns |= {"size_bytes": self._size_of(source), "route": route, "reads": [source], "writes": [target]}
        return self.add(kind, stream=stream, **columns)

    def _device_of(self, buffer: int) -> int:
        return cast(int, self._entry(buffer)[3])

    def _size_of(self, buffer: int) -> int:
        return cast(int, self._entry(buffer)[1])

    def _entry(self, buffer: int) -> tuple[Any, ...]:
        self._check_index("buffer", buffer, 0, len(self._buffers))
        return self._buffers[buffer]

    def build(self) -> Plan:
        """The plan. Raises `PlanError` if it fails the self-check."""
        plan = Plan(
            tasks=_table(TaskTable, self._tasks),
            work=_table(WorkTable, list(self._work)),
            buffers=_table(BufferTable, self._buffers),
            streams=_table(StreamTable, self._streams),
            threads=_table(ThreadTable, self._threads or [("main", 0)]),
            devices=_table(DeviceTable, self._devices),
            routes=_table(RouteTable, list(self._routes)),
            collectives=_table(CollectiveTable, list(self._collectives)),
            marks=_table(MarkTable, self._marks),
        )
        check_plan(plan)
        return plan


T = TypeVar("T", bound=Columns)


def _table(kind: type[T], entries: Sequence[tuple[Any, ...]]) -> T:
    """Turn entries (one tuple a row) into the columns that ``kind`` declares."""
    types = column_types(kind)
    columns = zip(*entries, strict=True) if entries else [()] * len(types)
    named = zip(types.items(), columns, strict=True)
    return kind(*[_column(f"{kind.__name__}.{name}", held, values) for (name, held), values in named])


def _column(name: str, held: type, values: Sequence[Any]) -> Any:
    """Raises `PlanError` for a number that the column cannot hold as it is."""
    if held is Ragged:
        _column(name, np.int64, list(chain.from_iterable(values)))
        return Ragged.from_lists(values)
    if held is str:
        return tuple(values)
    found = np.array(values) if values else np.zeros(0, held)
    if found.dtype.kind in "biu" and _fits(found.min(initial=0), held) and _fits(found.max(initial=0), held):
        return found.astype(held)
    for value in values:
        if not _fits(value, held):
            raise PlanError(f"{name} must be a whole number that fits {np.dtype(held)}, got {value!r}")
    return np.array(values, held)  # whole numbers of numpy's many types, which together became floats


def _fits(value: Any, held: type) -> bool:
    lowest, highest = (0, 1) if held is np.bool_ else (np.iinfo(held).min, np.iinfo(held).max)
    return isinstance(value, _WHOLE) and bool(lowest <= value <= highest)
