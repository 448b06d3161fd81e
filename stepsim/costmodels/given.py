"""Costs that the user states: seconds for each kind of work, one latency and rate for transfers."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from stepsim.errors import CalibrationError
from stepsim.machines import Machine
from stepsim.plan import NONE, CostTable, Origin, Plan, TaskCosts


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenCosts:
    """``seconds`` by work kind (and by collective kind); transfers run at the links' bandwidth after ``latency_s``.

    For examples, tests and back-of-envelope questions. Raises `CalibrationError` for work without an entry.
    """

    seconds: Mapping[str, float] = field(default_factory=dict)
    launch_s: float = 0.0
    latency_s: float = 0.0

    def task_costs(self, plan: Plan, machine: Machine) -> TaskCosts:
        kinds = [*plan.work.kind, *plan.collectives.kind]
        missing = [kind for kind in kinds if kind not in self.seconds]
        if missing:
            raise CalibrationError(f"no seconds given for work {missing[0]!r}; given: {sorted(self.seconds)}")
        seconds = np.array([*(self.seconds[kind] for kind in kinds), 0.0])
        tasks, size = plan.tasks, len(seconds)
        grouped = np.where(tasks.collective != NONE, len(plan.work) + tasks.collective, size - 1)
        index = np.where(tasks.work != NONE, tasks.work, grouped)
        table = CostTable(
            seconds=seconds,
            launch_s=np.full(size, self.launch_s),
            latency_s=np.full(size, self.latency_s),
            rate_cap_bytes_per_s=np.full(size, math.inf),
            fixed=np.zeros(size, np.bool_),
            origin=np.full(size, Origin.GIVEN, np.int8),
        )
        return TaskCosts(index.astype(np.int32), table)
