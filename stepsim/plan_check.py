"""The self-check of a plan: what is read is there, and what is reused is ordered.

Order is proved, not assumed: each row has a vector clock over the lanes (streams and threads) of its process, made of
its dependencies, the row before it in its stream, and the last row of its thread that blocked the thread. Row ``u`` is
ordered before row ``r`` when the clock of ``r`` has reached ``u``.
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import fields

import numpy as np
from numpy.typing import NDArray

from stepsim.errors import PlanError
from stepsim.plan import NONE, TRANSFERS, Plan, TaskKind
from stepsim.tables import Ragged


def check_plan(plan: Plan) -> None:
    """Raises `PlanError` that names the row and what is wrong with it."""
    _check_tables(plan)
    _check_indices(plan)
    _check_buffers(plan)
    _check_rows(plan)
    _check_dependencies(plan)
    _check_groups(plan)
    _check_marks(plan)
    _BufferCheck(plan).run()


def _fail(plan: Plan, row: int, problem: str) -> PlanError:
    return PlanError(f"row {row} ({plan.row_names()[row]}): {problem}")


def _check_tables(plan: Plan) -> None:
    """The columns of a table have one length."""
    for field in fields(plan):
        columns = getattr(plan, field.name).columns()
        for name, column in columns.items():
            if isinstance(column, Ragged) and not column.is_whole:
                raise PlanError(f"{field.name}: the starts of {name} do not divide its values into lists")
        lengths = {name: len(column) for name, column in columns.items()}
        if len(set(lengths.values())) > 1:
            raise PlanError(f"{field.name}: columns differ in length: {lengths}")


def _check_indices(plan: Plan) -> None:
    """Every index is inside the table it points into, or NONE where there may be nothing."""
    tasks, buffers, routes = plan.tasks, plan.buffers, plan.routes
    num_devices, num_streams = len(plan.devices), len(plan.streams)
    for name, column, size, lowest in (
        ("kind", tasks.kind, len(TaskKind), 0),
        ("device", tasks.device, num_devices, NONE),
        ("stream", tasks.stream, num_streams, NONE),
        ("thread", tasks.thread, len(plan.threads), 0),
        ("work", tasks.work, len(plan.work), NONE),
        ("route", tasks.route, len(routes), NONE),
        ("collective", tasks.collective, len(plan.collectives), NONE),
        ("reads", tasks.reads.values, len(buffers), 0),
        ("writes", tasks.writes.values, len(buffers), 0),
        ("allocates", tasks.allocates.values, len(buffers), 0),
        ("releases", tasks.releases.values, len(buffers), 0),
        ("buffer device", buffers.device, num_devices, 0),
        ("buffer owner", buffers.owner, num_streams, NONE),
        ("stream device", plan.streams.device, num_devices, 0),
        ("route source", routes.source, num_devices, 0),
        ("route destination", routes.destination, num_devices, 0),
    ):
        for place in np.flatnonzero((column < lowest) | (column >= size)).tolist():
            raise PlanError(f"{name} at {place}: must be in {lowest}..{size - 1}, got {column[place]}")


def _check_buffers(plan: Plan) -> None:
    """Sizes are no debts, and an owner is a stream of the buffer's own device."""
    buffers = plan.buffers
    for buffer in np.flatnonzero(buffers.size_bytes < 0).tolist():
        raise PlanError(f"buffer {buffers.name[buffer]!r}: size_bytes must be >= 0, got {buffers.size_bytes[buffer]}")
    home = _looked_up(plan.streams.device, buffers.owner)
    for buffer in np.flatnonzero((buffers.owner != NONE) & (home != buffers.device)).tolist():
        raise PlanError(f"buffer {buffers.name[buffer]!r}: its owner is a stream of another device")


def _check_rows(plan: Plan) -> None:
    """Each row has what its kind needs."""
    tasks, kind = plan.tasks, plan.tasks.kind
    is_host, is_work = kind == TaskKind.HOST, np.isin(kind, (TaskKind.COMPUTE, TaskKind.RECOMPUTE, TaskKind.HOST))
    off_home = tasks.device != _looked_up(plan.streams.device, tasks.stream)
    abroad = (tasks.device != NONE) & (_looked_up(plan.devices.process, tasks.device) != plan.process_of_rows())
    for wrong, problem in (
        (~is_host & (tasks.stream == NONE), "needs a stream: only host work has none"),
        (is_host & (tasks.stream != NONE), "is host work, which stands on no stream"),
        (off_home, "is on another device than its stream"),
        (abroad, "is issued by a thread of another process than its device's"),
        (is_work & (tasks.work == NONE), "needs work"),
        (np.isin(kind, TRANSFERS) & (tasks.route == NONE), "needs a route"),
        ((kind == TaskKind.COLLECTIVE) & (tasks.collective == NONE), "needs a collective"),
        (np.isin(kind, _GROUPED) & (tasks.group == NONE), "needs a group"),
        (tasks.size_bytes < 0, "size_bytes must be >= 0"),
    ):
        for row in np.flatnonzero(wrong).tolist():
            raise _fail(plan, row, problem)


_GROUPED = (TaskKind.SEND, TaskKind.RECEIVE, TaskKind.COLLECTIVE)


def _looked_up(column: NDArray[np.int32], index: NDArray[np.int32]) -> NDArray[np.int32]:
    """``column[index]``, and NONE where the index is NONE."""
    return np.append(column, np.int32(NONE))[index]


def _check_dependencies(plan: Plan) -> None:
    """Dependencies point backward and stay within a process."""
    dependencies = plan.tasks.dependencies
    owners, values = dependencies.owners(), dependencies.values
    for place in np.flatnonzero((values >= owners) | (values < 0)).tolist():
        raise _fail(plan, int(owners[place]), f"depends on row {values[place]}, which is not an earlier row")
    process = plan.process_of_rows()
    for place in np.flatnonzero(process[owners] != process[values]).tolist():
        problem = f"depends on row {values[place]} of another process: processes meet only in groups"
        raise _fail(plan, int(owners[place]), problem)


def _check_groups(plan: Plan) -> None:
    """A send meets its receive; the members of a collective are alike, all there, and agree in order."""
    tasks = plan.tasks
    members: dict[int, list[int]] = defaultdict(list)
    for row in np.flatnonzero(tasks.group != NONE).tolist():
        members[int(tasks.group[row])].append(row)
    for rows in members.values():
        _check_group(plan, rows)
    _check_group_order(plan, members)


def _check_group(plan: Plan, rows: list[int]) -> None:
    tasks, first = plan.tasks, rows[0]
    kinds = sorted(int(tasks.kind[row]) for row in rows)
    if kinds == [TaskKind.SEND, TaskKind.RECEIVE]:
        same = ("size_bytes", "route")
    elif set(kinds) == {TaskKind.COLLECTIVE}:
        same = ("size_bytes", "collective")
        wanted = int(plan.collectives.members[tasks.collective[first]])
        if wanted != len(rows):
            raise _fail(plan, first, f"its collective has {wanted} members, the plan has rows for {len(rows)}")
    else:
        labels = [TaskKind(kind).label for kind in kinds]
        raise _fail(plan, first, f"a group is a send and a receive, or collectives; this one is {labels}")
    for name in same:
        values = {int(getattr(tasks, name)[row]) for row in rows}
        if len(values) > 1:
            raise _fail(plan, first, f"members of its group differ in {name}: {sorted(values)}")
    if len({int(tasks.stream[row]) for row in rows}) < len(rows):
        raise _fail(plan, first, "two members of its group stand on one stream, where the first waits for the second")


def _check_group_order(plan: Plan, members: dict[int, list[int]]) -> None:
    """Groups over the same streams come in the same order on each of them, or they deadlock."""
    seen: dict[tuple[int, ...], dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
    stream = plan.tasks.stream
    team = {group: tuple(sorted(int(stream[row]) for row in rows)) for group, rows in members.items()}
    for row in np.flatnonzero(plan.tasks.group != NONE).tolist():
        group = int(plan.tasks.group[row])
        seen[team[group]][int(stream[row])].append(group)
    for orders in seen.values():
        first, *others = orders.values()
        for other in others:
            for one, two in zip(first, other, strict=True):
                if one != two:
                    raise _fail(plan, members[one][0], f"members disagree in order: group {one} here, {two} there")


def _check_marks(plan: Plan) -> None:
    for name, row in zip(plan.marks.name, plan.marks.row.tolist(), strict=True):
        if not 0 <= row < len(plan) or plan.tasks.kind[row] != TaskKind.HOST:
            raise PlanError(f"mark {name!r}: must be on a host row, got row {row}")


class _BufferCheck:
    """One pass in issue order over all uses of buffers, beside the vector clocks."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.lane = plan.lane_of_rows().tolist()
        tasks = plan.tasks
        self.reads, self.writes = tasks.reads.to_lists(), tasks.writes.to_lists()
        self.allocates, self.releases = tasks.allocates.to_lists(), tasks.releases.to_lists()
        allocated = set(tasks.allocates.values.tolist())
        self.live = {buffer for buffer in range(len(plan.buffers)) if buffer not in allocated}
        self.written = set(self.live)
        self.gone: set[int] = set()
        self.writer: dict[int, int] = {}
        self.users: dict[int, dict[int, int]] = defaultdict(dict)
        self.last_on_lane: dict[int, int] = {}

    def run(self) -> None:
        for row, clock in enumerate(clocks(self.plan)):
            self.clock = clock
            for buffer in self.allocates[row]:
                self._allocate(row, buffer)
            for buffer in self.reads[row]:
                self._read(row, buffer)
            for buffer in self.writes[row]:
                self._write(row, buffer)
            for buffer in self.releases[row]:
                self._release(row, buffer)
            self.last_on_lane[self.lane[row]] = row

    def _after(self, row: int) -> bool:
        return self.clock.get(self.lane[row], NONE) >= row

    def _fail(self, row: int, buffer: int, problem: str) -> PlanError:
        return _fail(self.plan, row, f"buffer {self.plan.buffers.name[buffer]!r} {problem}")

    def _allocate(self, row: int, buffer: int) -> None:
        if buffer in self.live or buffer in self.gone:
            raise self._fail(row, buffer, "is allocated twice")
        owner = int(self.plan.buffers.owner[buffer])
        earlier = self.last_on_lane.get(owner, NONE)
        if owner not in (NONE, self.plan.tasks.stream[row]) and earlier != NONE and not self._after(earlier):
            raise self._fail(row, buffer, f"is allocated on a foreign stream before row {earlier} of its owner stream")
        self.live.add(buffer)

    def _use(self, row: int, buffer: int) -> None:
        if buffer not in self.live:
            state = "after its release" if buffer in self.gone else "before it is allocated"
            raise self._fail(row, buffer, f"is used {state}")
        device = self.plan.buffers.device[buffer]
        if self.plan.devices.process[device] != self.plan.threads.process[self.plan.tasks.thread[row]]:
            raise self._fail(row, buffer, "belongs to another process")

    def _read(self, row: int, buffer: int) -> None:
        self._use(row, buffer)
        if buffer not in self.written:
            raise self._fail(row, buffer, "is read before it is written")
        writer = self.writer.get(buffer)
        if writer is not None and not self._after(writer):
            raise self._fail(row, buffer, f"is read without waiting for row {writer}, which writes it")
        self.users[buffer][self.lane[row]] = row

    def _write(self, row: int, buffer: int) -> None:
        self._use(row, buffer)
        for user in self.users[buffer].values():
            if user != row and not self._after(user):
                raise self._fail(row, buffer, f"is written without waiting for row {user}, which uses it")
        self.written.add(buffer)
        self.writer[buffer] = row
        self.users[buffer][self.lane[row]] = row

    def _release(self, row: int, buffer: int) -> None:
        self._use(row, buffer)
        owner = int(self.plan.buffers.owner[buffer])
        if owner not in (NONE, self.plan.tasks.stream[row]):
            raise self._fail(row, buffer, "is released on a stream that does not own it")
        for user in self.users[buffer].values():
            if user != row and not self._after(user):
                raise self._fail(row, buffer, f"is released without waiting for row {user}, which uses it")
        self.live.discard(buffer)
        self.gone.add(buffer)


def clocks(plan: Plan) -> Iterator[dict[int, int]]:
    """For each row in issue order: lane to the last row on it that has ended before this row starts.

    The row itself counts on its own lane.
    """
    tasks = plan.tasks
    dependencies = tasks.dependencies.to_lists()
    lanes, threads = plan.lane_of_rows().tolist(), tasks.thread.tolist()
    blocks = ((tasks.kind == TaskKind.HOST) | tasks.blocks_thread).tolist()
    done: list[dict[int, int]] = []
    last_on_lane: dict[int, int] = {}
    last_block: dict[int, int] = {}
    for row, needs in enumerate(dependencies):
        before = {*needs, last_on_lane.get(lanes[row], NONE), last_block.get(threads[row], NONE)} - {NONE}
        clock: dict[int, int] = {}
        for earlier in before:
            for lane, reached in done[earlier].items():
                if reached > clock.get(lane, NONE):
                    clock[lane] = reached
        clock[lanes[row]] = row
        done.append(clock)
        last_on_lane[lanes[row]] = row
        if blocks[row]:
            last_block[threads[row]] = row
        yield clock
