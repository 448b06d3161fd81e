"""Checkmate's integer program, by HiGHS: the least work under a memory budget, proven; and its rounding.

Jain et al., MLSys 2020, section 4. The memory freed after each node is said by one variable for each of its parents, as
there; that it be freed only once and only when nothing needs it stands here as one inequality for each reason, instead
of the count of hazards: the same integer points, a tighter relaxation, and no integer variables but ``computed`` and
``kept``.
"""

import ctypes
import math
import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import Bounds, LinearConstraint, OptimizeResult, milp
from scipy.sparse import csr_matrix

from stepsim.strategies.memory.remat.problem import Recomputation, Schedule, peak_bytes, with_least_work

STDOUT = 1
"""The file descriptor that programs in C write to."""

Floats = NDArray[np.float64]
Key = tuple[str, int, int, int]
"""A variable: its kind, stage, node, and, for what is freed, the node that is freed."""
Row = tuple[dict[Key, float], float, float]
"""Coefficients, and the bounds of their sum."""

CUTS: tuple[float, ...] = (0.0, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5)
"""By so much is the budget cut for a relaxation that is rounded. The paper cuts it by 0.1 (section 5.2). Where its
released code compares, the cheapest that fits counts of all that was rounded at dozens of budgets: these stand for
them, and are ours."""

THRESHOLDS: tuple[float, ...] = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
"""From here on counts as kept: the paper rounds at 0.5, its released code tries these."""

TOLERANCE = 1e-6
"""HiGHS allows itself a tenth of that; what it keeps is often 0.5, and what it takes the whole budget."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Solution:
    """The best schedule found, None where there is none; ``bound_s`` is proven; ``complete``: nothing better exists."""

    schedule: Schedule | None
    bound_s: float
    complete: bool


def solve(problem: Recomputation, budget_bytes: int, *, time_limit_s: float) -> Solution:
    """The schedule of least work whose peak is at most ``budget_bytes``, or the best within ``time_limit_s``.

    The solver may exceed the budget by its tolerance; then it is asked again, for as much less.
    """
    end_s = time.monotonic() + time_limit_s
    found = _solve(problem, budget_bytes, time_limit_s)
    if found.schedule is None or peak_bytes(problem, found.schedule) <= budget_bytes:
        return found
    less_bytes = budget_bytes - math.ceil(TOLERANCE * (budget_bytes - problem.fixed_bytes))
    again = _solve(problem, less_bytes, end_s - time.monotonic())
    return replace(again, bound_s=found.bound_s)


def _solve(problem: Recomputation, budget_bytes: int, time_limit_s: float) -> Solution:
    program = _Program(problem, budget_bytes)
    found = program.run(whole=True, time_limit_s=time_limit_s)
    bound = getattr(found, "mip_dual_bound", None)
    bound_s = (bound if bound is not None else 1.0) * float(problem.seconds.sum())
    schedule = None if found.x is None else program.schedule(found.x, 0.5)
    return Solution(schedule=schedule, bound_s=bound_s, complete=found.status in (0, 2))


def solve_rounded(
    problem: Recomputation,
    budget_bytes: int,
    *,
    time_limit_s: float,
    cuts: Sequence[float] = CUTS,
    thresholds: Sequence[float] = THRESHOLDS,
) -> Solution:
    """Two-phase rounding: what a relaxation keeps, and the least work that it needs; the cheapest that fits.

    The relaxation without a cut proves the bound. ``cuts`` ascend: the first that leaves too little is the last.
    """
    end_s = time.monotonic() + time_limit_s
    room_bytes = budget_bytes - problem.fixed_bytes
    bound_s, fitting = float(problem.seconds.sum()), list[Schedule]()
    for cut in cuts:
        program = _Program(problem, problem.fixed_bytes + round((1 - cut) * room_bytes))
        relaxed = program.run(whole=False, time_limit_s=end_s - time.monotonic())
        if relaxed.x is None:
            break
        bound_s *= 1.0 if cut else relaxed.fun
        found = (program.schedule(relaxed.x, threshold) for threshold in thresholds)
        fitting += [schedule for schedule in found if peak_bytes(problem, schedule) <= budget_bytes]
    best = min(fitting, key=lambda schedule: schedule.seconds(problem), default=None)
    return Solution(schedule=best, bound_s=bound_s, complete=relaxed.status in (0, 2))


class _Program:
    """Time in units of one run of everything, memory in units of what the budget leaves."""

    def __init__(self, problem: Recomputation, budget_bytes: int) -> None:
        self.problem = problem
        room = max(budget_bytes - problem.fixed_bytes, 1)
        self.size, self.staying = (problem.size_bytes / room).tolist(), (problem.staying_bytes / room).tolist()
        self.columns: dict[Key, int] = {key: place for place, key in enumerate(self._variables())}
        self.cost = np.zeros(len(self.columns))
        for (kind, _, node, _), place in self.columns.items():
            if kind == "computed":
                self.cost[place] = problem.seconds[node] / problem.seconds.sum()

    def run(self, *, whole: bool, time_limit_s: float) -> OptimizeResult:
        """With ``whole`` computed and kept are 0 or 1, else anything between."""
        rows = list(self._rows())
        places = [
            (number, self.columns[key], value) for number, row in enumerate(rows) for key, value in row[0].items()
        ]
        number, place, value = zip(*places, strict=True)
        matrix = csr_matrix((value, (number, place)), shape=(len(rows), len(self.columns)))
        limits = LinearConstraint(matrix, [row[1] for row in rows], [row[2] for row in rows])
        kinds = np.array([key[0] in ("computed", "kept") for key in self.columns], dtype=float)
        with _silenced():
            return milp(
                self.cost,
                integrality=kinds * whole,
                bounds=self._bounds(),
                constraints=limits,
                options={"time_limit": max(time_limit_s, 0.1)},
            )

    def schedule(self, values: Floats, threshold: float) -> Schedule:
        kept = np.zeros((len(self.problem),) * 2, np.bool_)
        for (kind, stage, node, _), place in self.columns.items():
            if kind == "kept":
                kept[stage, node] = values[place] >= threshold - TOLERANCE
        return with_least_work(self.problem, kept)

    def _variables(self) -> Iterator[Key]:
        for stage in range(len(self.problem)):
            for node in range(stage + 1):
                yield ("computed", stage, node, -1)
                yield ("level", stage, node, -1)
                if node < stage:
                    yield ("kept", stage, node, -1)
                for freed in self._freeable(node):
                    yield ("freed", stage, node, freed)

    def _freeable(self, node: int) -> list[int]:
        """What may go after ``node`` ran."""
        return [used for used in (*self.problem.parents[node], node) if self.size[used]]

    def _bounds(self) -> Bounds:
        low, high = np.zeros(len(self.columns)), np.ones(len(self.columns))
        for (kind, stage, node, _), place in self.columns.items():
            if kind == "computed":
                low[place] = stage == node
                high[place] = stage <= self.problem.last_run[node]
        return Bounds(low, high)

    def _rows(self) -> Iterator[Row]:
        for stage in range(len(self.problem)):
            for node in range(stage + 1):
                yield from self._needs(stage, node)
                yield self._level(stage, node)
                if self.staying[node]:
                    yield self._level_with_what_stays(stage, node)
                for freed in self._freeable(node):
                    yield from self._frees(stage, node, freed)

    def _needs(self, stage: int, node: int) -> Iterator[Row]:
        """What is read, or kept for the next stage, is there."""
        for parent in self.problem.parents[node]:
            yield self._there(stage, parent) | {("computed", stage, node, -1): -1.0}, 0.0, np.inf
        if stage + 1 < len(self.problem):
            yield self._there(stage, node) | {("kept", stage + 1, node, -1): -1.0}, 0.0, np.inf

    def _there(self, stage: int, node: int) -> dict[Key, float]:
        kept: dict[Key, float] = {("kept", stage, node, -1): 1.0} if node < stage else {}
        return {("computed", stage, node, -1): 1.0} | kept

    def _level(self, stage: int, node: int) -> Row:
        """What lies there while ``node`` runs or would run, but for what it makes that stays."""
        row: dict[Key, float] = {("level", stage, node, -1): -1.0, ("computed", stage, node, -1): self.size[node]}
        if node == 0:
            row |= {("kept", stage, other, -1): self.size[other] for other in range(stage)}
            stayed = sum(self.staying[:stage])
            return row, -stayed, -stayed
        row[("level", stage, node - 1, -1)] = 1.0
        row |= {("freed", stage, node - 1, freed): -self.size[freed] for freed in self._freeable(node - 1)}
        return row, 0.0, 0.0

    def _level_with_what_stays(self, stage: int, node: int) -> Row:
        level: dict[Key, float] = {("level", stage, node, -1): 1.0}
        return level | {("computed", stage, node, -1): self.staying[node]}, -np.inf, 1.0

    def _frees(self, stage: int, node: int, freed: int) -> Iterator[Row]:
        """Only after a run, only what is not kept, and only when no later node of the stage reads it."""
        gone: dict[Key, float] = {("freed", stage, node, freed): 1.0}
        yield gone | {("computed", stage, node, -1): -1.0}, -np.inf, 0.0
        if stage + 1 < len(self.problem):
            yield gone | {("kept", stage + 1, freed, -1): 1.0}, -np.inf, 1.0
        for child in self.problem.children[freed]:
            if node < child <= stage:
                yield gone | {("computed", stage, child, -1): 1.0}, -np.inf, 1.0


@contextmanager
def _silenced() -> Iterator[None]:
    """HiGHS writes some lines to the standard output of the process, whatever it is told."""
    sys.stdout.flush()
    kept = os.dup(STDOUT)
    with open(os.devnull, "wb") as nowhere:
        os.dup2(nowhere.fileno(), STDOUT)
    try:
        yield
    finally:
        ctypes.CDLL(None).fflush(None)  # else its lines wait in the buffer of C, and come out later
        os.dup2(kept, STDOUT)
        os.close(kept)
