"""How the search of a memory strategy begins, and how the plan that it ended with is scored."""

import time
from numbers import Integral

from stepsim.errors import StepsimError
from stepsim.machines import Machine
from stepsim.memory import memory_profile
from stepsim.plan import Plan
from stepsim.strategies.memory.lowering import computing_device
from stepsim.strategies.proposal import Evaluate, Proposal

MOST_BYTES = 2**60
"""A thousand PiB: a few of them can be added in 64 bits."""

MOST_SECONDS = 1e9
"""Thirty years."""


def begin(memory_bytes: int, time_limit_s: float) -> float:
    """The monotonic time at which a search within these limits begins. Raises `StepsimError` for senseless ones."""
    if not isinstance(memory_bytes, Integral) or not 0 <= memory_bytes <= MOST_BYTES:
        raise StepsimError(f"memory limit: must be whole bytes, 0 to 2 ** 60, got {memory_bytes!s:.40}")
    if not 0 <= time_limit_s <= MOST_SECONDS:
        raise StepsimError(f"time limit: must be 0 to {MOST_SECONDS:g} seconds, got {time_limit_s!s:.40}")
    return time.monotonic()


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
