"""A plan, a machine and costs, reduced to the numbers that the engines run on."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from stepsim.errors import CalibrationError, MachineError
from stepsim.machines import Device, DeviceKind, Link, Machine
from stepsim.machines.collectives import Stage
from stepsim.machines.machine import some
from stepsim.plan import NONE, Costs, Plan, TaskCosts, TaskKind
from stepsim.plan.paths import Paths, paths_of
from stepsim.tables import Ragged


class RowKind(IntEnum):
    """What a row is to the engines."""

    KERNEL = 0
    RELEASE = 1
    HOST = 2
    COPY = 3
    MEMBER = 4


_ROW_KINDS = np.zeros(len(TaskKind), np.int8)
for _task_kind, _row_kind in (
    (TaskKind.SWAP_OUT, RowKind.COPY),
    (TaskKind.SWAP_IN, RowKind.COPY),
    (TaskKind.COPY, RowKind.COPY),
    (TaskKind.SEND, RowKind.MEMBER),
    (TaskKind.RECEIVE, RowKind.MEMBER),
    (TaskKind.COLLECTIVE, RowKind.MEMBER),
    (TaskKind.HOST, RowKind.HOST),
    (TaskKind.RELEASE, RowKind.RELEASE),
):
    _ROW_KINDS[_task_kind] = _row_kind


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Prices:
    """What each row costs on its machine. Members of a group have the price of its first row.

    ``seconds`` is for kernels (device speed taken into account) and host rows. Moving rows have ``latency_s``, then
    ``size_bytes`` for each stage of their path; a fixed row has its seconds as latency, and no bytes.
    """

    seconds: NDArray[np.float64]
    launch_s: NDArray[np.float64]
    latency_s: NDArray[np.float64]
    size_bytes: NDArray[np.float64]
    rate_cap_bytes_per_s: NDArray[np.float64]
    sm_share: NDArray[np.float64]
    bandwidth_share: NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Stages:
    """All stages of all paths. Those of path ``p`` are ``first[p]`` to ``first[p + 1]``.

    Stage ``s`` has ``volume[s]`` and ``rate_bytes_per_s[s]``, and crosses the links ``links[s]`` (numbers of the
    machine's links) with the weights of the same places in ``weights``.
    """

    first: NDArray[np.int32]
    volume: NDArray[np.float64]
    rate_bytes_per_s: NDArray[np.float64]
    links: Ragged
    weights: NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Problem:
    """Columns of shape (tasks,), but for ``engine_slots`` (engines,), ``link_bytes_per_s`` (links,) and ``stages``.

    ``device``, ``priority`` are those of the row's stream; ``group`` counts from 0 without gaps; ``blocks`` says which
    rows hold their thread; ``engine``, ``path``, ``group``, ``stream``, ``device`` are NONE where there is none.
    """

    plan: Plan
    kind: NDArray[np.int8]
    stream: NDArray[np.int32]
    thread: NDArray[np.int32]
    blocks: NDArray[np.bool_]
    device: NDArray[np.int32]
    priority: NDArray[np.int32]
    engine: NDArray[np.int32]
    group: NDArray[np.int32]
    path: NDArray[np.int32]
    dependencies: Ragged
    engine_slots: NDArray[np.int32]
    link_bytes_per_s: NDArray[np.float64]
    stages: Stages
    prices: Prices


def problem_of(plan: Plan, machine: Machine, costs: Costs) -> Problem:
    """Raises `MachineError` for a device or route that ``machine`` lacks, `CalibrationError` for a senseless cost."""
    tasks = plan.tasks
    devices = devices_of(plan, machine)
    priced = costs.task_costs(plan, machine)
    _check_costs(plan, priced.table.columns(), priced.index)
    first = first_of_group(tasks.group)
    moves = np.isin(_ROW_KINDS[tasks.kind], (RowKind.COPY, RowKind.MEMBER)) & ~priced.table.fixed[priced.index[first]]
    paths = paths_of(plan, machine, moves)
    inline = np.array([device.kind is DeviceKind.CPU for device in devices] + [False])  # the last: of no device
    engine, engine_slots = _engines(plan, devices)
    return Problem(
        plan=plan,
        kind=_ROW_KINDS[tasks.kind],
        stream=tasks.stream,
        thread=tasks.thread,
        blocks=tasks.blocks_thread | inline[tasks.device] | (tasks.kind == TaskKind.HOST),
        device=tasks.device,
        priority=np.append(plan.streams.priority, np.int32(0))[tasks.stream],
        engine=engine,
        group=_numbered(tasks.group),
        path=paths.of_row[first],
        dependencies=tasks.dependencies,
        engine_slots=engine_slots,
        link_bytes_per_s=np.array([link.bandwidth_bytes_per_s for link in machine.links]),
        stages=_stages(paths, machine.links),
        prices=prices_of(plan, machine, priced),
    )


def devices_of(plan: Plan, machine: Machine) -> list[Device]:
    """The devices of ``plan``. Raises `MachineError` that names the first row on one that ``machine`` lacks."""
    known = {device.name: device for device in machine.devices}
    for number, name in enumerate(plan.devices.name):
        if name not in known:
            rows = np.flatnonzero(plan.tasks.device == number)
            where = f"row {rows[0]} ({plan.row_names()[rows[0]]}): " if len(rows) else ""
            raise MachineError(f"{where}machine {machine.name!r} has no device {name!r}; it has {some(known)}")
    for stream, device in enumerate(plan.streams.device.tolist()):
        if known[plan.devices.name[device]].kind is DeviceKind.NETWORK:
            name = plan.devices.name[device]
            raise MachineError(f"stream {plan.streams.name[stream]!r} stands on {name!r}, which is a network")
    return [known[name] for name in plan.devices.name]


def prices_of(plan: Plan, machine: Machine, priced: TaskCosts) -> Prices:
    """The price of each row. Raises `MachineError` for a device that ``machine`` lacks."""
    table, tasks = priced.table, plan.tasks
    speeds = np.array([*(device.speed for device in devices_of(plan, machine)), 1.0])
    first = first_of_group(tasks.group)
    index = priced.index[first]
    kind = _ROW_KINDS[tasks.kind]
    moves, fixed = (kind == RowKind.COPY) | (kind == RowKind.MEMBER), table.fixed[index]
    seconds = table.seconds[index]
    size_bytes = np.where(moves & ~fixed, tasks.size_bytes[first], 0).astype(np.float64)
    return Prices(
        seconds=np.where(kind == RowKind.KERNEL, seconds / speeds[tasks.device], seconds),
        launch_s=np.where(kind == RowKind.RELEASE, 0.0, table.launch_s[priced.index]),
        latency_s=np.where(fixed, seconds, table.latency_s[index]),
        size_bytes=size_bytes,
        rate_cap_bytes_per_s=table.rate_cap_bytes_per_s[index],
        sm_share=table.sm_share[index],
        bandwidth_share=table.bandwidth_share[index],
    )


def _check_costs(plan: Plan, columns: Mapping[str, object], index: NDArray[np.int32]) -> None:
    if len(index) != len(plan):
        raise CalibrationError(f"costs are for {len(index)} tasks, the plan has {len(plan)}")
    for name in ("seconds", "launch_s", "latency_s", "spread"):
        column = np.asarray(columns[name])
        for row in np.flatnonzero(~(np.isfinite(column) & (column >= 0))):
            raise CalibrationError(f"cost {name} must be finite and >= 0, got {column[row]}")
    for name in ("sm_share", "bandwidth_share"):
        column = np.asarray(columns[name])
        for row in np.flatnonzero(~((column >= 0) & (column <= 1))):
            raise CalibrationError(f"cost {name} must be in 0..1, got {column[row]}")
    rate = np.asarray(columns["rate_cap_bytes_per_s"])
    for row in np.flatnonzero(~(rate > 0)):
        raise CalibrationError(f"cost rate_cap_bytes_per_s must be > 0, got {rate[row]}")


def first_of_group(group: NDArray[np.int32]) -> NDArray[np.int64]:
    """For each row the first row of its group; the row itself where it has none."""
    first = np.arange(len(group), dtype=np.int64)
    rows = np.flatnonzero(group != NONE)
    _, place, of = np.unique(group[rows], return_index=True, return_inverse=True)
    first[rows] = rows[place][of]
    return first


def _numbered(group: NDArray[np.int32]) -> NDArray[np.int32]:
    numbers = np.full(len(group), NONE, np.int32)
    rows = np.flatnonzero(group != NONE)
    numbers[rows] = np.unique(group[rows], return_inverse=True)[1]
    return numbers


def _engines(plan: Plan, devices: list[Device]) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """The copy engine of each row, and the slots of each engine: device ``d`` has 2d out of it and 2d + 1 into it.

    A copy from host memory takes the engine into its device, any other the one out of it, one within a device none.
    """
    source, destination = plan.routes.source, plan.routes.destination
    from_host = np.array([device.kind is DeviceKind.HOST for device in devices])[source]
    of_route = np.where(from_host, 2 * destination + 1, 2 * source)
    of_route = np.append(np.where(source == destination, NONE, of_route), NONE).astype(np.int32)
    copies = _ROW_KINDS[plan.tasks.kind] == RowKind.COPY
    slots = np.repeat([device.copy_engines for device in devices], 2).astype(np.int32)
    return np.where(copies, of_route[plan.tasks.route], np.int32(NONE)), slots


def _stages(paths: Paths, links: tuple[Link, ...]) -> Stages:
    number = {link.name: index for index, link in enumerate(links)}
    flat: list[Stage] = [stage for stages in paths.stages for stage in stages]
    counts = [len(stages) for stages in paths.stages]
    return Stages(
        first=np.concatenate([[0], np.cumsum(counts, dtype=np.int64)]).astype(np.int32),
        volume=np.array([stage.volume for stage in flat], np.float64),
        rate_bytes_per_s=np.array([stage.rate_bytes_per_s for stage in flat], np.float64),
        links=Ragged.from_lists([[number[link.name] for link, _ in stage.links] for stage in flat]),
        weights=np.array([weight for stage in flat for _, weight in stage.links], np.float64),
    )
