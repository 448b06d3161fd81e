"""Every policy of a small graph: the exact optimum that searches are held against."""

import itertools
import time
from collections.abc import Iterator
from dataclasses import dataclass

from stepsim.errors import WorkloadError
from stepsim.machines import Machine
from stepsim.plan import Costs
from stepsim.strategies.memory.lowering import plan_for_policy
from stepsim.strategies.memory.propose import begin, propose
from stepsim.strategies.memory.rows import resident_bytes
from stepsim.strategies.memory.schedule import Action, Policy, can_recompute, candidates, schedule
from stepsim.strategies.proposal import Evaluate, Proposal
from stepsim.workloads import Workload

MOST_TENSORS = 12
"""3 ** 12 policies take minutes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exhaustive:
    """The fastest of all policies that fit, as ``evaluate`` sees it; where none fits, the one of lowest peak.

    Raises `WorkloadError` for more than `MOST_TENSORS` tensors to decide on.
    """

    name: str = "exhaustive"
    actions: tuple[Action, ...] = (Action.SWAP, Action.RECOMPUTE)

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
        best: tuple[tuple[int, float], Policy] | None = None
        complete = True
        for policy in self.policies(workload):
            if time.monotonic() - began_s > time_limit_s and best is not None:
                complete = False
                break
            excess = max(0, max(resident_bytes(workload, schedule(workload, policy, memory_bytes))) - memory_bytes)
            if best is not None and excess > best[0][0]:
                continue
            seconds = evaluate(plan_for_policy(workload, machine, policy, memory_bytes)).makespan_s
            if best is None or (excess, seconds) < best[0]:
                best = (excess, seconds), policy
        plan = plan_for_policy(workload, machine, {} if best is None else best[1], memory_bytes)
        return propose(
            self.name, plan, machine, evaluate, memory_bytes=memory_bytes, began_s=began_s, complete=complete
        )

    def policies(self, workload: Workload) -> Iterator[Policy]:
        """Keep-all first."""
        tensors = candidates(workload)
        if len(tensors) > MOST_TENSORS:
            raise WorkloadError(f"{self.name} search is for at most {MOST_TENSORS} tensors, got {len(tensors)}")
        choices = [[None, *(a for a in self.actions if _allowed(workload, tensor, a))] for tensor in tensors]
        for chosen in itertools.product(*choices):
            yield {tensor: action for tensor, action in zip(tensors, chosen, strict=True) if action is not None}


def _allowed(workload: Workload, tensor: int, action: Action) -> bool:
    return action is Action.SWAP or can_recompute(workload, tensor)
