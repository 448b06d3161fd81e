"""The joint between a step and the one before it: who takes over what, who releases the rest, who waits for whom.

- What a step allocates is its own.
- What is there from the start and stays (parameters, optimizer state) is one buffer in all steps.
- What is there from the start and is released (a batch loaded ahead, a gradient applied late) is what the step before
  has left behind in its place: a buffer of the same tensor (or name), microbatch, part, device, size and owner.
- The rest of what a step leaves behind is released before the next one begins, as ``zero_grad(set_to_none=True)`` of
  PyTorch does.
- Rows wait for rows of the step before where `stepsim.plan.builder.PlanBuilder` would make them wait.
"""

from collections import defaultdict, deque
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from stepsim.errors import PlanError
from stepsim.memory import lifetimes
from stepsim.plan import NONE, BufferTable, Plan, TaskKind, TaskTable
from stepsim.tables import Ragged

Numbers = NDArray[np.int64]


def taken_from(plan: Plan) -> Numbers:
    """For each buffer of a step, which buffer of the step before it is; NONE for one that the step allocates.

    Raises `PlanError` for a buffer that is there from the start and released, and has no successor.
    """
    first, last = lifetimes(plan)
    own, released = first >= 0, last < len(plan)
    source = np.where(own, NONE, np.arange(len(first)))
    taken = np.flatnonzero(~own & released)
    source[taken] = _successors(plan.buffers, taken, np.flatnonzero(own & ~released))
    return source


def left_behind(plan: Plan, source: Numbers) -> Numbers:
    """Buffers that a step allocates, does not release, and does not hand over."""
    _, last = lifetimes(plan)
    stays = (source == NONE) & (last == len(plan))
    stays[source[source != NONE]] = False
    return np.flatnonzero(stays)


def _successors(buffers: BufferTable, taken: Numbers, left: Numbers) -> list[int]:
    """For each of ``taken`` the one of ``left`` that takes its place. Of equal ones the first goes to the first."""
    offers: dict[tuple[Any, ...], deque[int]] = defaultdict(deque)
    if len(taken):
        for buffer, place in zip(left.tolist(), _places(buffers, left), strict=True):
            offers[place].append(buffer)
    found = []
    for buffer, place in zip(taken.tolist(), _places(buffers, taken), strict=True):
        if not offers[place]:
            raise PlanError(
                f"repeat: buffer {buffers.name[buffer]!r} is there from the start and released, and the step leaves "
                "no other of the same tensor (or name), microbatch, part, device, size and owner in its place"
            )
        found.append(offers[place].popleft())
    return found


def _places(buffers: BufferTable, numbers: Numbers) -> Iterator[tuple[Any, ...]]:
    """What a buffer has in common with its successor."""
    tensors = buffers.tensor[numbers].tolist()
    names = (buffers.name[number] for number in numbers.tolist())
    subjects = (name if tensor == NONE else tensor for name, tensor in zip(names, tensors, strict=True))
    parts = (buffers.part_dimension, buffers.part_start, buffers.part_length)
    columns = (*parts, buffers.microbatch, buffers.device, buffers.size_bytes, buffers.owner)
    return zip(subjects, *(column[numbers].tolist() for column in columns), strict=True)


def with_releases(plan: Plan, left: Numbers) -> Plan:
    """``plan``, and behind it a row on each stream that owns some of ``left``: it releases them after their users."""
    stream_of = _releasing_streams(plan, left)
    streams, row_of = np.unique(stream_of, return_inverse=True)
    size, uses = len(streams), _Uses.of(plan)
    places, found = uses.of_buffers(left)
    crosses = uses.lane[found] != stream_of[places]
    releases = Ragged.from_pairs(row_of, left, size)
    filled: dict[str, Any] = {
        "kind": TaskKind.RELEASE,
        "device": plan.streams.device[streams],
        "stream": streams,
        "thread": _releasing_threads(plan, streams, releases),
        "blocks_thread": False,
        "size_bytes": 0,
        "dependencies": Ragged.from_pairs(row_of[places[crosses]], uses.last[found[crosses]], size),
        "releases": releases,
    }
    columns: dict[str, Any] = {}
    for name, column in plan.tasks.columns().items():
        if isinstance(column, Ragged):
            columns[name] = Ragged.chained([column, filled.get(name, Ragged.from_lists([[]] * size))])
        elif isinstance(column, np.ndarray):
            added = np.broadcast_to(filled.get(name, NONE), size)
            columns[name] = np.concatenate([column, added.astype(column.dtype)])
    return replace(plan, tasks=TaskTable(**columns))


def _releasing_streams(plan: Plan, left: Numbers) -> Numbers:
    """The owner of each buffer; of one that has none, as on a host, the stream that touched it last."""
    tasks, buffers = plan.tasks, plan.buffers
    touches = Ragged.chained([tasks.reads, tasks.writes, tasks.allocates])
    rows = touches.owners() % len(plan)
    on_stream = tasks.stream[rows] != NONE
    _, last = _extremes(touches.values[on_stream], rows[on_stream], len(buffers))
    stream = np.where(buffers.owner != NONE, buffers.owner, np.append(tasks.stream, NONE)[last])[left]
    for buffer in left[stream == NONE].tolist():
        name = buffers.name[buffer]
        raise PlanError(f"repeat: buffer {name!r} is left behind, and no stream touches it that could release it")
    return stream.astype(np.int64)


def _releasing_threads(plan: Plan, streams: Numbers, releases: Ragged) -> Numbers:
    """The thread that first issues to each stream; for a stream without rows, the one that allocates for it."""
    tasks = plan.tasks
    rows = np.flatnonzero(tasks.stream != NONE)
    first, last = _extremes(tasks.stream[rows], rows, len(plan.streams))
    allocated, _ = lifetimes(plan)
    rows = np.where(last[streams] != NONE, first[streams], allocated[releases.values[releases.starts[:-1]]])
    return tasks.thread[rows].astype(np.int64)


def waits_across(plan: Plan, source: Numbers) -> tuple[Numbers, Numbers]:
    """Rows, and beside each a row of the step before, on another lane, that it waits for."""
    lane = plan.lane_of_rows()
    found = (_waits_of_readers(plan, source), _waits_of_writers(plan, source), _waits_of_allocators(plan))
    rows, waits = (np.concatenate(column) for column in zip(*found, strict=True))
    crosses = (waits != NONE) & (lane[rows] != lane[waits])
    return rows[crosses], waits[crosses]


def _waits_of_readers(plan: Plan, source: Numbers) -> tuple[Numbers, Numbers]:
    """A reader waits for the last writer, which is of the step before if none of its own step comes earlier."""
    reads, writes = plan.tasks.reads, plan.tasks.writes
    first, last = _extremes(writes.values, writes.owners(), len(source))
    rows, buffers = reads.owners(), reads.values
    early = (source[buffers] != NONE) & (rows <= first[buffers])
    return rows[early], last[source[buffers[early]]]


def _waits_of_writers(plan: Plan, source: Numbers) -> tuple[Numbers, Numbers]:
    """A row that writes or releases waits for the last user on each lane, of the step before if none comes earlier."""
    writes, releases, uses = plan.tasks.writes, plan.tasks.releases, _Uses.of(plan)
    rows = np.append(writes.owners(), releases.owners())
    buffers = np.append(writes.values, releases.values)
    shared = source[buffers] != NONE
    rows, buffers = rows[shared], buffers[shared]
    places, found = uses.of_buffers(source[buffers])
    rows, buffers = rows[places], buffers[places]
    early = rows <= uses.first_on(buffers, uses.lane[found])
    return rows[early], uses.last[found[early]]


def _waits_of_allocators(plan: Plan) -> tuple[Numbers, Numbers]:
    """One that allocates for another stream waits for the last row there, of the step before if none comes earlier."""
    allocates = plan.tasks.allocates
    lane = plan.lane_of_rows()
    first, last = _extremes(lane, np.arange(len(plan)), len(plan.lane_names()))
    rows, owner = allocates.owners(), plan.buffers.owner[allocates.values]
    rows, owner = rows[owner != NONE], owner[owner != NONE]
    early = rows <= first[owner]
    return rows[early], last[owner[early]]


@dataclass(frozen=True, slots=True)
class _Uses:
    """One entry for each buffer and lane that reads or writes it, sorted: the first and the last row that does.

    ``starts`` divides the entries by buffer; ``keys`` is ``buffer * num_lanes + lane``.
    """

    num_lanes: int
    keys: Numbers
    lane: Numbers
    first: Numbers
    last: Numbers
    starts: Numbers

    @classmethod
    def of(cls, plan: Plan) -> Self:
        num_lanes = len(plan.streams) + len(plan.threads)
        reads, writes = plan.tasks.reads, plan.tasks.writes
        rows = np.append(reads.owners(), writes.owners())
        keys = np.append(reads.values, writes.values) * num_lanes + plan.lane_of_rows()[rows]
        keys, entry = np.unique(keys, return_inverse=True)
        first, last = _extremes(entry, rows, len(keys))
        starts = np.searchsorted(keys, np.arange(len(plan.buffers) + 1) * num_lanes)
        return cls(num_lanes, keys, keys % num_lanes, first, last, starts)

    def of_buffers(self, buffers: Numbers) -> tuple[Numbers, Numbers]:
        """All entries of each of ``buffers``: places in ``buffers``, and beside each an entry."""
        counts = self.starts[buffers + 1] - self.starts[buffers]
        places = np.repeat(np.arange(len(buffers)), counts)
        begins = np.cumsum(counts) - counts
        return places, np.arange(len(places)) - begins[places] + self.starts[buffers][places]

    def first_on(self, buffers: Numbers, lanes: Numbers) -> Numbers:
        """The first row on each lane that uses the buffer; `LATE` if none does."""
        keys = buffers * self.num_lanes + lanes
        entry = np.searchsorted(self.keys, keys)
        return np.where(np.append(self.keys, NONE)[entry] == keys, np.append(self.first, LATE)[entry], LATE)


LATE = np.iinfo(np.int64).max
"""Behind all rows."""


def _extremes(places: NDArray[np.integer[Any]], rows: Numbers, size: int) -> tuple[Numbers, Numbers]:
    """For each of ``size`` places the first of its rows and the last: `LATE` and NONE where there is none."""
    first, last = np.full(size, LATE), np.full(size, NONE)
    np.minimum.at(first, places, rows)
    np.maximum.at(last, places, rows)
    return first, last
