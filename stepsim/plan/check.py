"""The self-check of a plan: tables that fit together and rows that have what they need.

`stepsim.plan.groups` checks how groups meet, and `stepsim.plan.order` in which order buffers are used.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stepsim.errors import PlanError
from stepsim.plan import NONE, TRANSFERS, Plan, TaskKind
from stepsim.plan.groups import check_groups
from stepsim.plan.names import row_error
from stepsim.plan.order import check_order
from stepsim.tables import Ragged

COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "all_to_all")

MOST_BYTES = 2**62
"""Beyond this, sums of bytes would not fit into 64 bits."""

ALGORITHMS = ("auto", "ring", "rings", "tree", "hierarchical")


def check_plan(plan: Plan) -> None:
    """Raises `PlanError` that names the row and what is wrong with it."""
    _check_tables(plan)
    _check_indices(plan)
    _check_names(plan)
    _check_work(plan)
    _check_buffers(plan)
    _check_rows(plan)
    _check_places(plan)
    _check_dependencies(plan)
    _check_collectives(plan)
    check_groups(plan)
    _check_marks(plan)
    check_order(plan)


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


def _check_names(plan: Plan) -> None:
    """A device is there once, or it would have twice its memory; timelines tell lanes apart by their names."""
    for what, names in (("devices", plan.devices.name), ("streams or threads", plan.lane_names())):
        for name, times in Counter(names).items():
            if times > 1:
                raise PlanError(f"two {what} are called {name!r}")


def _check_indices(plan: Plan) -> None:
    """Every index is inside the table it points into, or NONE where there may be nothing."""
    for name, size, lowest in (("kind", len(TaskKind), 0), ("group", np.iinfo(np.int32).max, NONE)):
        for row, value in _outside(getattr(plan.tasks, name), lowest, size):
            raise PlanError(f"row {row}: {name} must be in {lowest}..{size - 1}, got {value}")
    for entry, table, name, target, lowest in _POINTERS:
        size = len(getattr(plan, target))
        for place, value in _outside(getattr(getattr(plan, table), name), lowest, size):
            if not size:
                raise PlanError(f"{entry} {place}: {name} is {value}: the plan has no {target}")
            raise PlanError(f"{entry} {place}: {name} must be in {lowest}..{size - 1}, got {value}")


_POINTERS = (
    ("row", "tasks", "device", "devices", NONE),
    ("row", "tasks", "stream", "streams", NONE),
    ("row", "tasks", "thread", "threads", 0),
    ("row", "tasks", "work", "work", NONE),
    ("row", "tasks", "route", "routes", NONE),
    ("row", "tasks", "collective", "collectives", NONE),
    ("row", "tasks", "reads", "buffers", 0),
    ("row", "tasks", "writes", "buffers", 0),
    ("row", "tasks", "allocates", "buffers", 0),
    ("row", "tasks", "releases", "buffers", 0),
    ("collective", "collectives", "team", "devices", 0),
    ("buffer", "buffers", "device", "devices", 0),
    ("buffer", "buffers", "owner", "streams", NONE),
    ("stream", "streams", "device", "devices", 0),
    ("route", "routes", "source", "devices", 0),
    ("route", "routes", "destination", "devices", 0),
)
"""What an entry is called, its table, the column of indices, the table they point into, and the lowest of them."""


def _outside(column: NDArray[np.integer[Any]] | Ragged, lowest: int, size: int) -> Iterator[tuple[int, int]]:
    """The entries with a value that is not in ``lowest..size - 1``, and that value."""
    values = column.values if isinstance(column, Ragged) else column
    for place in np.flatnonzero((values < lowest) | (values >= size)).tolist():
        entry = int(column.owners()[place]) if isinstance(column, Ragged) else place
        yield entry, int(values[place])


def _check_work(plan: Plan) -> None:
    """Sizes of work are no debts."""
    for name in ("batch", "flop", "bytes_read", "bytes_written"):
        column = getattr(plan.work, name)
        for entry in np.flatnonzero(column < 0).tolist():
            raise _entry_error(plan, "work", entry, f"{name} must be >= 0, got {column[entry]}")


def _check_buffers(plan: Plan) -> None:
    """Sizes are no debts, and an owner is a stream of the buffer's own device."""
    buffers = plan.buffers
    for buffer in np.flatnonzero(buffers.size_bytes < 0).tolist():
        raise PlanError(f"buffer {buffers.name[buffer]!r}: size_bytes must be >= 0, got {buffers.size_bytes[buffer]}")
    total_bytes = buffers.size_bytes.sum(dtype=np.float64)
    if total_bytes > MOST_BYTES:
        raise PlanError(f"buffers: all of them together must have at most 2**62 bytes, they have {total_bytes:.3g}")
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


def _check_collectives(plan: Plan) -> None:
    """Kinds and algorithms are known, and no device is twice in a team."""
    collectives, team = plan.collectives, plan.collectives.team
    # A recorded kernel is a team of one, and its kind is its name.
    is_alone = (np.diff(team.starts) == 1).tolist()
    for entry, (kind, algorithm) in enumerate(zip(collectives.kind, collectives.algorithm, strict=True)):
        if kind not in COLLECTIVES and not is_alone[entry]:
            raise _entry_error(plan, "collective", entry, f"kind must be one of {', '.join(COLLECTIVES)}, got {kind!r}")
        if algorithm not in ALGORITHMS:
            raise _entry_error(
                plan, "collective", entry, f"algorithm must be one of {', '.join(ALGORITHMS)}, got {algorithm!r}"
            )
    owners = team.owners()
    order = np.lexsort((team.values, owners))
    is_same = (np.diff(owners[order]) == 0) & (np.diff(team.values[order]) == 0)
    for place in order[1:][is_same].tolist():
        device = plan.devices.name[team.values[place]]
        raise _entry_error(plan, "collective", int(owners[place]), f"device {device!r} is twice in its team")


def _entry_error(plan: Plan, table: str, entry: int, problem: str) -> PlanError:
    """Names the first row that points to the entry, if there is one."""
    rows = np.flatnonzero(getattr(plan.tasks, table) == entry)
    if not len(rows):
        return PlanError(f"{table} {entry}: {problem}")
    return row_error(plan, int(rows[0]), f"{table}: {problem}")


def _check_marks(plan: Plan) -> None:
    for name, row in zip(plan.marks.name, plan.marks.row.tolist(), strict=True):
        if not 0 <= row < len(plan):
            raise PlanError(f"mark {name!r}: must be on a row in 0..{len(plan) - 1}, got {row}")
