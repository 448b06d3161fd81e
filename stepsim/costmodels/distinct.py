"""What a plan holds once or many times, once each, so that a cost model prices each thing once."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from stepsim.errors import CalibrationError
from stepsim.plan import NONE, TRANSFERS, CostTable, Origin, Plan


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Distinct:
    """The distinct work and transfers of a plan.

    ``works`` has (work, device) in each row, where the device of host work is NONE; ``moves`` has (route, size in
    bytes). ``index`` has, for each task, its row in a table of all works, then all moves, then one row for what costs
    nothing, as `cost_table` makes it.
    """

    works: NDArray[np.int64]
    moves: NDArray[np.int64]
    index: NDArray[np.int32]


def distinct(plan: Plan) -> Distinct:
    """Raises `CalibrationError` for a plan with collectives, which no cost model of one device prices."""
    tasks = plan.tasks
    if len(plan.collectives):
        raise CalibrationError(
            f"the plan has a collective {plan.collectives.kind[0]!r}, which these costs do not cover"
        )
    moving = np.isin(tasks.kind, TRANSFERS)
    working = (tasks.work != NONE) & ~moving
    works, work_of = _unique(tasks.work[working], tasks.device[working])
    moves, move_of = _unique(tasks.route[moving], tasks.size_bytes[moving])
    index = np.full(len(plan), len(works) + len(moves), np.int32)
    index[working] = work_of
    index[moving] = len(works) + move_of
    return Distinct(works=works, moves=moves, index=index)


def _unique(first: ArrayLike, second: ArrayLike) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The distinct pairs, shape (pairs, 2), and which of them each entry is."""
    pairs = np.column_stack([first, second]).astype(np.int64)
    found, place = np.unique(pairs, axis=0, return_inverse=True)
    return found, place.reshape(-1)


def cost_table(
    *,
    work_s: ArrayLike,
    work_origin: ArrayLike,
    latency_s: ArrayLike,
    rate_cap_bytes_per_s: ArrayLike,
    move_origin: Origin,
    launch_s: float,
) -> CostTable:
    """The table that `Distinct.index` points into: seconds of work, latency and rate of moves, and one row of zeros."""
    num_works, num_moves = np.size(work_s), np.size(latency_s)
    size = num_works + num_moves + 1
    return CostTable(
        seconds=np.concatenate([work_s, np.zeros(num_moves + 1)]),
        launch_s=np.full(size, launch_s),
        latency_s=np.concatenate([np.zeros(num_works), latency_s, [0.0]]),
        rate_cap_bytes_per_s=np.concatenate([np.full(num_works, np.inf), rate_cap_bytes_per_s, [np.inf]]),
        fixed=np.zeros(size, np.bool_),
        origin=np.concatenate([work_origin, np.full(num_moves + 1, move_origin)]).astype(np.int8),
    )
