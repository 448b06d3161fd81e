"""The transfers of a plan as distinct moves, so that each is priced once."""

import numpy as np
from numpy.typing import NDArray

from stepsim.plan import NONE, TRANSFERS, Plan


def distinct_moves(plan: Plan) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Each (route, size in bytes) once, shape (moves, 2); and which of them each transfer of the plan is."""
    tasks = plan.tasks
    moving = np.isin(tasks.kind, TRANSFERS)
    pairs = np.column_stack([tasks.route[moving].astype(np.int64), tasks.size_bytes[moving]])
    distinct, place = np.unique(pairs, axis=0, return_inverse=True)
    return distinct, place.reshape(-1)


def task_index(plan: Plan, place: NDArray[np.int64], num_work: int, num_moves: int) -> NDArray[np.int32]:
    """Row of each task in a cost table of all work, then all moves, then one row for what costs nothing."""
    tasks = plan.tasks
    index = np.where(tasks.work != NONE, tasks.work, num_work + num_moves)
    index[np.isin(tasks.kind, TRANSFERS)] = num_work + place
    return index.astype(np.int32)
