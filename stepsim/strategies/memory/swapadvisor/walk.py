"""A step under an order and what leaves, walked through in time: when each tensor comes back, and how long it takes.

The walk keeps the books as `stepsim.strategies.memory.rows.settle` does: one lane for each direction of copies, room
given back when it is needed, first out first. A copy out reads what an op wrote: if its lane is free it may begin when
that is done, before the last use. Launches cost nothing, and copies do not slow each other.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from stepsim.strategies.memory.rows import Row
from stepsim.strategies.memory.swapadvisor.belady import Leaving
from stepsim.strategies.memory.swapadvisor.uses import Problem, Uses
from stepsim.strategies.memory.writer import Writer


@dataclass(frozen=True, slots=True)
class Walked:
    """Seconds of the step, the most bytes there were, and the returns: before which place, and of which gap."""

    seconds: float
    peak_bytes: int
    returns: tuple[tuple[int, int], ...]


def walk(problem: Problem, order: Sequence[int], uses: Uses, leaving: Leaving, memory_bytes: int) -> Walked:
    """Tensors come back in the order in which they are needed, each as early as there is room for it.

    That is: as soon as it is out, where it fits now beside the next op, and from now until it is needed.
    """
    return _Walk(problem, uses, leaving, memory_bytes).run(order)


def rows_of(problem: Problem, order: Sequence[int], uses: Uses, leaving: Leaving, walked: Walked) -> list[Row]:
    """Rows of the step, not settled yet."""
    writer = Writer(problem.workload)
    come, gone = _by_place(walked.returns), _by_place((int(uses.after[gap]), gap) for gap in leaving.gaps)
    for place, op in enumerate(order):
        for gap in come.get(place, ()):
            writer.swap_in(int(uses.tensor[gap]))
        writer.compute(op)
        for tensor in (int(uses.tensor[gap]) for gap in gone.get(place, ())):
            writer.swap_out(tensor)
            writer.drop(tensor)
    return writer.rows


def _by_place(pairs: Iterable[tuple[int, int]]) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for place, gap in pairs:
        found.setdefault(place, []).append(gap)
    return found


class _Walk:
    """Where time and bytes stand."""

    def __init__(self, problem: Problem, uses: Uses, leaving: Leaving, memory_bytes: int) -> None:
        self.problem, self.memory_bytes = problem, memory_bytes
        self.tensor, self.after, self.before = uses.tensor.tolist(), uses.after.tolist(), uses.before.tolist()
        self.made_bytes, self.dead_bytes = uses.made_bytes.tolist(), uses.dead_bytes.tolist()
        self.size_bytes = problem.size_bytes[uses.tensor].tolist()
        self.level_bytes = leaving.level_bytes.copy()
        self.gone = _by_place((self.after[gap], gap) for gap in leaving.gaps)
        self.due = sorted(leaving.gaps, key=lambda gap: (-self.before[gap], -self.after[gap], gap))
        self.now_s = self.in_free_s = self.out_free_s = 0.0
        self.used_bytes = self.peak_bytes = problem.outside_bytes
        self.done_s: dict[int, float] = {}
        self.on_host_s: dict[int, float] = {}
        self.outgoing: dict[int, int] = {}
        self.back_s = [0.0] * len(self.made_bytes)
        self.returns: list[tuple[int, int]] = []

    def run(self, order: Sequence[int]) -> Walked:
        for place, op in enumerate(order):
            while self.due and (self.before[self.due[-1]] == place or self._may_return(self.due[-1], place)):
                self._return(self.due.pop(), place)
            self._make_room(self.made_bytes[place])
            self.now_s = max(self.now_s, self.back_s[place]) + self.problem.op_s[op]
            self.done_s[op] = self.now_s
            self.used_bytes -= self.dead_bytes[place]
            for gap in self.gone.get(place, ()):
                self._leave(gap)
        return Walked(self.now_s, self.peak_bytes, tuple(self.returns))

    def _leave(self, gap: int) -> None:
        tensor = self.tensor[gap]
        made_s = self.done_s[self.problem.workload.producer[tensor]]
        self.out_free_s = max(self.out_free_s, made_s) + self.problem.out_s[tensor]
        self.on_host_s[tensor] = self.out_free_s
        self.outgoing[tensor] = self.size_bytes[gap]

    def _may_return(self, gap: int, place: int) -> bool:
        if self.after[gap] >= place or self.on_host_s[self.tensor[gap]] > self.now_s:
            return False
        idle_bytes = sum(size for tensor, size in self.outgoing.items() if self.on_host_s[tensor] <= self.now_s)
        now_bytes = self.used_bytes - idle_bytes + self.made_bytes[place]
        most_bytes = max(now_bytes, int(self.level_bytes[place : self.before[gap]].max()))
        return bool(most_bytes + self.size_bytes[gap] <= self.memory_bytes)

    def _return(self, gap: int, place: int) -> None:
        """Ask for it; computing waits where it is still on its way out, or has to give it room."""
        if self.tensor[gap] in self.outgoing:
            self._release(self.tensor[gap])
        self._make_room(self.size_bytes[gap])
        self.in_free_s = max(self.in_free_s, self.now_s) + self.problem.in_s[self.tensor[gap]]
        self.level_bytes[place : self.before[gap]] += self.size_bytes[gap]
        self.back_s[self.before[gap]] = self.in_free_s
        self.returns.append((place, gap))

    def _make_room(self, need_bytes: int) -> None:
        while self.outgoing and self.used_bytes + need_bytes > self.memory_bytes:
            self._release(next(iter(self.outgoing)))
        self.used_bytes += need_bytes
        self.peak_bytes = max(self.peak_bytes, self.used_bytes)

    def _release(self, tensor: int) -> None:
        self.used_bytes -= self.outgoing.pop(tensor)
        self.now_s = max(self.now_s, self.on_host_s[tensor])
