"""Checkmate as a strategy: exact within its time limit, or rounded."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from stepsim.machines import Machine
from stepsim.plan import Costs, TaskKind
from stepsim.strategies.memory.lowering import plan_for_rows
from stepsim.strategies.memory.prices import Prices, prices_of
from stepsim.strategies.memory.propose import begin, propose
from stepsim.strategies.memory.remat.problem import (
    Recomputation,
    Schedule,
    peak_bytes,
    recomputation_of,
    rows_of,
    with_least_work,
)
from stepsim.strategies.memory.rows import settle
from stepsim.strategies.proposal import Evaluate, Proposal
from stepsim.workloads import Workload

SETTING_UP_S = 1.5e-4
"""For each pair of nodes, before HiGHS first looks at its clock: 32 s for the 460 of ResNet-50, on one core of a server
of 2026."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkmate:
    """The least work by recomputation alone (Jain et al., MLSys 2020); nodes are ops, forward and backward.

    With ``rounded`` the linear relaxation, rounded in two phases; else the integer program, which is exact when it ends
    within the time limit. No program is set up where everything fits, or where setting it up takes all the time. Where
    it gives nothing, whatever can be recomputed is not kept from stage to stage.
    """

    name: str = "checkmate"
    rounded: bool = False

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
        problem = recomputation_of(workload, _op_seconds(workload, prices_of(workload, machine, costs)))
        schedule, complete = self._schedule(problem, memory_bytes, time_limit_s)
        rows = list(settle(workload, rows_of(workload, schedule), memory_bytes))
        return propose(
            self.name,
            plan_for_rows(workload, machine, rows),
            machine,
            evaluate,
            memory_bytes=memory_bytes,
            began_s=began_s,
            complete=complete,
        )

    def _schedule(self, problem: Recomputation, memory_bytes: int, time_limit_s: float) -> tuple[Schedule, bool]:
        """The schedule, and whether the search ended by itself."""
        from stepsim.strategies.memory.remat.checkmate import solve, solve_rounded

        everything, nothing = (
            with_least_work(problem, np.full((len(problem),) * 2, kept, np.bool_)) for kept in (True, False)
        )
        if peak_bytes(problem, everything) <= memory_bytes:
            return everything, True
        if SETTING_UP_S * len(problem) ** 2 > time_limit_s:
            return nothing, False
        found = (solve_rounded if self.rounded else solve)(problem, memory_bytes, time_limit_s=time_limit_s)
        return found.schedule or nothing, found.complete


def _op_seconds(workload: Workload, prices: Prices) -> Sequence[float]:
    return [prices[TaskKind.COMPUTE, index] for index in range(len(workload.ops))]
