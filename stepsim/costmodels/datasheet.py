"""Costs from the data sheet alone: a bound, for machines that nobody has calibrated."""

from dataclasses import dataclass

import numpy as np

from stepsim.costmodels.distinct import collective_flows, cost_table, distinct, flows
from stepsim.costmodels.model import uniform
from stepsim.errors import CalibrationError
from stepsim.machines import Machine
from stepsim.plan import NONE, Origin, Plan, TaskCosts


@dataclass(frozen=True, slots=True)
class DataSheetCosts:
    """Work at its device's peak: ``max(flop / peak of the dtype, bytes / memory bandwidth)``; copies at links' rates.

    Optimistic by construction (Williams et al., "Roofline", CACM 2009). Raises `CalibrationError` for a device whose
    description has no peak for a dtype, or no memory bandwidth, and for host work that computes or moves anything.
    """

    def task_costs(self, plan: Plan, machine: Machine) -> TaskCosts:
        found = distinct(plan)
        work_s = [seconds_at_peaks(plan, machine, work, device) for work, device in found.works.tolist()]
        routes = found.moves[:, 0].tolist()
        moves = [flow_at_links(plan, machine, route) for route in routes]
        table = cost_table(
            work=uniform(np.array(work_s, np.float64), Origin.ROOFLINE),
            moves=flows(moves, Origin.ROOFLINE),
            collectives=collective_flows(plan, machine, found.collectives[:, 0].tolist()),
            launch_s=0.0,
        )
        return TaskCosts(found.index, table)


def seconds_at_peaks(plan: Plan, machine: Machine, work: int, place: int) -> float:
    """What entry ``work`` of the plan's work takes on entry ``place`` of its devices, as `DataSheetCosts` has it."""
    table = plan.work
    flop, dtype = int(table.flop[work]), table.dtype[work]
    size_bytes = int(table.bytes_read[work] + table.bytes_written[work])
    if not flop and not size_bytes:
        return 0.0
    if place == NONE:
        raise CalibrationError(f"no data sheet says what {table.kind[work]!r} takes on the host: give a calibration")
    device = machine.device(plan.devices.name[place])
    if not device.memory_bandwidth_bytes_per_s:
        raise CalibrationError(f"device {device.name!r} has no memory_bandwidth_bytes_per_s: give a calibration")
    moving_s = size_bytes / device.memory_bandwidth_bytes_per_s
    if not flop:
        return moving_s
    if dtype not in device.peak_flop_per_s:
        known = sorted(device.peak_flop_per_s)
        raise CalibrationError(f"device {device.name!r} has no peak_flop_per_s for {dtype!r}; it has {known}")
    return max(flop / device.peak_flop_per_s[dtype], moving_s)


def flow_at_links(plan: Plan, machine: Machine, route: int) -> tuple[float, float]:
    """Latency, and the cap in bytes/s, of what moves along entry ``route`` of the plan's routes."""
    return _latency_s(plan, machine, route), _rate_cap_bytes_per_s(plan, machine, route)


def _rate_cap_bytes_per_s(plan: Plan, machine: Machine, route: int) -> float:
    """Links bound a copy; one within a device reads and writes its memory."""
    source, destination = plan.routes.source[route], plan.routes.destination[route]
    bandwidth_bytes_per_s = machine.device(plan.devices.name[source]).memory_bandwidth_bytes_per_s
    return bandwidth_bytes_per_s / 2 if source == destination and bandwidth_bytes_per_s else np.inf


def _latency_s(plan: Plan, machine: Machine, route: int) -> float:
    ends = (plan.devices.name[plan.routes.source[route]], plan.devices.name[plan.routes.destination[route]])
    return sum(link.latency_s for link in machine.route(*ends))
