"""Score the plan that a memory strategy ended with."""

import time

from stepsim.machines import Machine
from stepsim.memory import memory_profile
from stepsim.plan import Plan
from stepsim.strategies.memory.lowering import computing_device
from stepsim.strategies.proposal import Evaluate, Proposal


def propose(
    strategy: str,
    plan: Plan,
    machine: Machine,
    evaluate: Evaluate,
    *,
    memory_bytes: int,
    began_s: float,
    complete: bool,
) -> Proposal:
    """The proposal for ``plan``, whose search began at monotonic time ``began_s``."""
    peak_bytes = memory_profile(plan).peak_bytes(computing_device(machine))
    predicted_s = evaluate(plan).makespan_s
    return Proposal(
        strategy=strategy,
        plan=plan,
        feasible=peak_bytes <= memory_bytes,
        complete=complete,
        predicted_s=predicted_s,
        predicted_peak_bytes=peak_bytes,
        search_seconds=time.monotonic() - began_s,
    )
