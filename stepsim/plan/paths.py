"""Paths: over which links each transfer and collective of a plan goes on a machine, and what it takes alone."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from stepsim.errors import MachineError
from stepsim.machines.collectives import Stage, collective_stages, transfer_stages
from stepsim.plan import NONE, TRANSFERS, Plan, TaskKind

if TYPE_CHECKING:
    from stepsim.machines import Machine
    from stepsim.plan import TaskCosts

MOVES = (*TRANSFERS, TaskKind.COLLECTIVE)
"""Kinds whose bytes flow over links."""


@dataclass(frozen=True, slots=True, eq=False)
class Paths:
    """``stages`` of each path, and for each row its path (NONE for rows that move nothing)."""

    stages: Sequence[tuple[Stage, ...]]
    of_row: NDArray[np.int32]


def paths_of(plan: Plan, machine: "Machine", rows: NDArray[np.bool_]) -> Paths:
    """The paths of ``rows`` (shape (tasks,), true for the rows to look at): one for each route and collective in use.

    Raises `MachineError` where two devices have no route.
    """
    tasks, num_routes = plan.tasks, len(plan.routes)
    collective = rows & (tasks.kind == TaskKind.COLLECTIVE)
    of_row = np.where(rows & np.isin(tasks.kind, TRANSFERS), tasks.route, NONE)
    of_row = np.where(collective, num_routes + tasks.collective, of_row).astype(np.int32)
    stages: list[tuple[Stage, ...]] = [()] * (num_routes + len(plan.collectives))
    found, first_rows = np.unique(of_row, return_index=True)
    for path, row in zip(found.tolist(), first_rows.tolist(), strict=True):
        if path == NONE:
            continue
        try:
            stages[path] = _stages_of(plan, machine, path)
        except MachineError as error:
            raise MachineError(f"row {row} ({plan.row_names()[row]}): {error}") from error
    return Paths(stages, of_row)


def _stages_of(plan: Plan, machine: "Machine", path: int) -> tuple[Stage, ...]:
    names, entry = plan.devices.name, path - len(plan.routes)
    if entry < 0:
        return transfer_stages(machine, names[plan.routes.source[path]], names[plan.routes.destination[path]])
    team = [names[device] for device in plan.collectives.team[entry].tolist()]
    return collective_stages(machine, plan.collectives.kind[entry], plan.collectives.algorithm[entry], team)


def seconds_alone(plan: Plan, machine: "Machine", costs: "TaskCosts") -> NDArray[np.float64]:
    """What each task takes when nothing else runs, launch apart. Shape (tasks,).

    Work takes its seconds over the speed of its device. A transfer or collective takes its latency, then the bytes of
    each stage at the lower of its rate cap and the rate of the stage; a recorded one what it took.
    """
    table, kind = costs.table, plan.tasks.kind
    speeds = [machine.device(name).speed for name in plan.devices.name]
    on_device = np.isin(kind, (TaskKind.COMPUTE, TaskKind.RECOMPUTE))
    seconds = table.seconds[costs.index] / np.where(on_device, np.array([*speeds, 1.0])[plan.tasks.device], 1.0)
    seconds[kind == TaskKind.RELEASE] = 0.0
    moves = np.isin(kind, MOVES) & ~table.fixed[costs.index]
    paths = paths_of(plan, machine, moves)
    seconds[moves] = table.latency_s[costs.index[moves]]
    for path in np.unique(paths.of_row[moves]).tolist():
        rows = np.flatnonzero(paths.of_row == path)
        cap = table.rate_cap_bytes_per_s[costs.index[rows]]
        for stage in paths.stages[path]:
            moved_bytes = plan.tasks.size_bytes[rows] * stage.volume
            seconds[rows] += moved_bytes / np.minimum(cap, stage.rate_bytes_per_s)
    return seconds
