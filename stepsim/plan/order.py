"""Proof of order: what a plan reads is there, and what it reuses is free.

Each rule is a comparison of columns of `stepsim.plan.uses.Uses`. A use that needs an earlier row makes a pair with it.
Order is proved, not assumed: a pair holds when both rows stand on one lane (a stream or a thread), or when the later
one depends on a row of the earlier one's lane that does not come before it. Pairs that hold for other reasons, if at
all, are left to the vector clocks of `stepsim.plan.clocks`.
"""

from collections import defaultdict
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from stepsim.plan import NONE, Plan
from stepsim.plan.clocks import clocks
from stepsim.plan.names import row_error
from stepsim.plan.uses import Places, Uses, Verb


def check_order(plan: Plan) -> None:
    """Raises `PlanError` for the first use, in issue order, of a buffer that is not there or not free."""
    uses = Uses.of(plan)
    faults = [*_lifetime_faults(plan, uses), *_order_faults(plan, uses)]
    if faults:
        fault = min(faults, key=lambda fault: fault.number)
        (place,) = np.flatnonzero(uses.number == fault.number)
        buffer = plan.buffers.name[uses.buffer[place]]
        raise row_error(plan, int(uses.row[place]), f"buffer {buffer!r} {fault.problem}")


@dataclass(frozen=True, slots=True)
class _Fault:
    """``number`` is that of a use, in issue order."""

    number: int
    problem: str


def _lifetime_faults(plan: Plan, uses: Uses) -> list[_Fault]:
    """For each rule that needs no order between lanes, the first use that breaks it."""
    number, verb, device = uses.number, uses.verb, plan.buffers.device
    allocated = uses.first(Verb.ALLOCATE, len(device), missing=NONE)[uses.buffer]
    released = uses.first(Verb.RELEASE, len(device), missing=len(uses))[uses.buffer]
    written = uses.first(Verb.WRITE, len(device), missing=len(uses))[uses.buffer]
    abroad = plan.devices.process[device][uses.buffer] != plan.process_of_rows()[uses.row]
    return [
        _Fault(int(number[wrong].min()), problem)
        for wrong, problem in (
            ((verb == Verb.ALLOCATE) & (number > allocated), "is allocated twice"),
            (number > released, "is used after its release"),
            (number < allocated, "is used before it is allocated"),
            ((verb != Verb.ALLOCATE) & abroad, "belongs to another process"),
            ((verb == Verb.READ) & (number < written) & (allocated != NONE), "is read before it is written"),
            (_foreign(plan, uses, Verb.RELEASE), "is released on a stream that does not own it"),
        )
        if number[wrong].size
    ]


def _foreign(plan: Plan, uses: Uses, verb: Verb) -> NDArray[np.int64]:
    """Places of the uses of this kind whose row stands elsewhere than on the stream that owns the buffer."""
    places = np.flatnonzero(uses.verb == verb)
    owner = plan.buffers.owner[uses.buffer[places]]
    is_foreign = (owner != NONE) & (owner != plan.tasks.stream[uses.row[places]])
    return np.compress(is_foreign, places)


_UNORDERED = {
    Verb.ALLOCATE: "is allocated on a foreign stream before row {} of its owner stream",
    Verb.READ: "is read without waiting for row {}, which writes it",
    Verb.WRITE: "is written without waiting for row {}, which uses it",
    Verb.RELEASE: "is released without waiting for row {}, which uses it",
}


def _order_faults(plan: Plan, uses: Uses) -> list[_Fault]:
    """The first use that is not ordered after a row it needs, if there is one; of several such rows the last."""
    pairs = _unproved(plan, _pairs(plan, uses))
    needs: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for pair in np.lexsort((-pairs.needed, uses.number[pairs.use])).tolist():
        needs[int(pairs.row[pair])].append((int(pairs.use[pair]), int(pairs.needed[pair])))
    lane = plan.lane_of_rows()
    for row, clock in clocks(plan, _up_to_last(plan, pairs.row)):
        for use, needed in needs[row]:
            if clock.get(int(lane[needed]), NONE) < needed:
                return [_Fault(int(uses.number[use]), _UNORDERED[Verb(uses.verb[use])].format(needed))]
    return []


def _up_to_last(plan: Plan, rows: Places) -> list[int]:
    """All rows of the processes of ``rows``, up to the last of these."""
    process = plan.process_of_rows()[: rows.max(initial=NONE) + 1]
    return np.flatnonzero(np.isin(process, process[rows])).tolist()


@dataclass(frozen=True, eq=False)
class _Pairs:
    """``row`` makes ``use`` (a place in the table of uses), and that must come after row ``needed``."""

    use: Places
    row: Places
    needed: Places

    def where(self, which: NDArray[np.bool_]) -> Self:
        return type(self)(self.use[which], self.row[which], self.needed[which])


def _pairs(plan: Plan, uses: Uses) -> _Pairs:
    """A read needs the last write, a write or release all uses since the last write, and that one too.

    An allocation on a foreign stream needs the last row of the owner stream. What stands on one lane is left out.
    """
    lane = plan.lane_of_rows()[uses.row]
    is_read, is_write = uses.verb == Verb.READ, uses.verb == Verb.WRITE
    write, claim = uses.last_before(is_write), uses.next_after(uses.verb >= Verb.WRITE)
    reads = np.flatnonzero(is_read & (write != NONE) & (lane[write] != lane))
    claimed = np.flatnonzero((is_read | is_write) & (claim != NONE) & (lane[claim] != lane))
    allocations = _foreign(plan, uses, Verb.ALLOCATE)
    last = _last_on_lane(plan, plan.buffers.owner[uses.buffer[allocations]], uses.row[allocations])
    use = np.concatenate([reads, claim[claimed], allocations])
    needed = np.concatenate([uses.row[write[reads]], uses.row[claimed], last])
    return _Pairs(use, uses.row[use], needed).where(needed != NONE)


def _last_on_lane(plan: Plan, lanes: Places, rows: Places) -> Places:
    """For each of ``rows`` the last earlier row on the lane beside it, else NONE."""
    size = len(plan)
    keys = np.sort(plan.lane_of_rows().astype(np.int64) * size + np.arange(size), kind="stable")
    found = np.searchsorted(keys, lanes.astype(np.int64) * size + rows) - 1
    lane, row = np.divmod(keys[found], max(size, 1))
    return np.where((found >= 0) & (lane == lanes), row, NONE).astype(np.int32)


def _unproved(plan: Plan, pairs: _Pairs) -> _Pairs:
    """Those whose row has no dependency on the lane of ``needed`` that is ``needed`` itself or a later row there."""
    size, lane, dependencies = len(plan), plan.lane_of_rows(), plan.tasks.dependencies
    by_lane = np.argsort(lane, kind="stable")
    rank = np.empty(size, np.int64)
    rank[by_lane] = np.arange(size)
    keys = dependencies.owners() * size + rank[dependencies.values]
    keys = np.append(np.sort(keys, kind="stable"), size * size)
    found = keys[np.searchsorted(keys, pairs.row.astype(np.int64) * size + rank[pairs.needed])]
    row, other = np.divmod(found, max(size, 1))
    other = by_lane[np.where(row == pairs.row, other, 0)]
    return pairs.where((row != pairs.row) | (lane[other] != lane[pairs.needed]))
