"""Proposal: what a strategy found, and the Strategy protocol."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from stepsim.machines import Machine
from stepsim.plan import Costs, Plan
from stepsim.report import Report
from stepsim.workloads import Workload

Evaluate = Callable[[Plan], Report]
"""Scores a candidate plan; the caller gives it, so that strategies need no simulator.

Searches compare plans that exceed the memory limit or the host's memory, too: it must score them.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """A plan with what is promised of it.

    ``feasible``: its peak on the computing device, which is ``predicted_peak_bytes``, meets the limit that was asked
    for, and what it swaps out fits in the memory of the host. ``complete``: the search ended by itself, not by its time
    limit. ``lower_bound_s`` is a proven bound on any plan's step time, where the strategy has one.
    """

    strategy: str
    plan: Plan
    feasible: bool
    complete: bool
    predicted_s: float
    predicted_peak_bytes: int
    search_seconds: float
    lower_bound_s: float | None = None


class Strategy(Protocol):
    """Frozen options with one verb."""

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
        """A plan for one step of ``workload`` whose peak on the computing device is at most ``memory_bytes``.

        Raises `StepsimError` for limits that are none: below 0, NaN, or larger than any can be.
        """
        ...
