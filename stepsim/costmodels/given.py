"""Costs that the user states: seconds for each kind of work, one latency and rate for transfers."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from stepsim.costmodels.distinct import collective_latency_s
from stepsim.errors import CalibrationError
from stepsim.machines import Machine
from stepsim.plan import NONE, TRANSFERS, CostTable, Origin, Plan, TaskCosts


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenCosts:
    """``seconds`` by work kind (and by collective kind); transfers run at the links' bandwidth after ``latency_s``.

    A collective kind without seconds takes what the links of its team need. ``sm_share`` and ``bandwidth_share`` (0 to
    1) are by work kind too; a kernel without an entry needs all SMs of its device. ``spread`` serves all work and
    transfers. For examples, tests and back-of-envelope questions. Raises `CalibrationError` for work without an entry.
    """

    seconds: Mapping[str, float] = field(default_factory=dict)
    launch_s: float = 0.0
    latency_s: float = 0.0
    sm_share: Mapping[str, float] = field(default_factory=dict)
    bandwidth_share: Mapping[str, float] = field(default_factory=dict)
    spread: float = 0.0

    def task_costs(self, plan: Plan, machine: Machine) -> TaskCosts:
        works, kinds = plan.work.kind, [*plan.work.kind, *plan.collectives.kind, ""]
        missing = [kind for kind in works if kind not in self.seconds]
        if missing:
            raise CalibrationError(f"no seconds given for work {missing[0]!r}; given: {sorted(self.seconds)}")
        tasks, size = plan.tasks, len(kinds)
        steps_s = np.zeros(size)
        for entry, kind in enumerate(plan.collectives.kind):
            if kind not in self.seconds:
                steps_s[len(works) + entry] = collective_latency_s(plan, machine, entry)
        is_collective = np.arange(size) >= len(works)
        grouped = np.where(tasks.collective != NONE, len(plan.work) + tasks.collective, size - 1)
        works_here = (tasks.work != NONE) & ~np.isin(tasks.kind, TRANSFERS)  # the work of a send only names its part
        index = np.where(works_here, tasks.work, grouped)
        table = CostTable(
            seconds=np.array([self.seconds.get(kind, 0.0) for kind in kinds]),
            launch_s=np.full(size, self.launch_s),
            latency_s=steps_s + self.latency_s,
            rate_cap_bytes_per_s=np.full(size, math.inf),
            fixed=is_collective & np.array([kind in self.seconds for kind in kinds]),
            sm_share=np.array([self.sm_share.get(kind, float(kind in works)) for kind in kinds]),
            bandwidth_share=np.array([self.bandwidth_share.get(kind, 0.0) for kind in kinds]),
            spread=np.full(size, self.spread),
            origin=np.full(size, Origin.GIVEN, np.int8),
        )
        return TaskCosts(index.astype(np.int32), table)
