"""When tensors are read last in the forward pass and first in the backward pass, and what it costs to be away between.

Times are those of the step that keeps everything, as the first iteration of Capuchin measures them.

    F0 F1 F2 L B2 B1 B0
       |===========|       the gap of x0: evicted when F1 ends, back when B1 begins
        out      in        its free time is the gap without both copies
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stepsim.plan import TaskKind
from stepsim.strategies.memory.prices import Prices
from stepsim.strategies.memory.schedule import candidates
from stepsim.workloads import Phase, Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """A saved tensor between its last op of the forward pass and the next op that reads it.

    ``after`` and ``before`` are these two ops; ``evicted_s`` is the end of the one, ``back_s`` the start of the other.
    ``made_s`` is the end of the op that makes it.
    """

    tensor: int
    size_bytes: int
    after: int
    before: int
    made_s: float
    evicted_s: float
    back_s: float
    out_s: float
    in_s: float

    @property
    def free_s(self) -> float:
        """Capuchin's free time, section 4.3: below 0 the copies cannot be hidden, whatever else moves."""
        return (self.back_s - self.in_s) - (self.evicted_s + self.out_s)


def gaps(workload: Workload, prices: Prices) -> list[Gap]:
    """One for each tensor that a policy may decide on, in order of their numbers."""
    seconds = [prices[TaskKind.COMPUTE, op] for op in range(len(workload.ops))]
    end_s = np.cumsum(seconds)
    found = []
    for tensor in candidates(workload):
        users = sorted({workload.producer[tensor], *workload.consumers[tensor]})
        after = max(op for op in users if workload.ops[op].phase is Phase.FORWARD)
        before = min((op for op in users if op > after), default=None)
        if before is not None:
            found.append(
                Gap(
                    tensor=tensor,
                    size_bytes=workload.tensors[tensor].size_bytes,
                    after=after,
                    before=before,
                    made_s=float(end_s[workload.producer[tensor]]),
                    evicted_s=float(end_s[after]),
                    back_s=float(end_s[before] - seconds[before]),
                    out_s=prices[TaskKind.SWAP_OUT, tensor],
                    in_s=prices[TaskKind.SWAP_IN, tensor],
                )
            )
    return found


def delay_s(swapped: Sequence[Gap]) -> float:
    """How much longer the step takes when these are swapped and one copy a direction runs at a time.

    Each copy starts as early as it can: out when the tensor was read and the copies out before are done, in when it is
    out and the copies in of all that are needed before are done.
    """
    leaving = sorted(swapped, key=lambda gap: gap.evicted_s)
    out_s = _one_by_one([gap.evicted_s for gap in leaving], [gap.out_s for gap in leaving])
    is_out_s = {gap.tensor: float(s) for gap, s in zip(leaving, out_s, strict=True)}
    coming = sorted(swapped, key=lambda gap: gap.back_s)
    in_s = _one_by_one([is_out_s[gap.tensor] for gap in coming], [gap.in_s for gap in coming])
    return max([0.0, *(float(s) - gap.back_s for gap, s in zip(coming, in_s, strict=True))])


def _one_by_one(ready_s: list[float], takes_s: list[float]) -> NDArray[np.float64]:
    """Ends of jobs that wait for each other: the latest of all starts so far, and what follows from there."""
    done_s = np.cumsum(takes_s, dtype=float)
    ends_s: NDArray[np.float64] = np.maximum.accumulate(np.array(ready_s) - (done_s - np.array(takes_s))) + done_s
    return ends_s
