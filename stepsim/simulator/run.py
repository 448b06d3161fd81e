"""The state of one simulated run: clock, events of each row, and what each row costs."""

import sys
from collections.abc import Generator
from dataclasses import dataclass, field

import numpy as np
import simpy

from stepsim.errors import CalibrationError
from stepsim.machines import DeviceKind, Link, Machine
from stepsim.plan import NONE, Costs, Plan

Steps = Generator[simpy.Event, object, None]
"""A SimPy process, or a part of one."""

STARTS = 2
"""SimPy priority of starts: behind all ends of the same instant, whose events have priority 0 or 1."""


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
    links: list[tuple[Link, ...]]
    engine: list[simpy.PriorityResource]
    group: list[Group | None]
    seconds: list[float]
    launch_s: list[float]
    latency_s: list[float]
    rate_cap_bytes_per_s: list[float]
    fixed: list[bool]
    lines: dict[str, simpy.PriorityResource]
    issued: list[simpy.Event] = field(init=False)
    ended: list[simpy.Event] = field(init=False)
    start_s: list[float] = field(init=False)
    end_s: list[float] = field(init=False)

    def __post_init__(self) -> None:
        rows = range(len(self.kind))
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

    def turn_to_start(self, row: int) -> simpy.Event:
        """An event of this instant, behind all its ends; among such events the earlier row of the plan goes first."""
        event = self.env.event()
        event._ok, event._value = True, None
        self.env.schedule(event, priority=STARTS + row)  # type: ignore[arg-type]
        return event


def prepare(plan: Plan, machine: Machine, costs: Costs) -> Run:
    """Raises `MachineError` for a device or route that ``machine`` lacks, `CalibrationError` for a senseless cost."""
    env, tasks = simpy.Environment(), plan.tasks
    priced = costs.task_costs(plan, machine)
    _check_costs(plan, priced.table.columns(), priced.index)
    kinds = [machine.device(name).kind for name in plan.devices.name]
    inline = np.array([kind == DeviceKind.CPU for kind in kinds], dtype=bool)
    on_inline_device = (tasks.device != NONE) & inline[tasks.device]
    routes: list[tuple[Link, ...]] = [
        machine.route(plan.devices.name[source], plan.devices.name[destination])
        for source, destination in zip(plan.routes.source, plan.routes.destination, strict=True)
    ]
    free = simpy.PriorityResource(env, capacity=sys.maxsize)
    engines = [*_engines(plan, machine, env, free), free]
    table, index = priced.table, priced.index
    return Run(
        plan=plan,
        env=env,
        kind=tasks.kind.tolist(),
        stream=tasks.stream.tolist(),
        blocks=(tasks.blocks_thread | on_inline_device).tolist(),
        size_bytes=tasks.size_bytes.tolist(),
        dependencies=tasks.dependencies.to_lists(),
        links=[(*routes, ())[route] for route in tasks.route.tolist()],
        engine=[engines[route] for route in tasks.route.tolist()],
        group=_groups(plan, env),
        seconds=table.seconds[index].tolist(),
        launch_s=table.launch_s[index].tolist(),
        latency_s=table.latency_s[index].tolist(),
        rate_cap_bytes_per_s=table.rate_cap_bytes_per_s[index].tolist(),
        fixed=table.fixed[index].tolist(),
        lines={link.name: simpy.PriorityResource(env) for link in machine.links},
    )


def _check_costs(plan: Plan, columns: dict[str, object], index: np.ndarray) -> None:
    if len(index) != len(plan):
        raise CalibrationError(f"costs are for {len(index)} tasks, the plan has {len(plan)}")
    for name in ("seconds", "launch_s", "latency_s"):
        column = np.asarray(columns[name])
        for row in np.flatnonzero(~(np.isfinite(column) & (column >= 0))):
            raise CalibrationError(f"cost {name} must be finite and >= 0, got {column[row]}")
    rate = np.asarray(columns["rate_cap_bytes_per_s"])
    for row in np.flatnonzero(~(rate > 0)):
        raise CalibrationError(f"cost rate_cap_bytes_per_s must be > 0, got {rate[row]}")


def _engines(
    plan: Plan, machine: Machine, env: simpy.Environment, free: simpy.PriorityResource
) -> list[simpy.PriorityResource]:
    """For each route the copy engine that serves it: the one into a device from its host, else the one out of it.

    A copy within a device takes no engine: it is served by ``free``, which never makes anyone wait.
    """
    made: dict[tuple[int, str], simpy.PriorityResource] = {}
    served: list[simpy.PriorityResource] = []
    devices = [machine.device(name) for name in plan.devices.name]
    for source, destination in zip(plan.routes.source.tolist(), plan.routes.destination.tolist(), strict=True):
        if source == destination:
            served.append(free)
            continue
        inward = devices[source].kind == DeviceKind.HOST
        key = (destination, "in") if inward else (source, "out")
        if key not in made:
            made[key] = simpy.PriorityResource(env, capacity=devices[key[0]].copy_engines)
        served.append(made[key])
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

