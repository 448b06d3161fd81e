"""How the search of a memory strategy begins, and how the plan that it ended with is scored."""

import time
from collections.abc import Mapping
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


def lacking(peaks: Mapping[str, int], machine: Machine, memory_bytes: int) -> dict[str, tuple[int, int]]:
    """The devices that cannot hold their peak: bytes that they need, and that they have.

    The computing device has ``memory_bytes``, every other all of its own memory.
    """
    own = {device.name: device.memory_bytes for device in machine.devices}
    has = own | {computing_device(machine): memory_bytes}
    return {name: (peak_bytes, has[name]) for name, peak_bytes in peaks.items() if peak_bytes > has[name]}


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
    peaks = memory_profile(plan).peaks()
    predicted_s = evaluate(plan).makespan_s
    return Proposal(
        strategy=strategy,
        plan=plan,
        feasible=not lacking(peaks, machine, memory_bytes),
        complete=complete,
        predicted_s=predicted_s,
        predicted_peak_bytes=peaks[computing_device(machine)],
        search_seconds=time.monotonic() - began_s,
    )
