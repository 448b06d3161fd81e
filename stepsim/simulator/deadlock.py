"""Deadlock is a result: tasks that can never start are named, with what each waits for."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from stepsim.errors import DeadlockError
from stepsim.plan import Plan
from stepsim.simulator.outcome import Outcome
from stepsim.simulator.problem import Problem

SHOWN = 3


def check_all_ran(problem: Problem, outcome: Outcome) -> None:
    """Raises `DeadlockError` when the clock stopped before every row had ended."""
    stuck = np.flatnonzero(np.isnan(outcome.end_s))
    if len(stuck) == 0:
        return
    named = _naming(problem.plan)
    first = stuck[:SHOWN].tolist()
    shown = "; ".join(f"{named(row)} waits for {_reason(problem, outcome, row, stuck, named)}" for row in first)
    more = f"; and {len(stuck) - SHOWN} more" if len(stuck) > SHOWN else ""
    raise DeadlockError(f"{len(stuck)} of {len(problem.plan)} tasks can never start: {shown}{more}")


def _naming(plan: Plan) -> Callable[[int], str]:
    names, lanes, lane = plan.row_names(), plan.lane_names(), plan.lane_of_rows()
    return lambda row: f"row {row} ({names[row]} on {lanes[lane[row]]})"


def _reason(problem: Problem, outcome: Outcome, row: int, stuck: NDArray[np.intp], named: Callable[[int], str]) -> str:
    """The first of: an unfinished dependency, what holds its thread, the row before it in line, its group."""
    waits = problem.dependencies[row]
    unfinished = waits[np.isnan(outcome.end_s[waits])]
    if len(unfinished):
        return named(int(unfinished[0]))
    before = stuck[stuck < row]
    if not outcome.issued[row]:
        holds = before[(problem.thread[before] == problem.thread[row]) & problem.blocks[before]]
        return f"{named(int(holds[0]))}, which holds its thread"
    in_line = before[problem.stream[before] == problem.stream[row]]
    if len(in_line):
        return f"row {in_line[-1]}, before it on the same stream"
    others = stuck[(problem.group[stuck] == problem.group[row]) & (stuck != row)]
    return f"the others of its group, rows {others.tolist()}"
