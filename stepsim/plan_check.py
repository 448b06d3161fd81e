"""The self-check of a plan: tables that fit together, rows that have what they need, groups that meet.

What is read and what is reused in which order is the matter of `stepsim.plan_order`.
"""

from collections import defaultdict
from dataclasses import fields

import numpy as np
from numpy.typing import NDArray

from stepsim.errors import PlanError
from stepsim.plan import NONE, TRANSFERS, Plan, TaskKind
from stepsim.plan_order import BufferCheck, row_error
from stepsim.tables import Ragged


def check_plan(plan: Plan) -> None:
    """Raises `PlanError` that names the row and what is wrong with it."""
    _check_tables(plan)
    _check_indices(plan)
    _check_lanes(plan)
    _check_buffers(plan)
    _check_rows(plan)
    _check_places(plan)
    _check_dependencies(plan)
    _check_groups(plan)
    _check_marks(plan)
    BufferCheck(plan).run()


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


def _check_lanes(plan: Plan) -> None:
    """Timelines and reports tell lanes apart by their names."""
    seen: set[str] = set()
    for name in plan.lane_names():
        if name in seen:
            raise PlanError(f"two streams or threads are called {name!r}")
        seen.add(name)


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
    is_swap = np.isin(kind, (TaskKind.SWAP_OUT, TaskKind.SWAP_IN))
    num_reads, num_writes = np.diff(tasks.reads.starts), np.diff(tasks.writes.starts)
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
        (is_swap & ((num_reads != 1) | (num_writes != 1)), "must read one buffer and write one"),
        (tasks.size_bytes < 0, "size_bytes must be >= 0"),
    ):
        for row in np.flatnonzero(wrong).tolist():
            raise row_error(plan, row, problem)


def _check_places(plan: Plan) -> None:
    """Buffers lie where the row works: on its device, or on the ends of its route."""
    tasks, buffers, routes = plan.tasks, plan.buffers, plan.routes
    moves = np.isin(tasks.kind, TRANSFERS)
    for lists, ends in ((tasks.reads, routes.source), (tasks.writes, routes.destination)):
        rows, found = lists.owners(), buffers.device[lists.values]
        wanted = np.where(moves, _looked_up(ends, tasks.route), tasks.device)[rows]
        for place in np.flatnonzero((wanted != NONE) & (wanted != found)).tolist():
            name, device = buffers.name[lists.values[place]], plan.devices.name[found[place]]
            where = plan.devices.name[wanted[place]]
            raise row_error(plan, int(rows[place]), f"works on {where}, and buffer {name!r} is on {device}")
        copies = np.isin(tasks.kind, (TaskKind.SWAP_OUT, TaskKind.SWAP_IN, TaskKind.COPY))[rows]
        size_bytes, moved_bytes = buffers.size_bytes[lists.values], tasks.size_bytes[rows]
        for place in np.flatnonzero(copies & (size_bytes != moved_bytes)).tolist():
            name = buffers.name[lists.values[place]]
            problem = f"moves {moved_bytes[place]} bytes, and buffer {name!r} has {size_bytes[place]}"
            raise row_error(plan, int(rows[place]), problem)


_GROUPED = (TaskKind.SEND, TaskKind.RECEIVE, TaskKind.COLLECTIVE)


def _looked_up(column: NDArray[np.int32], index: NDArray[np.int32]) -> NDArray[np.int32]:
    """``column[index]``, and NONE where the index is NONE."""
    return np.append(column, np.int32(NONE))[index]


def _check_dependencies(plan: Plan) -> None:
    """Dependencies point backward and stay within a process."""
    dependencies = plan.tasks.dependencies
    owners, values = dependencies.owners(), dependencies.values
    for place in np.flatnonzero((values >= owners) | (values < 0)).tolist():
        raise row_error(plan, int(owners[place]), f"depends on row {values[place]}, which is not an earlier row")
    process = plan.process_of_rows()
    for place in np.flatnonzero(process[owners] != process[values]).tolist():
        problem = f"depends on row {values[place]} of another process: processes meet only in groups"
        raise row_error(plan, int(owners[place]), problem)


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
            raise row_error(plan, first, f"its collective has {wanted} members, the plan has rows for {len(rows)}")
    else:
        labels = [TaskKind(kind).label for kind in kinds]
        raise row_error(plan, first, f"a group is a send and a receive, or collectives; this one is {labels}")
    for name in same:
        values = {int(getattr(tasks, name)[row]) for row in rows}
        if len(values) > 1:
            raise row_error(plan, first, f"members of its group differ in {name}: {sorted(values)}")
    if len({int(tasks.stream[row]) for row in rows}) < len(rows):
        raise row_error(
            plan, first, "two members of its group stand on one stream, where the first waits for the second"
        )


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
                    raise row_error(plan, members[one][0], f"members disagree in order: group {one} here, {two} there")


def _check_marks(plan: Plan) -> None:
    for name, row in zip(plan.marks.name, plan.marks.row.tolist(), strict=True):
        if not 0 <= row < len(plan) or plan.tasks.kind[row] != TaskKind.HOST:
            raise PlanError(f"mark {name!r}: must be on a host row, got row {row}")
