"""Chen's checkpoints: the forward pass in segments, of which only the borders are kept.

Chen et al., "Training Deep Nets with Sublinear Memory Cost", 2016, section 4. A segment is computed again when the
backward pass reaches it, and then stays until its last reader: one more forward pass in all.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

from stepsim.machines import Machine
from stepsim.plan import Costs
from stepsim.strategies.memory.lowering import plan_for_rows
from stepsim.strategies.memory.prices import Prices, prices_of, seconds_of
from stepsim.strategies.memory.propose import begin, propose
from stepsim.strategies.memory.rows import Row, resident_bytes, settle
from stepsim.strategies.memory.schedule import Action, Policy, can_recompute, candidates, forward_only, order
from stepsim.strategies.proposal import Evaluate, Proposal
from stepsim.workloads import Phase, Workload

GRID = 6
"""Bounds on the bytes of a segment that are tried around the first guess (Algorithm 3 and appendix)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chen:
    """Checkpoints for a budget: of all the policies of the paper the cheapest that fits, or the one of lowest peak.

    With ``square_root`` one split point in the root of their number is a checkpoint, whatever the sizes; else
    Algorithm 3 walks the forward pass and makes one wherever the bytes since the last exceed a bound, which is sought.
    ``all_ops`` takes every forward op for a split point ("linearised"); else only those whose outputs are all that
    later ops read.
    """

    name: str = "chen-greedy"
    square_root: bool = False
    all_ops: bool = False

    def plan(
        self,
        workload: Workload,
        machine: Machine,
        costs: Costs,
        *,
        memory_bytes: int,
        evaluate: Evaluate,
        time_limit_s: float,
    ) -> Proposal:
        began_s = begin(memory_bytes, time_limit_s)
        prices = prices_of(workload, machine, costs)
        trials = [_Trial.of(workload, policy, prices) for policy in self.policies(workload)]
        fitting = [trial for trial in trials if trial.peak_bytes <= memory_bytes]
        best = min(fitting, key=lambda t: t.seconds) if fitting else min(trials, key=lambda t: t.peak_bytes)
        plan = plan_for_rows(workload, machine, best.rows)
        return propose(self.name, plan, machine, evaluate, memory_bytes=memory_bytes, began_s=began_s, complete=True)

    def policies(self, workload: Workload) -> list[Policy]:
        """The policies that the search goes through, keep-all among them."""
        points = split_points(workload, all_ops=self.all_ops)
        if self.square_root:
            every = max(1, math.isqrt(len(points)))
            return [{}, *_policies(workload, points[every - 1 :: every])]
        first = _walk(workload, points, 0)
        kept, largest = _sizes(workload, points, first)
        guess = math.sqrt(max(kept * largest, 1))
        bounds = [guess * 2 ** (step / (GRID - 1) - 0.5) for step in range(GRID)]
        walks = (_walk(workload, points, bound) for bound in (0, guess, *bounds))
        return [{}, *(policy for checkpoints in walks for policy in _policies(workload, checkpoints))]


@dataclass(frozen=True, slots=True)
class _Trial:
    """The rows of a policy, their peak, and the seconds of all of them."""

    rows: list[Row]
    peak_bytes: int
    seconds: float

    @classmethod
    def of(cls, workload: Workload, policy: Policy, prices: Prices) -> Self:
        rows = list(settle(workload, order(workload, policy, 0), memory_bytes=0))
        return cls(rows, max(resident_bytes(workload, rows)), seconds_of(rows, prices))


def split_points(workload: Workload, *, all_ops: bool) -> list[int]:
    """Forward ops after which the forward pass can be cut."""
    forward = [index for index, op in enumerate(workload.ops) if op.phase is Phase.FORWARD]
    return forward if all_ops else [index for index in forward if _crosses_alone(workload, index, forward[-1])]


def _crosses_alone(workload: Workload, cut: int, last: int) -> bool:
    """Whether all that later forward ops read of what was made so far was made by this op."""
    made = (tensor for op in workload.ops[:cut] for tensor in op.outputs)
    return not any(cut < reader <= last for tensor in made for reader in workload.consumers[tensor])


def _walk(workload: Workload, points: Iterable[int], bound_bytes: float) -> list[int]:
    """Algorithm 3: a checkpoint wherever more than ``bound_bytes`` came together since the last."""
    chosen, begin, total = [], 0, 0
    for point in points:
        total += _made_bytes(workload, range(begin, point + 1))
        begin = point + 1
        if total > bound_bytes:
            chosen.append(point)
            total = 0
    return chosen


def _sizes(workload: Workload, points: list[int], chosen: list[int]) -> tuple[int, int]:
    """Bytes of all checkpoints, and of the largest segment, with the checkpoint that ends it."""
    begins = [0, *(point + 1 for point in chosen)]
    ends = [*(point + 1 for point in chosen), points[-1] + 1 if points else 0]
    segments = (_made_bytes(workload, range(begin, end)) for begin, end in zip(begins, ends, strict=True))
    return _made_bytes(workload, chosen), max(segments)


def _made_bytes(workload: Workload, ops: Iterable[int]) -> int:
    return sum(workload.tensors[tensor].size_bytes for op in ops for tensor in workload.ops[op].outputs)


def _policies(workload: Workload, checkpoints: Iterable[int]) -> list[Policy]:
    """What no checkpoint makes is dropped: of what is saved, and with what only the forward pass reads or without.

    The latter stays until its readers are computed again, if it is not dropped (any set may stay: Algorithm 2).
    """
    kept = {tensor for op in checkpoints for tensor in workload.ops[op].outputs}
    saved = [tensor for tensor in candidates(workload) if can_recompute(workload, tensor) and tensor not in kept]
    passing = [tensor for tensor in forward_only(workload) if tensor not in kept]
    choices = [saved, [*saved, *passing]] if passing else [saved]
    return [dict.fromkeys(dropped, Action.RECOMPUTE) for dropped in choices]
