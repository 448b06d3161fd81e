"""Plan: what runs, where, and after what; never how long.

A plan is a frozen struct of columns, in issue order, that carries the tables its tasks index, so that nothing else is
needed to simulate or to execute it. `Task` is the view of one row for people. `stepsim.plan.builder.PlanBuilder` makes
plans; `stepsim.plan.check.check_plan` is the self-check that every built or loaded plan has passed.
"""

import hashlib
from dataclasses import dataclass, fields
from enum import IntEnum
from functools import cached_property
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray

from stepsim.tables import Columns, Ragged, read_zip, write_zip

FORMAT = "stepsim-plan"

NONE = -1
"""In an index column: no entry."""


class TaskKind(IntEnum):
    COMPUTE = 0
    RECOMPUTE = 1
    SWAP_OUT = 2
    SWAP_IN = 3
    COPY = 4
    SEND = 5
    RECEIVE = 6
    COLLECTIVE = 7
    HOST = 8
    RELEASE = 9

    @property
    def label(self) -> str:
        return self.name.lower().replace("_", " ")


TRANSFERS = (TaskKind.SWAP_OUT, TaskKind.SWAP_IN, TaskKind.COPY, TaskKind.SEND, TaskKind.RECEIVE)
"""Kinds that move ``size_bytes`` along a route."""


@dataclass(frozen=True, eq=False)
class WorkTable(Columns):
    """Each distinct piece of work once.

    ``kind`` is the op kind (or a built-in: fill, add, scale, narrow, concat); ``shapes`` the input and output shapes as
    text; ``signature`` says which measurements are of this very work; ``ops`` are the ops of the captured graph
    ``graph`` (a hash, or empty) that it stands for.
    """

    kind: tuple[str, ...]
    shapes: tuple[str, ...]
    dtype: tuple[str, ...]
    batch: NDArray[np.int64]
    flop: NDArray[np.int64]
    bytes_read: NDArray[np.int64]
    bytes_written: NDArray[np.int64]
    signature: tuple[str, ...]
    graph: tuple[str, ...]
    ops: Ragged


@dataclass(frozen=True, eq=False)
class BufferTable(Columns):
    """Each instance of a storage. A swapped-in or recomputed copy is another buffer of the same tensor.

    ``tensor`` indexes the captured graph (or is NONE). ``part_*`` say which slice of the tensor this is: dimension
    NONE means all of it. ``owner`` is the stream that allocates and releases it; host buffers have none.
    A buffer that no task allocates is there from the start.
    """

    name: tuple[str, ...]
    size_bytes: NDArray[np.int64]
    role: tuple[str, ...]
    device: NDArray[np.int32]
    tensor: NDArray[np.int32]
    microbatch: NDArray[np.int32]
    part_dimension: NDArray[np.int32]
    part_start: NDArray[np.int64]
    part_length: NDArray[np.int64]
    owner: NDArray[np.int32]


@dataclass(frozen=True, eq=False)
class StreamTable(Columns):
    """``role`` says what it is for: compute, d2h, h2d, send, receive. A higher ``priority`` goes first."""

    name: tuple[str, ...]
    device: NDArray[np.int32]
    role: tuple[str, ...]
    priority: NDArray[np.int32]


@dataclass(frozen=True, eq=False)
class ThreadTable(Columns):
    """Host threads, each of one process. It issues its tasks in plan order."""

    name: tuple[str, ...]
    process: NDArray[np.int32]


@dataclass(frozen=True, eq=False)
class DeviceTable(Columns):
    """``name`` is the machine's name for it. A process executes the rows of its devices."""

    name: tuple[str, ...]
    process: NDArray[np.int32]


@dataclass(frozen=True, eq=False)
class RouteTable(Columns):
    """From which device to which; the machine knows the links between."""

    source: NDArray[np.int32]
    destination: NDArray[np.int32]


@dataclass(frozen=True, eq=False)
class CollectiveTable(Columns):
    """``kind`` is all_reduce, all_gather, reduce_scatter, broadcast or all_to_all, over the devices of ``team``.

    A ring goes round ``team`` in its order, and a broadcast begins at the first of it. ``algorithm`` is ring, rings,
    tree, hierarchical or auto (`stepsim.machines.collectives`).
    """

    kind: tuple[str, ...]
    algorithm: tuple[str, ...]
    team: Ragged


@dataclass(frozen=True, eq=False)
class MarkTable(Columns):
    """Names for the start of rows: the borders of a step."""

    name: tuple[str, ...]
    row: NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class TaskTable(Columns):
    """One row a task, in issue order.

    Indices into the other tables are NONE where they do not apply. A row allocates, runs, releases. ``reads`` and
    ``writes`` have one buffer for each tensor input and output of the work, in order; a buffer in both is written in
    place. ``group`` pairs a send with its receive and ties the members of a collective, one row each.
    """

    kind: NDArray[np.int8]
    device: NDArray[np.int32]
    stream: NDArray[np.int32]
    thread: NDArray[np.int32]
    blocks_thread: NDArray[np.bool_]
    work: NDArray[np.int32]
    size_bytes: NDArray[np.int64]
    route: NDArray[np.int32]
    collective: NDArray[np.int32]
    group: NDArray[np.int32]
    dependencies: Ragged
    reads: Ragged
    writes: Ragged
    allocates: Ragged
    releases: Ragged


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One row of a plan, in names instead of indices."""

    row: int
    name: str
    kind: TaskKind
    device: str | None
    stream: str | None
    thread: str
    blocks_thread: bool
    work: str | None
    size_bytes: int
    group: int | None
    dependencies: tuple[int, ...]
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    allocates: tuple[str, ...]
    releases: tuple[str, ...]


@dataclass(frozen=True, eq=False, kw_only=True)
class Plan:
    """Tasks in issue order with their tables. Two plans are equal when their content is."""

    tasks: TaskTable
    work: WorkTable
    buffers: BufferTable
    streams: StreamTable
    threads: ThreadTable
    devices: DeviceTable
    routes: RouteTable
    collectives: CollectiveTable
    marks: MarkTable

    def __post_init__(self) -> None:
        """Columns cannot be written from here on: the hash of a plan is that of its content."""
        for table in fields(self):
            for column in getattr(self, table.name).columns().values():
                for array in (column.starts, column.values) if isinstance(column, Ragged) else (column,):
                    if isinstance(array, np.ndarray):
                        array.setflags(write=False)

    def __len__(self) -> int:
        return len(self.tasks)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Plan) and self.content_hash == other.content_hash

    def __hash__(self) -> int:
        return hash(self.content_hash)

    @cached_property
    def content_hash(self) -> str:
        """SHA-256 over all tables."""
        digest = hashlib.sha256()
        for field in fields(self):
            digest.update(getattr(self, field.name).digest().encode())
        return digest.hexdigest()

    def process_of_rows(self) -> NDArray[np.int32]:
        """The process of each row: that of the thread which issues it."""
        return self.threads.process[self.tasks.thread]

    def lane_of_rows(self) -> NDArray[np.int32]:
        """Where each row stands in line: its stream, or its thread (counted after the streams) for host work."""
        tasks = self.tasks
        return np.where(tasks.stream != NONE, tasks.stream, len(self.streams) + tasks.thread)

    def lane_names(self) -> tuple[str, ...]:
        """``device stream`` for streams, then the threads, with their process where there is more than one."""
        devices = self.devices.name
        streams = zip(self.streams.device.tolist(), self.streams.name, strict=True)
        lanes = [f"{devices[device]} {name}" for device, name in streams]
        process = self.threads.process.tolist()
        if len(set(process)) <= 1:
            return (*lanes, *self.threads.name)
        threads = zip(process, self.threads.name, strict=True)
        return (*lanes, *(f"process {number} {name}" for number, name in threads))

    def row_names(self) -> list[str]:
        """For each row the work or the buffer that it is about."""
        from stepsim.plan.names import distinct_row_names

        names, index = distinct_row_names(self)
        return [names[number] for number in index.tolist()]

    def row_name(self, row: int) -> str:
        """The work, and the first buffer that ``row`` writes, else reads, else releases."""
        from stepsim.plan.names import row_name

        return row_name(self, row)

    def task(self, row: int) -> Task:
        """Row ``row`` for people."""
        tasks, buffers = self.tasks, self.buffers.name

        def named(lists: Ragged) -> tuple[str, ...]:
            return tuple(buffers[buffer] for buffer in lists[row])

        def entry(table: tuple[str, ...], column: NDArray[np.int32]) -> str | None:
            return None if column[row] == NONE else table[column[row]]

        return Task(
            row=row,
            name=self.row_name(row),
            kind=TaskKind(int(tasks.kind[row])),
            device=entry(self.devices.name, tasks.device),
            stream=entry(self.streams.name, tasks.stream),
            thread=self.threads.name[tasks.thread[row]],
            blocks_thread=bool(tasks.blocks_thread[row]),
            work=entry(self.work.kind, tasks.work),
            size_bytes=int(tasks.size_bytes[row]),
            group=None if tasks.group[row] == NONE else int(tasks.group[row]),
            dependencies=tuple(tasks.dependencies[row].tolist()),
            reads=named(tasks.reads),
            writes=named(tasks.writes),
            allocates=named(tasks.allocates),
            releases=named(tasks.releases),
        )

    def repeat(self, steps: int) -> "Plan":
        """``steps`` copies of this step, joined so that one may run into the next (`stepsim.plan.repeat`)."""
        from stepsim.plan.repeat import repeat

        return repeat(self, steps)

    def save(self, path: str | Path) -> None:
        tables = {field.name: getattr(self, field.name) for field in fields(self)}
        write_zip(path, {"format": FORMAT, "content_hash": self.content_hash}, tables)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Raises `FileError` if ``path`` holds no plan, `PlanError` if it fails the self-check."""
        from stepsim.plan.check import check_plan

        _, tables = read_zip(path, FORMAT, _TABLES)
        plan = cls(**tables)
        check_plan(plan)
        return plan


_TABLES: dict[str, type[Columns]] = {
    "tasks": TaskTable,
    "work": WorkTable,
    "buffers": BufferTable,
    "streams": StreamTable,
    "threads": ThreadTable,
    "devices": DeviceTable,
    "routes": RouteTable,
    "collectives": CollectiveTable,
    "marks": MarkTable,
}
