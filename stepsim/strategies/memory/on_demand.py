"""Evict what was used least recently where there is no room, and bring it back when it is read.

Peng et al., "Capuchin", ASPLOS 2020, section 4: its runtime runs the first step like this, and any other step that runs
out of memory in spite of its plan.

    F0 F1 F2 F3 ... no room before F3: x0 goes out | ... B1, x0 comes in, B0
"""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace

from stepsim.plan import TaskKind
from stepsim.strategies.memory.rows import HOST_COPY, Copy, Row, on_host, resident
from stepsim.strategies.memory.schedule import candidates
from stepsim.workloads import Workload


def evicting(workload: Workload, rows: list[Row], memory_bytes: int) -> list[Row]:
    """``rows``, not settled yet, with copies out where they exceed ``memory_bytes``, and back before the next use.

    Any tensor may go that a policy may decide on, between any two uses, but for what the row itself uses. Where nothing
    else can go the limit is exceeded.
    """
    return list(_Memory(workload, rows).rows(memory_bytes))


class _Memory:
    """What lies where while the rows pass by.

    Attributes
    ----------
    there
        Copies on the device that a later row uses, as the given rows number them, the least recently used first; with
        the copy that each is by now.
    away
        The others that a later row uses, and the copy on the host that each is by now.
    """

    def __init__(self, workload: Workload, rows: list[Row]) -> None:
        self.given = rows
        self.size_bytes = [tensor.size_bytes for tensor in workload.tensors]
        outside = {(tensor, 0) for tensor in range(len(self.size_bytes)) if tensor not in workload.producer}
        self.stay = outside | {(tensor, 0) for tensor in (workload.loss, *workload.gradients.values())}
        self.may_go = {*candidates(workload)}
        self.last_use = {copy: number for number, row in enumerate(rows) for copy in (*row.reads, *row.writes)}
        self.newest = dict(sorted(self.last_use))
        self.deepest = dict.fromkeys(self.may_go, HOST_COPY)
        self.used_bytes = resident(outside, self.size_bytes)
        self.there = {copy: copy for copy in outside}
        self.away: dict[Copy, Copy] = {}

    def rows(self, memory_bytes: int) -> Iterator[Row]:
        for number, row in enumerate(self.given):
            if row.kind is TaskKind.SWAP_OUT and row.reads[0] in self.away:
                self.away[row.writes[0]] = self.away.pop(row.reads[0])
                continue
            used = dict.fromkeys(copy for copy in (*row.reads, *row.writes) if not on_host(copy))
            for copy in [copy for copy in used if copy not in self.there]:
                yield from self._evict(memory_bytes - self.size_bytes[copy[0]], used)
                yield from self._place(copy)
            yield replace(row, reads=self._now(row.reads), writes=self._now(row.writes))
            self._touch(used, number)

    def _evict(self, limit_bytes: int, used: Collection[Copy]) -> Iterator[Row]:
        """Copy to the host what was used least recently, until no more than ``limit_bytes`` are taken."""
        idle = iter([copy for copy in self.there if copy[0] in self.may_go and copy not in used])
        while self.used_bytes > limit_bytes and (copy := next(idle, None)):
            tensor = copy[0]
            self.deepest[tensor] -= 1
            self.away[copy] = (tensor, self.deepest[tensor])
            self.used_bytes -= self.size_bytes[tensor]
            yield Row(TaskKind.SWAP_OUT, tensor, (self.there.pop(copy),), (self.away[copy],))

    def _place(self, copy: Copy) -> Iterator[Row]:
        """Count it, and bring it back if it was evicted."""
        tensor = copy[0]
        self.used_bytes += self.size_bytes[tensor]
        self.there[copy] = copy
        if copy in self.away:
            self.newest[tensor] += 1
            self.there[copy] = (tensor, self.newest[tensor])
            yield Row(TaskKind.SWAP_IN, tensor, (self.away.pop(copy),), (self.there[copy],))

    def _now(self, copies: Iterable[Copy]) -> tuple[Copy, ...]:
        return tuple(self.there.get(copy) or self.away.get(copy, copy) for copy in copies)

    def _touch(self, used: Iterable[Copy], number: int) -> None:
        """What was used moves to the end; what no later row uses goes."""
        for copy in used:
            now = self.there.pop(copy)
            if self.last_use[copy] > number:
                self.there[copy] = now
            elif copy not in self.stay:
                self.used_bytes -= self.size_bytes[copy[0]]
