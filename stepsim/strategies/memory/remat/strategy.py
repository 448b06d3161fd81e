"""Checkmate as a strategy: exact within its time limit, or rounded."""

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from stepsim.machines import Machine
from stepsim.plan import Costs, TaskKind
from stepsim.strategies.memory.lowering import plan_for_rows
from stepsim.strategies.memory.prices import Prices, prices_of
from stepsim.strategies.memory.propose import propose
from stepsim.strategies.memory.remat.problem import Schedule, recomputation_of, rows_of, with_least_work
from stepsim.strategies.memory.rows import settle
from stepsim.strategies.proposal import Evaluate, Proposal
from stepsim.workloads import Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkmate:
    """The least work by recomputation alone (Jain et al., MLSys 2020); nodes are ops, forward and backward.

    With ``rounded`` the linear relaxation, rounded in two phases; else the integer program, which is exact when it ends
    within the time limit. ``lower_bound_s`` is that of the program: for plans that recompute, not for those that swap.
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
        from stepsim.strategies.memory.remat.checkmate import solve, solve_rounded

        began_s = time.monotonic()
        problem = recomputation_of(workload, _op_seconds(workload, prices_of(workload, machine, costs)))
        found = (solve_rounded if self.rounded else solve)(problem, memory_bytes, time_limit_s=time_limit_s)
        nothing_kept = with_least_work(problem, np.zeros((len(problem),) * 2, np.bool_))
        schedule: Schedule = found.schedule or nothing_kept
        rows = list(settle(workload, rows_of(workload, schedule), memory_bytes))
        return propose(
            self.name,
            plan_for_rows(workload, machine, rows),
            machine,
            evaluate,
            memory_bytes=memory_bytes,
            began_s=began_s,
            complete=found.complete,
        )


def _op_seconds(workload: Workload, prices: Prices) -> Sequence[float]:
    return [prices[TaskKind.COMPUTE, index] for index in range(len(workload.ops))]
