"""Costs from the data sheet alone: a bound, for machines that nobody has calibrated."""

from dataclasses import dataclass

import numpy as np

from stepsim.costmodels.moves import distinct_moves, task_index
from stepsim.errors import CalibrationError
from stepsim.machines import Device, Machine
from stepsim.plan import CostTable, Origin, Plan, TaskCosts


@dataclass(frozen=True, slots=True)
class DataSheetCosts:
    """Work at the device's peak: ``max(flop / peak of the dtype, bytes / memory bandwidth)``; copies at links' rates.

    Optimistic by construction (Williams et al., "Roofline", CACM 2009). Raises `CalibrationError` for a device whose
    description has no peak for a dtype, or no memory bandwidth.
    """

    def task_costs(self, plan: Plan, machine: Machine) -> TaskCosts:
        device = machine.device(plan.devices.name[int(plan.streams.device[0])]) if len(plan.streams) else None
        works = range(len(plan.work))
        seconds = [_seconds(plan, work, device) for work in works]
        moves, place = distinct_moves(plan)
        latencies = [_latency_s(plan, machine, route) for route, _ in moves.tolist()]
        size = len(seconds) + len(moves) + 1
        table = CostTable(
            seconds=np.array([*seconds, *[0.0] * (len(moves) + 1)]),
            launch_s=np.zeros(size),
            latency_s=np.array([*[0.0] * len(seconds), *latencies, 0.0]),
            rate_cap_bytes_per_s=np.full(size, np.inf),
            fixed=np.zeros(size, np.bool_),
            origin=np.full(size, Origin.ROOFLINE, np.int8),
        )
        return TaskCosts(task_index(plan, place, len(seconds), len(moves)), table)


def _seconds(plan: Plan, work: int, device: Device | None) -> float:
    assert device is not None, "work runs on a stream"
    table, dtype = plan.work, plan.work.dtype[work]
    if not device.memory_bandwidth_bytes_per_s:
        raise CalibrationError(f"device {device.name!r} has no memory_bandwidth_bytes_per_s: give a calibration")
    moving_s = (table.bytes_read[work] + table.bytes_written[work]) / device.memory_bandwidth_bytes_per_s
    if not table.flop[work]:
        return float(moving_s)
    if dtype not in device.peak_flop_per_s:
        known = sorted(device.peak_flop_per_s)
        raise CalibrationError(f"device {device.name!r} has no peak_flop_per_s for {dtype!r}; it has {known}")
    return float(max(table.flop[work] / device.peak_flop_per_s[dtype], moving_s))


def _latency_s(plan: Plan, machine: Machine, route: int) -> float:
    ends = (plan.devices.name[plan.routes.source[route]], plan.devices.name[plan.routes.destination[route]])
    return sum(link.latency_s for link in machine.route(*ends))
