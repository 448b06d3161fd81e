"""What a plan allocates and releases, device by device, and the bytes that are there row by row.

Only what changes is kept: a plan of millions of rows on a thousand devices takes memory by its buffers, not by rows
times devices.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stepsim.plan import Plan
from stepsim.tables import Ragged

NO_ROW = -1
"""Before the first row: what is there from the start."""


@dataclass(frozen=True, eq=False, kw_only=True)
class MemoryEvents:
    """Buffers that come and go. Those of device ``d`` are ``starts[d]`` to ``starts[d + 1]``.

    They are in issue order: what is there from the start (row NO_ROW, in the order of the table), then row by row what
    it allocates and what it releases.
    """

    starts: NDArray[np.int64]
    row: NDArray[np.int32]
    buffer: NDArray[np.int32]
    released: NDArray[np.bool_]


@dataclass(frozen=True, eq=False, kw_only=True)
class Levels:
    """Bytes on each device while a row runs (what it allocates is there, what it releases still is) and after it.

    ``initial`` has one entry a device: what is there before the first row. ``rows`` lists for each device the rows that
    change it; ``during`` and ``after`` have one entry for each of them, end to end.
    """

    initial: NDArray[np.int64]
    rows: Ragged
    during: NDArray[np.int64]
    after: NDArray[np.int64]

    def peak_bytes(self, device: int) -> int:
        return int(self.during[self._of(device)].max(initial=self.initial[device]))

    def peak_row(self, device: int) -> int:
        """The first row at which the peak is there."""
        during = self.during[self._of(device)]
        if during.max(initial=0) <= self.initial[device]:
            return 0
        return int(self.rows[device][during.argmax()])

    def by_row(self, device: int, num_rows: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Bytes while each row runs and after it, the rows that change nothing included: shape (rows,) each."""
        rows, level = self.rows[device], np.append(self.initial[device], self.after[self._of(device)])
        after = level[np.searchsorted(rows, np.arange(num_rows), side="right")]
        during = after.copy()
        during[rows] = self.during[self._of(device)]
        return during, after

    def while_row(self, device: int, row: int) -> int:
        """Bytes while ``row`` runs; at NO_ROW, before the first."""
        rows = self.rows[device]
        place = int(np.searchsorted(rows, row))
        if place < len(rows) and rows[place] == row:
            return int(self.during[self._of(device)][place])
        return int(self.after[self._of(device)][place - 1] if place else self.initial[device])

    def first_over(self, device: int, limit_bytes: int) -> int | None:
        """The first row at which more than ``limit_bytes`` is there; NO_ROW if that is so from the start."""
        if self.initial[device] > limit_bytes:
            return NO_ROW
        over = np.flatnonzero(self.during[self._of(device)] > limit_bytes)
        return int(self.rows[device][over[0]]) if len(over) else None

    def _of(self, device: int) -> slice:
        return slice(int(self.rows.starts[device]), int(self.rows.starts[device + 1]))


def memory_events(plan: Plan) -> MemoryEvents:
    """One pass over the lists of ``plan``; a thousand devices take no longer than one."""
    row, buffer, released = _in_issue_order(plan)
    num_devices = len(plan.devices)
    device = plan.buffers.device[buffer].astype(_narrow(num_devices))
    order = np.argsort(device, kind="stable")
    starts = _starts(device, num_devices)
    return MemoryEvents(starts=starts, row=row[order], buffer=buffer[order], released=released[order])


def _in_issue_order(plan: Plan) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.bool_]]:
    """Row, buffer and whether it is released: the events of all devices together."""
    allocates, releases = plan.tasks.allocates, plan.tasks.releases
    there = np.ones(len(plan.buffers), np.bool_)
    there[allocates.values] = False
    first = np.flatnonzero(there)
    total = len(first) + len(allocates.values) + len(releases.values)
    row, buffer, released = np.full(total, NO_ROW, np.int32), np.empty(total, np.int32), np.zeros(total, np.bool_)
    buffer[: len(first)] = first
    # Before an allocation stand all others before it and the releases of earlier rows; before a release also the
    # allocations of its own row.
    for lists, others, own_row in ((allocates, releases.starts, 0), (releases, allocates.starts, 1)):
        rows = lists.owners()
        place = len(first) + np.arange(len(rows)) + others[rows + own_row]
        row[place], buffer[place], released[place] = rows, lists.values, lists is releases
    return row, buffer, released


def exact_bytes(events: MemoryEvents, buffer_bytes: NDArray[np.int64]) -> NDArray[np.int64]:
    """What is there after each event, on its device, if a buffer takes ``buffer_bytes``."""
    change = buffer_bytes[events.buffer]
    np.negative(change, out=change, where=events.released)
    begin = events.starts[:-1][np.diff(events.starts) > 0]
    if len(begin):
        change[begin[1:]] -= np.add.reduceat(change, begin)[:-1]
    return np.cumsum(change, out=change)


def levels(events: MemoryEvents, event_bytes: NDArray[np.int64]) -> Levels:
    """The events of a row as one change. ``event_bytes`` is what is there after each event, on its device."""
    num_events = len(events.row)
    of_device = np.zeros(num_events + 1, np.bool_)
    of_device[events.starts] = True
    begin = np.flatnonzero(of_device[:-1] | (np.diff(events.row, prepend=NO_ROW) != 0))
    end = np.append(begin[1:], num_events)[: len(begin)] - 1
    during = np.where(of_device[begin], 0, event_bytes[begin - 1])
    if len(begin):
        np.maximum(during, np.maximum.reduceat(event_bytes, begin), out=during)
    after, row = event_bytes[end], events.row[begin]
    there = row == NO_ROW
    bounds = np.searchsorted(begin, events.starts)
    starts = bounds - np.append(0, np.cumsum(there))[bounds]
    initial = np.zeros(len(events.starts) - 1, np.int64)
    initial[np.diff(bounds) > np.diff(starts)] = after[there]
    rows = Ragged(starts, row[~there].astype(np.int64))
    return Levels(initial=initial, rows=rows, during=during[~there], after=after[~there])


def levels_of_rows(
    num_devices: int, device: int, initial_bytes: int, during: NDArray[np.int64], after: NDArray[np.int64]
) -> Levels:
    """Levels that are known for each row of ``device`` (``during`` and ``after`` have shape (rows,)); no other is."""
    initial = np.zeros(num_devices, np.int64)
    initial[device] = initial_bytes
    before = np.append(initial_bytes, after[:-1])[: len(after)]
    rows = np.flatnonzero((during != before) | (after != before))
    starts = _starts(np.full(len(rows), device), num_devices)
    return Levels(initial=initial, rows=Ragged(starts, rows), during=during[rows], after=after[rows])


def _starts(device: NDArray[np.integer], num_devices: int) -> NDArray[np.int64]:
    counts = np.bincount(device, minlength=num_devices)
    return np.append(0, np.cumsum(counts)).astype(np.int64)


def _narrow(num_devices: int) -> type[np.integer]:
    """numpy sorts integers of 16 bits in linear time."""
    return np.uint16 if num_devices <= 2**16 else np.int32
