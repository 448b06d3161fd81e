"""Ask a strategy for a plan of a small workload, and read its decisions off the plan."""

from small_machines import gpus

from stepsim.costmodels import GivenCosts
from stepsim.plan import Plan, TaskKind
from stepsim.report import report
from stepsim.simulator import simulate
from stepsim.strategies import Proposal, Strategy
from stepsim.strategies.memory.rows import resident_bytes
from stepsim.strategies.memory.schedule import Action, Policy, schedule
from stepsim.workloads import Workload

MACHINE = gpus(bandwidth_bytes_per_s=10.0)
"""Ten bytes, the size of most tensors here, take a second each way."""


def propose(
    strategy: Strategy, workload: Workload, memory_bytes: int, *, op_s: float = 1.0, time_limit_s: float = 60.0
) -> Proposal:
    """Every op takes ``op_s``."""
    costs = GivenCosts(seconds={op.kind: op_s for op in workload.ops})
    return strategy.plan(
        workload,
        MACHINE,
        costs,
        memory_bytes=memory_bytes,
        evaluate=lambda plan: report(simulate(plan, MACHINE, costs), plan),
        time_limit_s=time_limit_s,
    )


def count(proposal: Proposal, kind: TaskKind) -> int:
    return int((proposal.plan.tasks.kind == kind).sum())


def peak_bytes(workload: Workload, policy: Policy, memory_bytes: int = 0) -> int:
    return max(resident_bytes(workload, schedule(workload, policy, memory_bytes)))


def decisions(plan: Plan) -> dict[int, Action]:
    """Swapped is what goes out; recomputed is what a recomputation makes and a later row reads."""
    tasks, tensor = plan.tasks, plan.buffers.tensor.tolist()
    read = set(tasks.reads.values.tolist())
    found = {}
    for kind, reads, writes in zip(tasks.kind, tasks.reads.to_lists(), tasks.writes.to_lists(), strict=True):
        if kind == TaskKind.SWAP_OUT:
            found[tensor[reads[0]]] = Action.SWAP
        if kind == TaskKind.RECOMPUTE:
            found |= {tensor[buffer]: Action.RECOMPUTE for buffer in writes if buffer in read}
    return found
