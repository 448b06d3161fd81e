"""A bound that no plan on one compute stream beats: what must be away at one moment has to leave and to come back.

For each op, a linear program (a relaxation: a tensor may be kept in part). While the op runs, what it reads and writes
is on the device, and what is there besides fits in the rest. Of every other tensor that is made before and read after,
the part that is not there has been copied out before, and will be copied in after; or runs again after. Before the op
lies all computing of the ops before it, after it the rest with what runs again; a copy out begins after its tensor was
made, a copy in ends before its reader starts.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np
from numpy.typing import NDArray

from stepsim.errors import WorkloadError
from stepsim.plan import TaskKind
from stepsim.strategies.memory.prices import Prices
from stepsim.strategies.memory.schedule import can_recompute, candidates
from stepsim.workloads import Phase, Workload

MOMENTS = 12
"""Each gives a true bound; those at which less is there give lower ones."""

Floats = NDArray[np.float64]
Row = tuple[Floats, float]
"""Coefficients, and what their sum is at most."""


def lower_bound_s(workload: Workload, prices: Prices, memory_bytes: int) -> float:
    """Seconds that one step takes at least, whatever is kept, swapped or computed again.

    Looks at the `MOMENTS` fullest ones. Raises `WorkloadError` where one of these ops alone, with what is never away,
    needs more than ``memory_bytes``.
    """
    compute_s = np.array([prices[TaskKind.COMPUTE, op] for op in range(len(workload.ops))])
    fixed_bytes = sum(t.size_bytes for i, t in enumerate(workload.tensors) if i not in workload.producer)
    limit_bytes = memory_bytes - fixed_bytes
    excess_bytes = _live_bytes(workload) - limit_bytes
    full = [int(op) for op in np.argsort(-excess_bytes, kind="stable")[:MOMENTS] if excess_bytes[op] > 0]
    moments = (_Moment.of(workload, prices, op, limit_bytes) for op in full)
    return max((moment.seconds(compute_s) for moment in moments), default=float(compute_s.sum()))


def _live_bytes(workload: Workload) -> Floats:
    """Bytes that are there, outside ones apart, while each op runs, if nothing ever leaves before its last reader."""
    steps = np.zeros(len(workload.ops) + 1)
    for tensor, producer in workload.producer.items():
        last = max((*workload.consumers[tensor], producer))
        steps[producer] += workload.tensors[tensor].size_bytes
        steps[last + 1] -= workload.tensors[tensor].size_bytes
    return np.asarray(steps.cumsum()[:-1], np.float64)


@dataclass(frozen=True, eq=False)
class _Moment:
    """While op ``op`` runs: the tensors that may be away then, and the bytes that these leave for them.

    ``made_by`` and ``read_by`` are the ops that make each, and that first read it after; ``out_s``, ``in_s`` what
    copying takes, ``again_s`` what its op takes to run again (infinite where it cannot).
    """

    op: int
    room_bytes: int
    size_bytes: Floats
    made_by: NDArray[np.int64]
    read_by: NDArray[np.int64]
    out_s: Floats
    in_s: Floats
    again_s: Floats

    @classmethod
    def of(cls, workload: Workload, prices: Prices, op: int, limit_bytes: int) -> Self:
        here, free = {*workload.ops[op].inputs, *workload.ops[op].outputs}, {*candidates(workload)}
        results = {workload.loss, *workload.gradients.values()}
        crossing = [
            t for t, made in workload.producer.items() if made < op and _next_reader(workload, t, op) is not None
        ]
        stays = {t for t in results if workload.producer.get(t, op) < op}
        # Tensors that no policy decides on may be away for nothing: that keeps the bound true of every plan.
        away = [t for t in crossing if t in free and t not in here and t not in stays]
        busy = sum(workload.tensors[t].size_bytes for t in {*here, *stays} if t in workload.producer)
        if busy > limit_bytes:
            raise WorkloadError(
                f"op {workload.ops[op].name!r} needs {busy - limit_bytes} bytes more than the memory limit"
            )
        makes = [workload.producer[t] for t in away]
        return cls(
            op=op,
            room_bytes=limit_bytes - busy,
            size_bytes=np.array([workload.tensors[t].size_bytes for t in away], float),
            made_by=np.array(makes, np.int64),
            read_by=np.array([_next_reader(workload, t, op) for t in away], np.int64),
            out_s=np.array([prices[TaskKind.SWAP_OUT, t] for t in away]),
            in_s=np.array([prices[TaskKind.SWAP_IN, t] for t in away]),
            again_s=np.array([_again_s(workload, prices, t) for t in away]),
        )

    def seconds(self, compute_s: Floats) -> float:
        """The least for the whole step."""
        before_s, total_s = float(compute_s[: self.op].sum()), float(compute_s.sum())
        if self.size_bytes.sum() <= self.room_bytes:
            return total_s
        return self._solve(compute_s, before_s, total_s - before_s)

    def _solve(self, compute_s: Floats, before_s: float, after_s: float) -> float:
        """Variables: seconds before, seconds after, the part of each tensor swapped, and of each op run again."""
        from scipy.optimize import linprog

        rows = [self._away(), self._computing(after_s), *self._copies(np.concatenate([[0.0], np.cumsum(compute_s)]))]
        again = np.isfinite(self._again_of_makers)
        bounds = [(before_s, None), (after_s, None), *[(0.0, 1.0)] * len(self.size_bytes), *((0.0, a) for a in again)]
        found = linprog(
            [1.0, 1.0] + [0.0] * (len(bounds) - 2),
            A_ub=np.array([coefficients for coefficients, _ in rows]),
            b_ub=np.array([limit for _, limit in rows]),
            bounds=bounds,
        )
        # What even all copies and runs cannot make away has no plan at all: any number is a bound.
        return float(found.fun) if found.status == 0 else before_s + after_s

    @cached_property
    def _makers(self) -> NDArray[np.int64]:
        return np.unique(self.made_by)

    @cached_property
    def _again_of_makers(self) -> Floats:
        return np.array([self.again_s[self.made_by == op].max() for op in self._makers])

    def _row(self, before: float, after: float, swapped: Floats, again: Floats) -> Floats:
        return np.concatenate([[before, after], swapped, again])

    def _away(self) -> Row:
        """Swapped or run again is at least what has no room."""
        again = np.array([self.size_bytes[self.made_by == op].sum() for op in self._makers])
        return self._row(0, 0, -self.size_bytes, -again), self.room_bytes - float(self.size_bytes.sum())

    def _computing(self, after_s: float) -> Row:
        again_s = np.where(np.isfinite(self._again_of_makers), self._again_of_makers, 0.0)
        return self._row(0, -1, np.zeros(len(self.size_bytes)), again_s), -after_s

    def _copies(self, done_s: Floats) -> Iterator[Row]:
        """``done_s[k]`` is when op k begins, at the earliest."""
        none = np.zeros(len(self._makers))
        for op in self._makers:
            yield self._row(-1, 0, np.where(self.made_by >= op, self.out_s, 0.0), none), -float(done_s[op + 1])
        for op in np.unique(self.read_by):
            yield self._row(0, -1, np.where(self.read_by <= op, self.in_s, 0.0), none), -float(done_s[-1] - done_s[op])


def _next_reader(workload: Workload, tensor: int, op: int) -> int | None:
    return next((reader for reader in workload.consumers[tensor] if reader > op), None)


def _again_s(workload: Workload, prices: Prices, tensor: int) -> float:
    """Only what the forward pass makes is worth running again; the rest may be away for nothing."""
    producer = workload.producer[tensor]
    if workload.ops[producer].phase is not Phase.FORWARD or not can_recompute(workload, tensor):
        return np.inf
    return prices[TaskKind.COMPUTE, producer]
