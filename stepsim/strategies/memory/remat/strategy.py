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
    keep_everything,
    recomputation_of,
    rows_of,
    with_least_work,
)
from stepsim.strategies.memory.rows import resident_bytes, settle
from stepsim.strategies.proposal import Evaluate, Proposal
from stepsim.workloads import Workload

SETTING_UP_S = 1.5e-4
"""For each pair of nodes, before HiGHS first looks at its clock: 32 s for the 460 of ResNet-50, on one core of a server
of 2026."""

FIRST_ROUNDED = 0.25
"""Of the time limit of the integer program, for the relaxation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkmate:
    """The least work by recomputation alone (Jain et al., MLSys 2020); nodes are ops, forward and backward.

    With ``rounded`` the linear relaxation, rounded in two phases; else the integer program, which is exact when it ends
    within the time limit; before it what the relaxation gives in a part of that time, in case it does not. No program
    is set up where everything fits, or where setting it up takes all the time. Where there is nothing else, whatever
    can be recomputed is not kept from stage to stage.
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
        everything = list(settle(workload, rows_of(workload, keep_everything(problem)), memory_bytes))
        rows, complete = everything, True
        if max(resident_bytes(workload, everything)) > memory_bytes:
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

        if SETTING_UP_S * len(problem) ** 2 > time_limit_s:
            return _nothing_kept(problem), False
        share_s = time_limit_s if self.rounded else FIRST_ROUNDED * time_limit_s
        found = [solve_rounded(problem, memory_bytes, time_limit_s=share_s)]
        if not self.rounded:
            found.append(solve(problem, memory_bytes, time_limit_s=time_limit_s - share_s))
        schedules = [solution.schedule for solution in found if solution.schedule is not None]
        best = min(schedules, key=lambda schedule: schedule.seconds(problem), default=None)
        return best or _nothing_kept(problem), found[-1].complete


def _nothing_kept(problem: Recomputation) -> Schedule:
    return with_least_work(problem, np.zeros((len(problem),) * 2, np.bool_))


def _op_seconds(workload: Workload, prices: Prices) -> Sequence[float]:
    return [prices[TaskKind.COMPUTE, index] for index in range(len(workload.ops))]
