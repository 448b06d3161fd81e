"""Plans made for timing, column by column, so that millions of rows take seconds. Their numbers are made up."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stepsim.machines import Device, DeviceKind, Link, Machine, Route
from stepsim.plan import (
    NONE,
    BufferTable,
    CollectiveTable,
    CostTable,
    DeviceTable,
    MarkTable,
    Origin,
    Plan,
    RouteTable,
    StreamTable,
    TaskCosts,
    TaskKind,
    TaskTable,
    ThreadTable,
    WorkTable,
)
from stepsim.tables import Ragged

MADE_UP = "made up for the benchmark"
STREAMS = ("low", "middle", "high", "d2h", "h2d", "collective")
NUM_COMPUTE = 3
TEAM = 4
"""Devices of a collective, and behind one uplink: with both directions of each on it, up to 8 flows."""


def mixed_machine(num_devices: int) -> Machine:
    """GPUs in rings of four; each four share one half-duplex uplink to the host."""
    names = [f"gpu{i}" for i in range(num_devices)]
    uplink = [f"uplink{i // TEAM}" for i in range(num_devices)]
    neighbour = [names[_next_in_team(i, num_devices)] for i in range(num_devices)]
    links = [_link(name, 20e9) for name in dict.fromkeys(uplink)]
    links += [_link(f"{a} to {b}", 50e9) for a, b in zip(names, neighbour, strict=True) if a != b]
    routes = [Route(source=a, destination="host", links=(up,)) for a, up in zip(names, uplink, strict=True)]
    routes += [Route(source="host", destination=a, links=(up,)) for a, up in zip(names, uplink, strict=True)]
    routes += [
        Route(source=a, destination=b, links=(f"{a} to {b}",)) for a, b in zip(names, neighbour, strict=True) if a != b
    ]
    memory = {"memory_bytes": MADE_UP}
    devices = [Device(name=name, kind=DeviceKind.GPU, memory_bytes=10**12, sources=memory) for name in names]
    host = Device(name="host", kind=DeviceKind.HOST, memory_bytes=10**14, sources=memory)
    return Machine(name="mixed", devices=(*devices, host), links=tuple(links), routes=tuple(routes))


def _next_in_team(device: int, num_devices: int) -> int:
    first = device - device % TEAM
    return first + (device - first + 1) % min(TEAM, num_devices - first)


def _link(name: str, bandwidth_bytes_per_s: float) -> Link:
    sources = {"latency_s": MADE_UP, "bandwidth_bytes_per_s": MADE_UP}
    return Link(name=name, latency_s=1e-6, bandwidth_bytes_per_s=bandwidth_bytes_per_s, sources=sources)


@dataclass(frozen=True, eq=False)
class Mix:
    """How many of a hundred rows are of each kind."""

    kernels: int
    copies: int
    collectives: int
    hosts: int


EVERY_MECHANISM = Mix(kernels=60, copies=15, collectives=10, hosts=15)
KERNELS_ONLY = Mix(kernels=100, copies=0, collectives=0, hosts=0)


def mixed_plan(num_tasks: int, num_devices: int, mix: Mix, *, num_compute: int = NUM_COMPUTE, seed: int = 0) -> Plan:
    """Rows of all devices in turn; each depends on up to two of the 16 before it on its device.

    The members of a collective stand side by side. ``num_devices`` is a multiple of `TEAM`, or less than that.
    """
    random = np.random.default_rng(seed)
    kind, device, group = _rows(random, num_tasks, num_devices, mix)
    size = len(kind)
    num_streams = len(STREAMS)
    lane = np.where(kind == TaskKind.COLLECTIVE, num_streams - 1, random.integers(0, num_compute, size))
    inward = random.integers(0, 2, size)
    lane = np.where(kind == TaskKind.COPY, NUM_COMPUTE + inward, lane)
    on_host = kind == TaskKind.HOST
    stream = np.where(on_host, NONE, device * num_streams + lane).astype(np.int32)
    route = np.where(kind == TaskKind.COPY, inward * num_devices + device, NONE)
    moves = np.isin(kind, (TaskKind.COPY, TaskKind.COLLECTIVE))
    bytes_of = random.integers(1, 64, size) << 20
    bytes_of = bytes_of[_first_of(group)]
    nothing = Ragged(np.zeros(size + 1, np.int64), np.zeros(0, np.int64))
    tasks = TaskTable(
        kind=kind,
        device=np.where(on_host, NONE, device).astype(np.int32),
        stream=stream,
        thread=device.astype(np.int32),
        blocks_thread=np.zeros(size, np.bool_),
        work=np.where(moves, NONE, 0).astype(np.int32),
        size_bytes=np.where(moves, bytes_of, 0),
        route=route.astype(np.int32),
        collective=np.where(kind == TaskKind.COLLECTIVE, device // TEAM, NONE).astype(np.int32),
        group=group,
        dependencies=_dependencies(random, device),
        reads=nothing,
        writes=nothing,
        allocates=nothing,
        releases=nothing,
    )
    return Plan(tasks=tasks, **_tables(num_devices))


def _rows(random: np.random.Generator, num_tasks: int, num_devices: int, mix: Mix):  # type: ignore[no-untyped-def]
    """Kind, device and group of each row; a drawn collective becomes one row for each of its team."""
    team = min(TEAM, num_devices)
    chances = np.array([mix.kernels, mix.copies, mix.collectives / team, mix.hosts])
    kinds = np.array([TaskKind.COMPUTE, TaskKind.COPY, TaskKind.COLLECTIVE, TaskKind.HOST])
    drawn = kinds[random.choice(len(kinds), num_tasks, p=chances / chances.sum())].astype(np.int8)
    repeats = np.where(drawn == TaskKind.COLLECTIVE, team, 1)
    entry = np.repeat(np.arange(num_tasks), repeats)[:num_tasks]
    while drawn[entry[-1]] == TaskKind.COLLECTIVE:  # a team that the end would cut
        entry = entry[:-1]
    kind = drawn[entry]
    within = np.arange(len(entry)) - np.searchsorted(entry, entry)
    device = entry % num_devices
    together = kind == TaskKind.COLLECTIVE
    device = np.where(together, device - device % TEAM + within, device)
    group = np.where(together, entry, NONE).astype(np.int32)
    return kind, device, group


def _first_of(group: NDArray[np.int32]) -> NDArray[np.int64]:
    first = np.arange(len(group))
    together = group != NONE
    first[together] = np.searchsorted(np.where(together, group, -1)[together], group[together])
    rows = np.flatnonzero(together)
    first[together] = rows[first[together]]
    return first


def _dependencies(random: np.random.Generator, device: NDArray[np.int64]) -> Ragged:
    """Up to two earlier rows of the same device, among the 16 before."""
    size = len(device)
    order = np.argsort(device, kind="stable")
    position = np.arange(size) - np.searchsorted(device[order], device[order])
    back = random.integers(1, 17, (size, 2))
    usable = (back <= position[:, np.newaxis]) & (random.random((size, 2)) < 0.75)
    earlier = order[np.maximum(np.arange(size)[:, np.newaxis] - back, 0)]
    counts = np.zeros(size, np.int64)
    counts[order] = usable.sum(axis=1)
    starts = np.concatenate([[0], np.cumsum(counts)])
    values = np.zeros(starts[-1], np.int64)
    place = starts[order]
    for column in range(2):
        used = usable[:, column]
        values[place[used]] = earlier[used, column]
        place = place + used
    return Ragged(starts, values)


def _tables(num_devices: int) -> dict[str, object]:
    gpus, streams = np.arange(num_devices, dtype=np.int32), len(STREAMS)
    zero = np.zeros(1, np.int64)
    no_int, no_long = np.zeros(0, np.int32), np.zeros(0, np.int64)
    first = range(0, num_devices, TEAM)
    teams = [list(range(i, min(i + TEAM, num_devices))) for i in first]
    return {
        "work": WorkTable(("kernel",), ("",), ("",), zero, zero, zero, zero, ("",), ("",), Ragged.from_lists([[]])),
        "buffers": BufferTable((), no_long, (), no_int, no_int, no_int, no_int, no_long, no_long, no_int),
        "streams": StreamTable(
            STREAMS * num_devices,
            np.repeat(gpus, streams),
            ("compute",) * NUM_COMPUTE * num_devices + ("copy",) * (streams - NUM_COMPUTE) * num_devices,
            np.tile(np.array([0, 1, 2, 0, 0, 0], np.int32), num_devices),
        ),
        "threads": ThreadTable(tuple(f"thread{i}" for i in gpus), np.zeros(num_devices, np.int32)),
        "devices": DeviceTable((*(f"gpu{i}" for i in gpus), "host"), np.zeros(num_devices + 1, np.int32)),
        "routes": RouteTable(
            np.concatenate([gpus, np.full(num_devices, num_devices, np.int32)]),
            np.concatenate([np.full(num_devices, num_devices, np.int32), gpus]),
        ),
        "collectives": CollectiveTable(("all_reduce",) * len(teams), ("ring",) * len(teams), Ragged.from_lists(teams)),
        "marks": MarkTable((), no_long),
    }


@dataclass(frozen=True)
class MixedCosts:
    """256 prices, drawn once and given to the rows at random; members of a group are priced by their first."""

    seed: int = 0
    shares: bool = True
    launch_s: float = 2e-6

    def task_costs(self, plan: Plan, machine: Machine) -> TaskCosts:
        random, size = np.random.default_rng(self.seed), 256
        share = random.uniform(0.1, 0.9, (2, size)) if self.shares else np.zeros((2, size))
        table = CostTable(
            seconds=random.uniform(10e-6, 200e-6, size),
            launch_s=np.full(size, self.launch_s),
            latency_s=np.full(size, 5e-6),
            rate_cap_bytes_per_s=random.uniform(5e9, 50e9, size),
            fixed=np.zeros(size, np.bool_),
            sm_share=share[0],
            bandwidth_share=share[1],
            spread=np.full(size, 0.05),
            origin=np.full(size, Origin.GIVEN, np.int8),
        )
        return TaskCosts(random.integers(0, size, len(plan)).astype(np.int32), table)
