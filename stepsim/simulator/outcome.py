"""Outcome: when each row was ready, started and ended, as an engine says it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from stepsim.errors import StepsimError, StoppedError

Sharing = Literal["leftover", "fair"]
"""How the kernels of a device share it."""

Progress = Callable[[int, int], None]
"""Called now and then with how many tasks have ended, of how many."""


def check_sharing(sharing: str) -> None:
    """Raises `StepsimError` for one that is not known."""
    if sharing not in get_args(Sharing):
        raise StepsimError(f"unknown sharing {sharing!r}; known: {', '.join(get_args(Sharing))}")


def stopped(num_ended: int, num_tasks: int, now_s: float) -> StoppedError:
    """What an engine raises on Ctrl-C."""
    return StoppedError(f"stopped after {num_ended} of {num_tasks} tasks, at {now_s:.6g} s of simulated time")


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Outcome:
    """Seconds from the start of the run, shape (tasks,); NaN for rows that never started, or never ended.

    ``issued`` says which rows their thread has issued; host work is issued when its thread has come to it.
    """

    ready_s: NDArray[np.float64]
    start_s: NDArray[np.float64]
    end_s: NDArray[np.float64]
    issued: NDArray[np.bool_]
