"""Costs from kernel models and a data sheet, for GPUs on which this very work was never timed."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from stepsim.costmodels.datasheet import DataSheetCosts
from stepsim.costmodels.distinct import distinct
from stepsim.costmodels.kernel_tasks import kernel_tasks
from stepsim.costmodels.model import CostModel
from stepsim.costmodels.trust import first_that_knows
from stepsim.machines import Machine
from stepsim.plan import Plan, TaskCosts


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelledCosts:
    """Work by the first of ``models``, most trusted first, that knows its class; the rest as `DataSheetCosts`.

    The models read columns of `kernel_tasks`. Raises `CalibrationError` as `DataSheetCosts` does.
    """

    models: Sequence[CostModel]

    def task_costs(self, plan: Plan, machine: Machine) -> TaskCosts:
        costs = DataSheetCosts().task_costs(plan, machine)
        works = distinct(plan).works
        said = first_that_knows(self.models, kernel_tasks(plan, machine, works))
        known = np.flatnonzero(np.isfinite(said.seconds))
        columns = {}
        for name in ("seconds", "spread", "origin"):
            columns[name] = getattr(costs.table, name).copy()
            columns[name][known] = getattr(said, name)[known]
        return TaskCosts(costs.index, replace(costs.table, **columns))
