"""What steps of the control experiments take: products by their FLOP, all else by its bytes, copies by their links."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
from numpy.typing import NDArray

from experiments.home_costs import UNLIMITED_BYTES
from stepsim.costmodels.datasheet import flow_at_links
from stepsim.costmodels.distinct import cost_table, distinct, flows
from stepsim.costmodels.model import uniform
from stepsim.machines import Machine
from stepsim.plan import Origin, Plan, TaskCosts
from stepsim.report import Report, report
from stepsim.simulator import simulate
from stepsim.strategies import Proposal, Strategy
from stepsim.workloads import Workload

TIME_LIMIT_S = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlCosts:
    """Work that counts FLOP takes what they take at ``flop_per_s``, other work what its bytes take."""

    flop_per_s: float
    memory_bytes_per_s: float

    def task_costs(self, plan: Plan, machine: Machine) -> TaskCosts:
        found = distinct(plan)
        moves = [flow_at_links(plan, machine, route) for route in found.moves[:, 0].tolist()]
        table = cost_table(
            work=uniform(self._work_s(plan, found.works[:, 0]), Origin.ROOFLINE),
            moves=flows(moves, Origin.ROOFLINE),
            collectives=flows([], Origin.ROOFLINE),
            launch_s=0.0,
        )
        return TaskCosts(found.index, table)

    def _work_s(self, plan: Plan, work: NDArray[np.int64]) -> NDArray[np.float64]:
        flop, size_bytes = plan.work.flop[work], (plan.work.bytes_read + plan.work.bytes_written)[work]
        return np.where(flop > 0, flop / self.flop_per_s, size_bytes / self.memory_bytes_per_s)


def unlimited(machine: Machine) -> Machine:
    """With memory for plans that do not fit too: they have a step time as well."""
    devices = tuple(
        replace(device, memory_bytes=UNLIMITED_BYTES) if device.memory_bytes else device for device in machine.devices
    )
    return replace(machine, devices=devices)


def proposal(
    strategy: Strategy, workload: Workload, machine: Machine, costs: ControlCosts, memory_bytes: int
) -> Proposal:
    """What ``strategy`` proposes, heard in the simulator."""

    @cache
    def evaluate(plan: Plan) -> Report:
        return report(simulate(plan, machine, costs), plan)

    return strategy.plan(
        workload, machine, costs, memory_bytes=memory_bytes, evaluate=evaluate, time_limit_s=TIME_LIMIT_S
    )


def largest(fits: Callable[[int], bool], *, most: int) -> int:
    """The largest batch up to ``most`` that fits, where all smaller ones do; 0 if none does. By bisection."""
    least, over = 0, most + 1
    while over - least > 1:
        middle = (least + over) // 2
        least, over = (middle, over) if fits(middle) else (least, middle)
    return least
