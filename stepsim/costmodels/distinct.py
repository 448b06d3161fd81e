"""What a plan holds once or many times, once each, so that a cost model prices each thing once."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from stepsim.machines import Machine
from stepsim.machines.collectives import collective_stages
from stepsim.plan import NONE, TRANSFERS, CostTable, Origin, Plan


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Distinct:
    """The distinct work, transfers and collectives of a plan.

    ``works`` has (work, device) in each row, where the device of host work is NONE; ``moves`` has (route, size in
    bytes). ``index`` has, for each task, its row in a table of all works, then all moves, then the collectives of the
    plan, then one row for what costs nothing, as `cost_table` makes it.
    """

    works: NDArray[np.int64]
    moves: NDArray[np.int64]
    index: NDArray[np.int32]


def distinct(plan: Plan) -> Distinct:
    tasks = plan.tasks
    moving = np.isin(tasks.kind, TRANSFERS)
    working = (tasks.work != NONE) & ~moving
    works, work_of = _unique(tasks.work[working], tasks.device[working])
    moves, move_of = _unique(tasks.route[moving], tasks.size_bytes[moving])
    first = len(works) + len(moves)
    index = np.where(tasks.collective != NONE, first + tasks.collective, first + len(plan.collectives)).astype(np.int32)
    index[working] = work_of
    index[moving] = len(works) + move_of
    return Distinct(works=works, moves=moves, index=index)


def _unique(first: NDArray[Any], second: NDArray[Any]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The distinct pairs, shape (pairs, 2), as they come first, and which of them each entry is."""
    code, values = pd.factorize(second)
    place, keys = pd.factorize(first.astype(np.int64) * max(len(values), 1) + code)
    one, two = np.divmod(np.asarray(keys, np.int64), max(len(values), 1))
    return np.stack([one, np.asarray(values, np.int64)[two]], axis=1), place


def cost_table(
    *,
    work_s: ArrayLike,
    work_origin: ArrayLike,
    latency_s: ArrayLike,
    rate_cap_bytes_per_s: ArrayLike,
    move_origin: Origin,
    collective_latency_s: ArrayLike,
    launch_s: float,
    work_spread: ArrayLike = 0.0,
) -> CostTable:
    """The table that `Distinct.index` points into: seconds of work, latency and rate of moves, latency of collectives.

    Until a model says what a kernel needs of its device it is taken to need all SMs. A collective moves its bytes as
    fast as its links let it.
    """
    num_works, num_moves, num_collectives = np.size(work_s), np.size(latency_s), np.size(collective_latency_s)
    rest = num_collectives + 1
    size = num_works + num_moves + rest
    return CostTable(
        seconds=np.concatenate([work_s, np.zeros(num_moves + rest)]),
        launch_s=np.full(size, launch_s),
        latency_s=np.concatenate([np.zeros(num_works), latency_s, collective_latency_s, [0.0]]),
        rate_cap_bytes_per_s=np.concatenate(
            [np.full(num_works, np.inf), rate_cap_bytes_per_s, np.full(rest, np.inf)],
        ),
        fixed=np.zeros(size, np.bool_),
        sm_share=np.concatenate([np.ones(num_works), np.zeros(num_moves + rest)]),
        bandwidth_share=np.zeros(size),
        spread=np.concatenate([np.broadcast_to(work_spread, num_works), np.zeros(num_moves + rest)]),
        origin=np.concatenate(
            [work_origin, np.full(num_moves, move_origin), np.full(rest, Origin.ROOFLINE)],
        ).astype(np.int8),
    )


def collective_latency_s(plan: Plan, machine: Machine, entry: int) -> float:
    """What the steps of collective ``entry`` take over the links of ``machine``, however few the bytes."""
    table = plan.collectives
    team = [plan.devices.name[device] for device in table.team[entry].tolist()]
    return sum(stage.latency_s for stage in collective_stages(machine, table.kind[entry], table.algorithm[entry], team))
