"""Report: numbers derived from a timeline and its plan, whether it was simulated or measured."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from stepsim.errors import StepsimError
from stepsim.memory import memory_profile
from stepsim.plan import NONE, TRANSFERS, Origin, Plan, TaskCosts, TaskKind
from stepsim.tables import Ragged
from stepsim.timeline import Spans, Timeline, end_mark

COMPUTES = (TaskKind.COMPUTE, TaskKind.RECOMPUTE)
MOVES = (*TRANSFERS, TaskKind.COLLECTIVE)
"""Kinds that keep links busy: what a good plan hides behind `COMPUTES`."""


@dataclass(frozen=True, kw_only=True)
class Report:
    """What one run of a plan came to.

    ``period_s`` is what one of several steps takes once they follow each other steadily (None for a single step); where
    it is known, ``samples_per_s`` goes by it. ``busy`` is the share of the makespan in which each lane works (0 for an
    idle lane). ``exposed_transfer_s`` is the time in which data moves and nothing computes.
    """

    makespan_s: float
    period_s: float | None
    samples_per_s: float | None
    busy: Mapping[str, float]
    exposed_transfer_s: float
    peak_bytes: Mapping[str, int]
    timeline: Timeline = field(repr=False, compare=False)
    plan: Plan = field(repr=False, compare=False)

    @cached_property
    def critical_path(self) -> tuple[int, ...]:
        """The rows, in order of time, that led to the last end."""
        return tuple(critical_path(self.timeline, self.plan).tolist())

    @cached_property
    def critical_s(self) -> dict[str, float]:
        """Seconds of the critical path by task kind.

        What the makespan has beyond them is waiting for launches and for busy engines.
        """
        return _seconds_along(np.array(self.critical_path, np.int64), self.timeline.spans)


def report(timeline: Timeline, plan: Plan, *, batch: int | None = None) -> Report:
    """The numbers of ``timeline``, a run of ``plan``; with ``batch`` samples a step also the throughput.

    Raises `StepsimError` if ``timeline`` is of another plan.
    """
    if timeline.plan_hash != plan.content_hash:
        raise StepsimError(f"the timeline is of plan {timeline.plan_hash[:12]}, not of plan {plan.content_hash[:12]}")
    makespan_s, period_s = timeline.makespan_s, steady_period_s(plan, timeline.spans.end_s)
    step_s = makespan_s if period_s is None else period_s
    return Report(
        makespan_s=makespan_s,
        period_s=period_s,
        samples_per_s=batch / step_s if batch is not None and step_s > 0 else None,
        busy=_busy(timeline),
        exposed_transfer_s=_exposed_transfer_s(timeline.spans),
        peak_bytes=memory_profile(plan).peaks(),
        timeline=timeline,
        plan=plan,
    )


def trust(plan: Plan, costs: TaskCosts, timeline: Timeline) -> dict[str, float]:
    """The share of busy seconds whose cost comes from each origin, most trusted first; origins without any left out."""
    spans = timeline.spans
    assert len(costs.index) == len(plan) == len(spans), "costs, plan and timeline are of different plans"
    origin = costs.table.origin[costs.index]
    seconds = np.bincount(origin, spans.end_s - spans.start_s, len(Origin))
    return {one.name.lower(): float(seconds[one] / seconds.sum()) for one in Origin if seconds[one] > 0}


def steady_period_s(plan: Plan, end_s: NDArray[np.float64]) -> float | None:
    """The mean time from the end of a step to the end of the next, over the later half of the steps; None for one step.

    A step is the rows from its mark to its end mark, or else to the next step. It ends when all rows so far have.

    ::

        row   0   1   2   3   4   5        steps end at 4, 6 and 9; the later half of three steps is the last: 3
        mark  *       *       *
        end   1   4   5   6   9   7
    """
    row_of = dict(zip(plan.marks.name, plan.marks.row.tolist(), strict=True))
    ends = {end_mark(name) for name in row_of}
    steps = sorted((row, name) for name, row in row_of.items() if name not in ends)
    num_later = len(steps) // 2
    if num_later == 0:
        return None
    following = [*(row for row, _ in steps[1:]), len(plan)]
    stops = [row_of.get(end_mark(name), stop) for (_, name), stop in zip(steps, following, strict=True)]
    ended_s = np.append(0.0, np.maximum.accumulate(end_s))[stops]
    return float(ended_s[-1] - ended_s[-1 - num_later]) / num_later


def _busy(timeline: Timeline) -> dict[str, float]:
    """Recorded spans of one lane may overlap: what counts is that the lane works, not how often."""
    spans, makespan_s = timeline.spans, timeline.makespan_s
    order = np.lexsort((spans.start_s, spans.lane))
    borders = np.searchsorted(spans.lane[order], np.arange(len(timeline.lanes) + 1))
    found = {}
    for lane, name in enumerate(timeline.lanes):
        rows = order[borders[lane] : borders[lane + 1]]
        seconds = _added_s(spans.start_s[rows], spans.end_s[rows]).sum()
        found[name] = min(1.0, float(seconds / makespan_s)) if seconds > 0 else 0.0  # the sum is rounded, hence min
    return found


def _added_s(start_s: NDArray[np.float64], end_s: NDArray[np.float64]) -> NDArray[np.float64]:
    """The seconds that each interval adds to what those before it have covered.

    ::

        interval 0  ------           adds 6
        interval 1     ------        adds 3
        interval 2      --           adds 0
    """
    covered_s = np.concatenate([start_s[:1], np.maximum.accumulate(end_s)])[: len(end_s)]
    added_s: NDArray[np.float64] = np.maximum(0.0, end_s - np.maximum(start_s, covered_s))
    return added_s


def _exposed_transfer_s(spans: Spans) -> float:
    """One sweep over all starts and ends: the time between two of them counts if data moves and nothing computes."""
    time_s = np.concatenate([spans.start_s, spans.end_s])
    order = np.argsort(time_s, kind="stable")

    def active(kinds: tuple[TaskKind, ...]) -> NDArray[np.bool_]:
        steps = np.isin(spans.kind, kinds).astype(np.int64)
        return np.cumsum(np.concatenate([steps, -steps])[order])[:-1] > 0

    return float(np.diff(time_s[order])[active(MOVES) & ~active(COMPUTES)].sum())


def critical_path(timeline: Timeline, plan: Plan) -> NDArray[np.int64]:
    """Rows in order of time, walked back from the last end, each time to the predecessor that ended last.

    ::

        s0  --F0--      --F1--        F0, out, F1: the copy's end is the start of F1
        d2h       -out-
    """
    start_s, end_s = timeline.spans.start_s, timeline.spans.end_s
    before = _Predecessors.of(plan)
    seen: set[int] = set()
    path: list[int] = []
    row = int(end_s.argmax()) if len(plan) else NONE
    while row != NONE:
        path.append(row)
        seen.add(row)
        waits = [other for other in before.waits(row) if other not in seen]
        waits += [other for other in before.issued_after(row) if other not in seen and end_s[other] <= start_s[row]]
        row = max(waits, key=end_s.__getitem__, default=NONE)  # of equal ends the first: a dependency explains more
    return np.array(path[::-1], np.int64)


@dataclass(frozen=True, slots=True)
class _Predecessors:
    """For each row the rows that it may have waited for; NONE where there is none. ``group`` indexes ``members``."""

    dependencies: Ragged
    on_lane: NDArray[np.int64]
    on_thread: NDArray[np.int64]
    blocking: NDArray[np.int64]
    group: NDArray[np.int64]
    members: Ragged

    @classmethod
    def of(cls, plan: Plan) -> "_Predecessors":
        tasks = plan.tasks
        blocks = (tasks.kind == TaskKind.HOST) | tasks.blocks_thread
        everything = np.ones(len(plan), np.bool_)
        grouped = np.flatnonzero(tasks.group != NONE)
        names, numbers = np.unique(tasks.group[grouped], return_inverse=True)
        group = np.full(len(plan), NONE)
        group[grouped] = numbers
        return cls(
            dependencies=tasks.dependencies,
            on_lane=_last_before(plan.lane_of_rows(), everything),
            on_thread=_last_before(tasks.thread, everything),
            blocking=_last_before(tasks.thread, blocks),
            group=group,
            members=Ragged.from_pairs(numbers, grouped, len(names)),
        )

    def together(self, row: int) -> list[int]:
        """``row`` and the others of its group: they start and end as one."""
        return [row] if self.group[row] == NONE else self.members[self.group[row]].tolist()

    def waits(self, row: int) -> list[int]:
        """Rows that ``row``, or one that it meets, cannot start before."""
        found: list[int] = []
        for one in self.together(row):
            found += [*self.dependencies[one].tolist(), int(self.on_lane[one]), int(self.blocking[one])]
        return [other for other in found if other != NONE]

    def issued_after(self, row: int) -> list[int]:
        """The row issued just before: on a CPU it holds the thread, on a GPU it may still run."""
        return [int(self.on_thread[row])] if self.on_thread[row] != NONE else []


def _last_before(place: NDArray[np.int32], counts: NDArray[np.bool_]) -> NDArray[np.int64]:
    """For each row the last earlier row of the same ``place`` that ``counts``."""
    order = np.argsort(place, kind="stable")
    latest = np.maximum.accumulate(np.where(counts[order], np.arange(len(order)), NONE))
    before = np.concatenate([[NONE], latest])[: len(order)]
    found = np.where(before == NONE, NONE, order[before])
    found[place[found] != place[order]] = NONE
    last = np.empty_like(found)
    last[order] = found
    return last


def _seconds_along(path: NDArray[np.int64], spans: Spans) -> dict[str, float]:
    """Seconds of the path by task kind; where recorded spans overlap, each instant counts once."""
    seconds = np.bincount(spans.kind[path], _added_s(spans.start_s[path], spans.end_s[path]), len(TaskKind))
    return {kind.label: float(seconds[kind]) for kind in TaskKind if seconds[kind] > 0}
