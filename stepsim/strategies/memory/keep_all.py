"""Keep everything: what plain PyTorch does."""

from dataclasses import dataclass

from stepsim.machines import Machine
from stepsim.plan import Costs
from stepsim.strategies.memory.lowering import plan_for_policy
from stepsim.strategies.memory.propose import begin, propose
from stepsim.strategies.proposal import Evaluate, Proposal
from stepsim.workloads import Workload


@dataclass(frozen=True, slots=True)
class KeepAll:
    """Every saved tensor stays on the device until its last reader. Feasible when that fits."""

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
        plan = plan_for_policy(workload, machine, {}, memory_bytes)
        return propose("keep-all", plan, machine, evaluate, memory_bytes=memory_bytes, began_s=began_s, complete=True)
