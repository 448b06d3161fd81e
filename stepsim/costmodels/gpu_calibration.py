"""What public measurements tell of one kind of GPU: prices the tasks of any plan on any machine that has it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from stepsim.costmodels.copies import CopyModel
from stepsim.costmodels.datasheet import flow_at_links, seconds_at_peaks
from stepsim.costmodels.demands import DemandModel, bandwidth_share
from stepsim.costmodels.distinct import Flows, cost_table, distinct
from stepsim.costmodels.kernel_tasks import kernel_tasks
from stepsim.costmodels.model import Prediction
from stepsim.costmodels.moves import latency_and_rate
from stepsim.costmodels.trust import Fitted, first_that_knows
from stepsim.errors import CalibrationError
from stepsim.machines import Device, DeviceKind, Machine
from stepsim.machines.collectives import Stage, collective_stages, transfer_stages
from stepsim.plan import Origin, Plan, TaskCosts

_KINDS = {(DeviceKind.GPU, DeviceKind.HOST), (DeviceKind.HOST, DeviceKind.GPU)}
"""Ends of copies that `CopyModel` knows. Swaps go through pinned memory, as the executor has them."""


@dataclass(frozen=True, slots=True)
class _Flow:
    """What one move or collective takes: as `Flows` has it for many."""

    latency_s: float
    rate_cap_bytes_per_s: float
    spread: float
    origin: Origin


@dataclass(frozen=True, eq=False, kw_only=True)
class GpuCalibration:
    """Models of the work, copies and collectives of ``gpus``: the names by which machines know this kind of GPU.

    ``work`` and ``collectives`` are in the order of trust; what none of them knows, and copies of a way that
    ``copies`` does not know, costs what `DataSheetCosts` says. Work models read `kernel_tasks`, those of
    collectives `CollectiveTable.features`; they serve the machines that ``fabrics`` names, and clusters of them.
    ``launch_s`` is what issuing one row costs its thread. ``demands`` tells which share of the SMs work needs, all of
    them where it is None; a collective of several GPUs takes ``collective_sm_share`` while it runs. ``errors`` are
    held-out relative errors, by what they are of. ``extrapolated_from`` names the GPUs that were measured, where this
    one was not; else it is empty.
    """

    name: str
    gpus: tuple[str, ...]
    work: Sequence[Fitted]
    copies: CopyModel | None = None
    collectives: Sequence[Fitted] = ()
    fabrics: tuple[str, ...] = ()
    launch_s: float = 0.0
    demands: DemandModel | None = None
    collective_sm_share: float = 0.0
    errors: Mapping[str, float] = field(default_factory=dict)
    sources: Mapping[str, str] = field(default_factory=dict)
    extrapolated_from: str = ""

    @property
    def worth(self) -> str:
        """What a reader must know of a predicted time."""
        if self.extrapolated_from:
            return f"extrapolated: shipped calibration {self.name}, from {self.extrapolated_from}"
        return f"shipped calibration {self.name}"

    def task_costs(self, plan: Plan, machine: Machine) -> TaskCosts:
        """A transfer or collective alone takes what its model predicts, or what the links need, if that is longer.

        Raises `CalibrationError` for a machine with another kind of GPU, and as `DataSheetCosts` does.
        """
        for device in machine.devices:
            self._check_serves(device)
        found = distinct(plan)
        tasks = kernel_tasks(plan, machine, found.works)
        work = self._work(plan, machine, found.works, tasks)
        table = cost_table(
            work=work,
            moves=_flows([self._move(plan, machine, *move) for move in found.moves.tolist()]),
            collectives=_flows([self._collective(plan, machine, *one) for one in found.collectives.tolist()]),
            launch_s=self.launch_s,
            sm_share=1.0 if self.demands is None else self.demands.sm_share(tasks),
            bandwidth_share=_bandwidth_share(tasks, work),
            collective_sm_share=self._collective_sm_share(plan, found.collectives[:, 0]),
        )
        return TaskCosts(found.index, table)

    def _check_serves(self, device: Device) -> None:
        if device.kind is DeviceKind.GPU and device.model not in self.gpus:
            model = device.model or "GPU of unknown model"
            raise CalibrationError(
                f"calibration {self.name!r} is of {', '.join(self.gpus)}; device {device.name!r} is a {model}"
            )

    def _work(self, plan: Plan, machine: Machine, works: NDArray[np.int64], tasks: pd.DataFrame) -> Prediction:
        said = first_that_knows(self.work, tasks)
        for place in np.flatnonzero(np.isnan(said.seconds)).tolist():
            said.seconds[place] = seconds_at_peaks(plan, machine, *works[place].tolist())
            said.origin[place] = Origin.ROOFLINE
        return said

    def _move(self, plan: Plan, machine: Machine, route: int, size_bytes: int, blocks: int) -> _Flow:
        """A copy of pageable memory holds its thread, and so does no other."""
        columns = (plan.routes.source, plan.routes.destination)
        ends = [machine.device(plan.devices.name[column[route]]) for column in columns]
        if self.copies is None or (ends[0].kind, ends[1].kind) not in _KINDS:
            return _Flow(*flow_at_links(plan, machine, route), 0.0, Origin.ROOFLINE)
        host = "pageable" if blocks else "pinned"
        source, destination = ("device" if end.kind is DeviceKind.GPU else host for end in ends)
        facts = {"source": source, "destination": destination, "opposite": False, "at_once": 1}
        stages = transfer_stages(machine, ends[0].name, ends[1].name)
        known = _priced([self.copies], facts, size_bytes, stages)
        return known or _Flow(*flow_at_links(plan, machine, route), 0.0, Origin.ROOFLINE)

    def _collective(self, plan: Plan, machine: Machine, entry: int, size_bytes: int) -> _Flow:
        team = [plan.devices.name[device] for device in plan.collectives.team[entry].tolist()]
        kind, algorithm = plan.collectives.kind[entry], plan.collectives.algorithm[entry]
        stages = collective_stages(machine, kind, algorithm, team)
        known = None
        if self._is_fabric(machine) and size_bytes and len(team) > 1:
            nodes = len({machine.device(name).node for name in team})
            facts = {"collective": kind, "ranks": len(team), "nodes": nodes}
            known = _priced(self.collectives, facts, size_bytes, stages)
        return known or _Flow(sum(stage.latency_s for stage in stages), np.inf, 0.0, Origin.ROOFLINE)

    def _collective_sm_share(self, plan: Plan, entries: NDArray[np.int64]) -> NDArray[np.float64]:
        """None for a group of one, in which nothing moves."""
        several = [len(plan.collectives.team[entry]) > 1 for entry in entries.tolist()]
        return np.where(several, self.collective_sm_share, 0.0)

    def _is_fabric(self, machine: Machine) -> bool:
        """A cluster has the name of its node in front of its own."""
        return any(machine.name == name or machine.name.startswith(f"{name}_x") for name in self.fabrics)


def _priced(
    models: Sequence[Fitted], facts: Mapping[str, object], size_bytes: int, stages: Sequence[Stage]
) -> _Flow | None:
    """What the first of ``models`` that knows says, less the latency of the links; None where none knows."""
    said = first_that_knows(models, pd.DataFrame([{**facts, "size_bytes": size_bytes}]))
    total_s = float(said.seconds[0])
    if np.isnan(total_s):
        return None
    latency_s, rate = latency_and_rate(total_s, sum(stage.latency_s for stage in stages), size_bytes, stages)
    return _Flow(latency_s, rate, float(said.spread[0]), Origin(int(said.origin[0])))


def _flows(found: Sequence[_Flow]) -> Flows:
    def column(name: str, dtype: type) -> NDArray[Any]:
        return np.array([getattr(flow, name) for flow in found], dtype)

    return Flows(
        latency_s=column("latency_s", np.float64),
        rate_cap_bytes_per_s=column("rate_cap_bytes_per_s", np.float64),
        spread=column("spread", np.float64),
        origin=column("origin", np.int8),
    )


def _bandwidth_share(tasks: pd.DataFrame, work: Prediction) -> NDArray[np.float64]:
    """Of the memory bandwidth; 0 for work whose device has none that is known."""
    moved, bandwidth = (tasks[name].to_numpy(float) for name in ("size_bytes", "memory_bandwidth_bytes_per_s"))
    return bandwidth_share(moved, work.seconds, bandwidth)
