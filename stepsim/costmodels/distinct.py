"""What a plan holds once or many times, once each, so that a cost model prices each thing once."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from stepsim.costmodels.model import Prediction
from stepsim.machines import Machine
from stepsim.machines.collectives import collective_stages
from stepsim.plan import NONE, TRANSFERS, CostTable, Origin, Plan


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Distinct:
    """The distinct work, transfers and collectives of a plan.

    ``works`` has (work, device) in each row, where the device of host work is NONE; ``moves`` has (route, size in
    bytes, 1 where it blocks its thread, else 0), ``collectives`` (entry of the plan's table, size in bytes). ``index``
    has, for each task, its row in a table of all works, then all moves, then all collectives, then one row for what
    costs nothing, as `cost_table` makes it.
    """

    works: NDArray[np.int64]
    moves: NDArray[np.int64]
    collectives: NDArray[np.int64]
    index: NDArray[np.int32]


def distinct(plan: Plan) -> Distinct:
    tasks = plan.tasks
    moving = np.isin(tasks.kind, TRANSFERS)
    working = (tasks.work != NONE) & ~moving
    works, work_of = _unique(tasks.work[working], tasks.device[working])
    moves, move_of = _unique(tasks.route[moving], tasks.size_bytes[moving], tasks.blocks_thread[moving])
    joining = tasks.collective != NONE
    collectives, collective_of = _unique(tasks.collective[joining], tasks.size_bytes[joining])
    first = len(works) + len(moves)
    index = np.full(len(plan), first + len(collectives), np.int32)
    index[working] = work_of
    index[moving] = len(works) + move_of
    index[joining] = first + collective_of
    return Distinct(works=works, moves=moves, collectives=collectives, index=index)


def _unique(first: NDArray[Any], *others: NDArray[Any]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The distinct rows of the columns, shape (rows, columns), as they come first, and which of them each entry is."""
    place, values = pd.factorize(first.astype(np.int64))
    rows = np.asarray(values, np.int64)[:, None]
    for column in others:
        code, values = pd.factorize(column.astype(np.int64))
        size = max(len(values), 1)
        place, keys = pd.factorize(place * size + code)
        before, here = np.divmod(np.asarray(keys, np.int64), size)
        rows = np.column_stack([rows[before], np.asarray(values, np.int64)[here]])
    return rows, place


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Flows:
    """What distinct moves or collectives take: latency, and the rate that each may not exceed. Shape (flows,) each."""

    latency_s: NDArray[np.float64]
    rate_cap_bytes_per_s: NDArray[np.float64]
    spread: NDArray[np.float64]
    origin: NDArray[np.int8]


def flows(found: Sequence[tuple[float, float]], origin: Origin, spread: ArrayLike = 0.0) -> Flows:
    """Of one origin: pairs of latency and rate."""
    pairs = np.array(found, np.float64).reshape(-1, 2)
    return Flows(
        latency_s=pairs[:, 0],
        rate_cap_bytes_per_s=pairs[:, 1],
        spread=np.broadcast_to(np.asarray(spread, np.float64), len(pairs)),
        origin=np.full(len(pairs), origin, np.int8),
    )


def cost_table(
    *,
    work: Prediction,
    moves: Flows,
    collectives: Flows,
    launch_s: float,
    sm_share: ArrayLike = 1.0,
    bandwidth_share: ArrayLike = 0.0,
    collective_sm_share: ArrayLike = 0.0,
) -> CostTable:
    """The table that `Distinct.index` points into.

    ``sm_share`` and ``bandwidth_share`` are those of the work; a kernel that nobody knows better needs all SMs.
    Collectives take ``collective_sm_share`` of them.
    """
    sizes = (len(work.seconds), len(moves.latency_s), len(collectives.latency_s), 1)

    def column(*parts: ArrayLike) -> NDArray[Any]:
        return np.concatenate([np.broadcast_to(part, size) for part, size in zip(parts, sizes, strict=True)])

    return CostTable(
        seconds=column(work.seconds, 0.0, 0.0, 0.0),
        launch_s=column(*[launch_s] * len(sizes)),
        latency_s=column(0.0, moves.latency_s, collectives.latency_s, 0.0),
        rate_cap_bytes_per_s=column(np.inf, moves.rate_cap_bytes_per_s, collectives.rate_cap_bytes_per_s, np.inf),
        fixed=column(False, False, False, False),
        sm_share=column(sm_share, 0.0, collective_sm_share, 0.0),
        bandwidth_share=column(bandwidth_share, 0.0, 0.0, 0.0),
        spread=column(work.spread, moves.spread, collectives.spread, 0.0),
        origin=column(work.origin, moves.origin, collectives.origin, Origin.ROOFLINE).astype(np.int8),
    )


def collective_flows(plan: Plan, machine: Machine, entries: Iterable[int]) -> Flows:
    """Collectives that move their bytes as fast as their links let them."""
    return flows([(collective_latency_s(plan, machine, entry), np.inf) for entry in entries], Origin.ROOFLINE)


def collective_latency_s(plan: Plan, machine: Machine, entry: int) -> float:
    """What the steps of collective ``entry`` take over the links of ``machine``, however few the bytes."""
    table = plan.collectives
    team = [plan.devices.name[device] for device in table.team[entry].tolist()]
    return sum(stage.latency_s for stage in collective_stages(machine, table.kind[entry], table.algorithm[entry], team))
