"""The state of one simulated run: clock, events of each row, and what each row costs."""

import math
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field

import numpy as np
import simpy
from numpy.typing import NDArray

from stepsim.errors import CalibrationError
from stepsim.machines import Device, DeviceKind, Link, Machine
from stepsim.plan import NONE, Costs, Plan
from stepsim.simulator.places import Place, Places

Steps = Generator[simpy.Event, object, None]
"""A SimPy process, or a part of one."""


@dataclass
class Group:
    """Rows that meet: a send and its receive, or the members of a collective."""

    rows: list[int]
    all_here: simpy.Event
    done: simpy.Event
    missing: int


@dataclass
class Run:
    """Columns of the plan as lists, the price of each row, and the events that processes wait for."""

    plan: Plan
    env: simpy.Environment
    kind: list[int]
    stream: list[int]
    blocks: list[bool]
    size_bytes: list[int]
    dependencies: list[list[int]]
    links: list[list[Place]]
    engine: list[list[Place]]
    link_rate_bytes_per_s: list[float]
    group: list[Group | None]
    seconds: list[float]
    launch_s: list[float]
    latency_s: list[float]
    rate_cap_bytes_per_s: list[float]
    fixed: list[bool]
    places: Places = field(init=False)
    issued: list[simpy.Event] = field(init=False)
    ended: list[simpy.Event] = field(init=False)
    start_s: list[float] = field(init=False)
    end_s: list[float] = field(init=False)

    def __post_init__(self) -> None:
        rows = range(len(self.kind))
        self.places = Places(self.env)
        self.issued = [self.env.event() for _ in rows]
        self.ended = [self.env.event() for _ in rows]
        self.start_s = [0.0 for _ in rows]
        self.end_s = [0.0 for _ in rows]

    def begin(self, row: int) -> None:
        self.start_s[row] = self.env.now

    def finish(self, row: int) -> None:
        self.end_s[row] = self.env.now
        self.ended[row].succeed()

    def wait(self, row: int) -> Steps:
        """Until everything that ``row`` depends on has ended."""
        for earlier in self.dependencies[row]:
            yield self.ended[earlier]

    def spend(self, seconds: float) -> Steps:
        if seconds > 0:
            yield self.env.timeout(seconds)


def prepare(plan: Plan, machine: Machine, costs: Costs) -> Run:
    """Raises `MachineError` for a device or route that ``machine`` lacks, `CalibrationError` for a senseless cost."""
    env, tasks = simpy.Environment(), plan.tasks
    priced = costs.task_costs(plan, machine)
    _check_costs(plan, priced.table.columns(), priced.index)
    devices = [machine.device(name) for name in plan.devices.name]
    inline = np.array([device.kind == DeviceKind.CPU for device in devices] + [False])  # the last: of no device
    routes: list[tuple[Link, ...]] = [
        machine.route(devices[source].name, devices[destination].name)
        for source, destination in zip(plan.routes.source, plan.routes.destination, strict=True)
    ]
    routes.append(())  # of a row without a route
    lines = {link.name: Place(1) for link in machine.links}
    paths = [[lines[link.name] for link in links] for links in routes]
    rates = [min((link.bandwidth_bytes_per_s for link in links), default=math.inf) for links in routes]
    engines = [*_engines(plan, devices), []]
    table, index, route = priced.table, priced.index, tasks.route.tolist()
    return Run(
        plan=plan,
        env=env,
        kind=tasks.kind.tolist(),
        stream=tasks.stream.tolist(),
        blocks=(tasks.blocks_thread | inline[tasks.device]).tolist(),
        size_bytes=tasks.size_bytes.tolist(),
        dependencies=tasks.dependencies.to_lists(),
        links=[paths[of] for of in route],
        engine=[engines[of] for of in route],
        link_rate_bytes_per_s=[rates[of] for of in route],
        group=_groups(plan, env),
        seconds=table.seconds[index].tolist(),
        launch_s=table.launch_s[index].tolist(),
        latency_s=table.latency_s[index].tolist(),
        rate_cap_bytes_per_s=table.rate_cap_bytes_per_s[index].tolist(),
        fixed=table.fixed[index].tolist(),
    )


def _check_costs(plan: Plan, columns: Mapping[str, object], index: NDArray[np.int32]) -> None:
    if len(index) != len(plan):
        raise CalibrationError(f"costs are for {len(index)} tasks, the plan has {len(plan)}")
    for name in ("seconds", "launch_s", "latency_s"):
        column = np.asarray(columns[name])
        for row in np.flatnonzero(~(np.isfinite(column) & (column >= 0))):
            raise CalibrationError(f"cost {name} must be finite and >= 0, got {column[row]}")
    rate = np.asarray(columns["rate_cap_bytes_per_s"])
    for row in np.flatnonzero(~(rate > 0)):
        raise CalibrationError(f"cost rate_cap_bytes_per_s must be > 0, got {rate[row]}")


def _engines(plan: Plan, devices: list[Device]) -> list[list[Place]]:
    """For each route the copy engine that serves it: the one into a device from its host, else the one out of it.

    A copy within a device takes no engine.
    """
    made: dict[tuple[int, str], Place] = {}
    served: list[list[Place]] = []
    for source, destination in zip(plan.routes.source.tolist(), plan.routes.destination.tolist(), strict=True):
        inward = devices[source].kind == DeviceKind.HOST
        device, way = (destination, "in") if inward else (source, "out")
        engine = made.setdefault((device, way), Place(devices[device].copy_engines))
        served.append([] if source == destination else [engine])
    return served


def _groups(plan: Plan, env: simpy.Environment) -> list[Group | None]:
    found: dict[int, Group] = {}
    for row in np.flatnonzero(plan.tasks.group != NONE).tolist():
        group = found.setdefault(
            int(plan.tasks.group[row]), Group(rows=[], all_here=env.event(), done=env.event(), missing=0)
        )
        group.rows.append(row)
        group.missing += 1
    return [found.get(number) for number in plan.tasks.group.tolist()]
