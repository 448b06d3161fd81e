"""All uses of buffers of a plan as columns, sorted by buffer: what `stepsim.plan.order` asks its questions of."""

from dataclasses import dataclass
from enum import IntEnum
from typing import Self

import numpy as np
from numpy.typing import NDArray

from stepsim.plan import NONE, Plan

Mask = NDArray[np.bool_]
Places = NDArray[np.int32]


class Verb(IntEnum):
    """What a row does to a buffer, in the order in which it does it."""

    ALLOCATE = 0
    READ = 1
    WRITE = 2
    RELEASE = 3


@dataclass(frozen=True, eq=False)
class Uses:
    """One entry a use, sorted by buffer and then in issue order.

    ``number`` counts the uses of the plan in issue order: row by row, within a row by verb, within a verb as listed.
    ``begin`` is the place of the first use of the same buffer.
    """

    number: Places
    buffer: Places
    row: Places
    verb: NDArray[np.int8]
    begin: Places

    @classmethod
    def of(cls, plan: Plan) -> Self:
        tasks = plan.tasks
        lists = (tasks.allocates, tasks.reads, tasks.writes, tasks.releases)
        lengths = np.stack([np.diff(column.starts) for column in lists], axis=1)
        verb = np.repeat(np.tile(np.arange(len(lists), dtype=np.int8), len(plan)), lengths.ravel())
        row = np.repeat(np.arange(len(plan), dtype=np.int32), lengths.sum(axis=1))
        keys, bits = np.empty(len(verb), np.int64), len(verb).bit_length()
        for which, column in enumerate(lists):
            keys[verb == which] = column.values << bits
        keys += np.arange(len(keys))
        # Uses of one buffer come near each other already; this sort, unlike the default one, gains from that.
        keys.sort(kind="stable")
        number, buffer = (keys & ((1 << bits) - 1)).astype(np.int32), (keys >> bits).astype(np.int32)
        begin = _last_so_far(np.diff(buffer, prepend=np.int32(NONE)) != 0)
        return cls(number, buffer, row[number], verb[number], begin)

    def __len__(self) -> int:
        return len(self.number)

    def first(self, verb: Verb, num_buffers: int, missing: int) -> Places:
        """For each buffer the number of its first use of this kind, ``missing`` if there is none."""
        found = np.full(num_buffers, missing, np.int32)
        backwards = np.flatnonzero(self.verb == verb)[::-1]
        found[self.buffer[backwards]] = self.number[backwards]
        return found

    def last_before(self, which: Mask) -> Places:
        """For each use the place of the last earlier use of its buffer that is one of ``which``, else NONE."""
        found = np.roll(_last_so_far(which), 1)
        found[:1] = NONE
        found[found < self.begin] = NONE
        return found

    def next_after(self, which: Mask) -> Places:
        """For each use the place of the next later use of its buffer that is one of ``which``, else NONE."""
        places = np.append(np.flatnonzero(which), NONE).astype(np.int32)
        found = places[np.cumsum(which, dtype=np.int32)]
        found[self.begin[found] != self.begin] = NONE
        return found


def _last_so_far(which: Mask) -> Places:
    """For each place the last one, up to itself, where ``which`` is true; NONE before the first."""
    return np.maximum.accumulate(np.where(which, np.arange(len(which), dtype=np.int32), np.int32(NONE)))
