"""Which tensors leave under an order of ops: where room is lacking, the one that is needed again last."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np

from stepsim.strategies.memory.swapadvisor.uses import Ints, Problem, Uses


@dataclass(frozen=True, eq=False)
class Leaving:
    """Numbers of the gaps in which a tensor is away, and the bytes at each place if copies took no time."""

    gaps: Sequence[int]
    level_bytes: Ints


def leaving(problem: Problem, uses: Uses, counts: Sequence[int], memory_bytes: int, threshold_ops: int) -> Leaving:
    """Go through the order twice: evict where a class has more tensors than its count, then where bytes are too many.

    The victim is the idle tensor whose next use is farthest (Belady), of those that were last used ``threshold_ops``
    places ago or more, if there are any. Each leaves once. Where none is idle the limit stays exceeded.
    """
    scan = _Scan(problem, uses, threshold_ops)
    limits = np.array(counts, np.int64)
    for place, full in np.argwhere((scan.held > limits[:, None]).T).tolist():
        while scan.held[full, place] > limits[full] and scan.evict(place, scan.open[full]):
            pass
    for place in np.flatnonzero(scan.level_bytes > memory_bytes).tolist():
        while scan.level_bytes[place] > memory_bytes and scan.evict(place, chain.from_iterable(scan.open)):
            pass
    return Leaving(scan.gone, scan.level_bytes)


class _Scan:
    """What is on the device at each place, as far as it was decided, and of each class the gaps still open."""

    def __init__(self, problem: Problem, uses: Uses, threshold_ops: int) -> None:
        self.level_bytes, self.held = uses.level_bytes.copy(), uses.held.copy()
        self.threshold_ops = threshold_ops
        self.tensor, self.after, self.before = uses.tensor.tolist(), uses.after.tolist(), uses.before.tolist()
        self.size_bytes = problem.size_bytes[uses.tensor].tolist()
        self.size_class = problem.size_class[uses.tensor].tolist()
        self.gone: list[int] = []
        self.open: list[list[int]] = [[] for _ in problem.most]
        for gap, size_class in enumerate(self.size_class):
            self.open[size_class].append(gap)

    def evict(self, place: int, gaps: Iterable[int]) -> bool:
        """Whether a tensor was idle in one of ``gaps``. Of these the first number has the farthest next use."""
        idle = [gap for gap in gaps if self.after[gap] < place < self.before[gap]]
        if idle:
            self._take(min((gap for gap in idle if place - self.after[gap] >= self.threshold_ops), default=min(idle)))
        return bool(idle)

    def _take(self, gap: int) -> None:
        size_class, out = self.size_class[gap], slice(self.after[gap] + 1, self.before[gap])
        self.gone.append(gap)
        self.level_bytes[out] -= self.size_bytes[gap]
        self.held[size_class, out] -= 1
        self.open[size_class] = [each for each in self.open[size_class] if self.tensor[each] != self.tensor[gap]]
