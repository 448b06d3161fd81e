"""Where plans run for real, and what rows cost there: a GPU, or this CPU with an emulated link beside it."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from stepsim.costmodels import Calibration
from stepsim.machines import Machine, with_emulated_link
from stepsim.plan import Costs, Plan, TaskCosts

if TYPE_CHECKING:
    from stepsim.executor.lanes import Lanes

EMULATED_BYTES_PER_S = 1e9


@dataclass(frozen=True, slots=True)
class InLine:
    """``calibration`` for rows that run on the thread that issues them: what issuing takes is part of the row."""

    calibration: Calibration

    def task_costs(self, plan: Plan, machine: Machine) -> TaskCosts:
        costs = self.calibration.task_costs(plan, machine)
        computes = costs.table.seconds > 0
        seconds = costs.table.seconds + np.where(computes, costs.table.launch_s, 0.0)
        return replace(costs, table=replace(costs.table, seconds=seconds, launch_s=np.zeros_like(costs.table.launch_s)))


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Place:
    """A machine, and the lanes that all plans run on there: what one leaves in a pool of memory the next one finds."""

    machine: Machine
    lanes: "Lanes"

    @classmethod
    def of(cls, device: str) -> "Place":
        """A GPU as it is; a CPU with a link emulated at `EMULATED_BYTES_PER_S`, and all its cores but one for an op.

        Raises `MachineError` for a device that is not here.
        """
        from stepsim.executor import find_device, machine_of, use_threads
        from stepsim.executor.devices import lanes_of
        from stepsim.executor.paced_lanes import PacedLanes

        there = find_device(device)
        machine = machine_of(there)
        if there.type == "cuda":
            return cls(machine=machine, lanes=lanes_of(there))
        use_threads()
        return cls(machine=with_emulated_link(machine, EMULATED_BYTES_PER_S), lanes=PacedLanes(EMULATED_BYTES_PER_S))

    def costs(self, calibration: Calibration) -> Costs:
        """What ``calibration`` says of rows that run here."""
        return InLine(calibration) if self.lanes.device.type == "cpu" else calibration
