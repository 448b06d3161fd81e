"""The room that a step of the HOME paper has and takes at each batch, and the largest batches that need no search."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Literal

from experiments.home_constants import FITTED, PROPORTIONAL
from experiments.home_costs import Constants, limit_bytes
from experiments.home_setting import step
from stepsim.strategies.memory.rows import resident_bytes
from stepsim.strategies.memory.schedule import Action, candidates, schedule

Reserve = Literal["fixed", "growing"]
"""``"growing"``: the share that `PROPORTIONAL` has of the memory is lost for what all maps of the batch would take, as
fragments and workspaces may grow with the batch. At PyTorch's largest batch both mean the same."""

MOST_BATCH = 50_000
"""Beyond the floor of every model."""


def constants_at(reserve: Reserve, model: str, batch: int) -> Constants:
    """`FITTED` with the reserve at ``batch``."""
    if reserve == "fixed":
        return FITTED
    share = PROPORTIONAL.reserve_share
    lost_bytes = share / (1 - share) * kept_bytes(model, batch)
    return replace(FITTED, reserve_bytes=PROPORTIONAL.reserve_bytes + int(lost_bytes))


@cache
def kept_bytes(model: str, batch: int) -> int:
    """The peak of keeping everything."""
    workload = step(model, batch)
    return max(resident_bytes(workload, schedule(workload, {}, 0)))


@cache
def floor_bytes(model: str, batch: int) -> int:
    """What every policy takes: whatever can leave does, and comes back only when it is read.

    A tensor that is kept stays longer, and one that is recomputed is there from the same moment on.
    """
    workload = step(model, batch)
    policy = dict.fromkeys(candidates(workload), Action.SWAP)
    return max(resident_bytes(workload, schedule(workload, policy, 0, prefetch_ops=0)))


@cache
def kept_batch(reserve: Reserve, model: str) -> int:
    """The largest batch of plain PyTorch."""
    return _largest_within(reserve, model, kept_bytes)


@cache
def floor_batch(reserve: Reserve, model: str) -> int:
    """The largest batch that any policy reaches."""
    return _largest_within(reserve, model, floor_bytes)


def _largest_within(reserve: Reserve, model: str, needed_bytes: Callable[[str, int], int]) -> int:
    def fits(batch: int) -> bool:
        return needed_bytes(model, batch) <= limit_bytes(constants_at(reserve, model, batch))

    return largest(fits, least=1, most=MOST_BATCH, tolerance=0)


def largest(fits: Callable[[int], bool], *, least: int, most: int, tolerance: float) -> int:
    """By bisection: the largest batch from ``least``, which fits, to below ``most``; at most ``tolerance`` too small.

    Right only if nothing fits beyond what does not.

    >>> largest(lambda batch: batch <= 700, least=1, most=1000, tolerance=0)
    700
    """
    while most - least > max(1, tolerance * least):
        middle = (least + most) // 2
        least, most = (middle, most) if fits(middle) else (least, middle)
    return least
