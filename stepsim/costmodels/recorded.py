"""Costs of a recorded run: each row takes what it took, neither shared nor slowed."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stepsim.errors import CalibrationError
from stepsim.machines import Machine
from stepsim.plan import CostTable, Origin, Plan, TaskCosts


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RecordedCosts:
    """``seconds`` and ``launch_s``, one entry for each row of the plan that was recorded.

    Raises `CalibrationError` when asked about a plan of another length.
    """

    seconds: NDArray[np.float64]
    launch_s: NDArray[np.float64]

    def task_costs(self, plan: Plan, machine: Machine) -> TaskCosts:
        size = len(plan)
        if not len(self.seconds) == len(self.launch_s) == size:
            raise CalibrationError(
                f"recorded seconds are for {len(self.seconds)} rows and launches for {len(self.launch_s)}, "
                f"the plan has {size}"
            )
        table = CostTable(
            seconds=self.seconds,
            launch_s=self.launch_s,
            latency_s=np.zeros(size),
            rate_cap_bytes_per_s=np.full(size, np.inf),
            fixed=np.ones(size, np.bool_),
            sm_share=np.zeros(size),
            bandwidth_share=np.zeros(size),
            spread=np.zeros(size),
            origin=np.full(size, Origin.RECORDED, np.int8),
        )
        return TaskCosts(np.arange(size, dtype=np.int32), table)
