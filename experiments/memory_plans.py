"""Plans of one step to be run for real: of each memory strategy, within limits that keeping everything exceeds."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from stepsim.machines import Machine
from stepsim.plan import Costs, Plan
from stepsim.progress import say
from stepsim.report import Report, report
from stepsim.simulator import simulate
from stepsim.strategies import STRATEGIES, Proposal
from stepsim.strategies.memory.lowering import computing_device
from stepsim.units import format_bytes, format_seconds
from stepsim.workloads import Workload

WITHOUT_A_LIMIT = ("keep-all", "vdnn-all", "vdnn-conv")
"""Strategies that do the same whatever room there is; the first tells how much the others have to do with."""

UNDER_A_LIMIT = (
    "greedy",
    "home",
    "home-extended",
    "superneurons",
    "capuchin",
    "capuchin-best",
    "chen-greedy",
    "refined",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A plan to be run: its strategy, and at which share of keep-all's peak it stays; ``limit_bytes`` None: any."""

    name: str
    plan: Plan
    limit_bytes: int | None


def candidates(
    workload: Workload,
    machine: Machine,
    costs: Costs,
    *,
    shares: Sequence[float],
    more: Sequence[str] = (),
    time_limit_s: float,
) -> list[Candidate]:
    """All plans that keep their limits: without one, and at each of ``shares`` of what keep-all is predicted to need.

    ``more`` are strategies besides `UNDER_A_LIMIT`. A strategy searches for about ``time_limit_s`` at most. A plan that
    does not fit, and one that another strategy has made before, is told and left out.
    """
    found: dict[str, Candidate] = {}
    for name, proposal, limit_bytes in _proposals(workload, machine, costs, shares, more, time_limit_s):
        known = found.get(proposal.plan.content_hash)
        if known is None and proposal.feasible:
            found[proposal.plan.content_hash] = Candidate(name=name, plan=proposal.plan, limit_bytes=limit_bytes)
        peak, step = format_bytes(proposal.predicted_peak_bytes), format_seconds(proposal.predicted_s)
        without = ", does not fit" if not proposal.feasible else f", as {known.name}" if known else ""
        say(f"   {name}: peak {peak}, {step} a step{without}")
    return list(found.values())


def _proposals(
    workload: Workload,
    machine: Machine,
    costs: Costs,
    shares: Sequence[float],
    more: Sequence[str],
    time_limit_s: float,
) -> Iterator[tuple[str, Proposal, int | None]]:
    """By name, with the limit that each was made for."""

    def evaluate(plan: Plan) -> Report:
        return report(simulate(plan, machine, costs), plan)

    def propose(name: str, memory_bytes: int) -> Proposal:
        return STRATEGIES[name].plan(
            workload, machine, costs, memory_bytes=memory_bytes, evaluate=evaluate, time_limit_s=time_limit_s
        )

    has_bytes = machine.device(computing_device(machine)).memory_bytes
    free = {name: propose(name, has_bytes) for name in WITHOUT_A_LIMIT}
    for name, proposal in free.items():
        yield name, proposal, None
    for share in shares:
        limit_bytes = int(share * free[WITHOUT_A_LIMIT[0]].predicted_peak_bytes)
        for name in (*UNDER_A_LIMIT, *more):
            yield f"{name}-at-{share:g}", propose(name, limit_bytes), limit_bytes
