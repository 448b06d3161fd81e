"""Costs: what the tasks of a plan take on a machine. A plan has none; they are given beside it."""

from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from stepsim.plan.plan import Plan
from stepsim.tables import Columns

if TYPE_CHECKING:
    from stepsim.machines import Machine


class Origin(IntEnum):
    """Where a cost comes from, in the order of trust."""

    RECORDED = 0
    MEASURED = 1
    INTERPOLATED = 2
    REGRESSED = 3
    ROOFLINE = 4
    GIVEN = 5


@dataclass(frozen=True, eq=False)
class CostTable(Columns):
    """Costs, each distinct one once.

    Work takes ``seconds``. A transfer alone takes ``latency_s + size_bytes / min(rate_cap_bytes_per_s, slowest link)``,
    a collective the same for the bytes of each of its stages (`stepsim.machines.collectives`); where ``fixed`` is set
    they take ``seconds`` whatever the links are. Issuing costs its thread ``launch_s``.

    ``sm_share`` and ``bandwidth_share`` (0 to 1) are what a kernel needs of its device to run at full speed, and what a
    transfer or collective takes of it while it runs. ``spread`` is the standard deviation of the logarithm of the time.
    """

    seconds: NDArray[np.float64]
    launch_s: NDArray[np.float64]
    latency_s: NDArray[np.float64]
    rate_cap_bytes_per_s: NDArray[np.float64]
    fixed: NDArray[np.bool_]
    sm_share: NDArray[np.float64]
    bandwidth_share: NDArray[np.float64]
    spread: NDArray[np.float64]
    origin: NDArray[np.int8]


@dataclass(frozen=True, eq=False)
class TaskCosts:
    """For each task, the row of ``table`` that holds its cost."""

    index: NDArray[np.int32]
    table: CostTable

    def seconds_alone(self, plan: Plan, machine: "Machine") -> NDArray[np.float64]:
        """What each task takes when nothing else runs, launch apart. Shape (tasks,)."""
        from stepsim.plan.paths import seconds_alone

        return seconds_alone(plan, machine, self)


class Costs(Protocol):
    """Anything that prices the tasks of a plan: a calibration, a recorded run, or given numbers."""

    def task_costs(self, plan: Plan, machine: "Machine") -> TaskCosts: ...
