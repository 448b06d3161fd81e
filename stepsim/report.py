"""Report: numbers derived from a timeline and its plan, whether it was simulated or measured."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stepsim.errors import StepsimError
from stepsim.memory import memory_profile
from stepsim.plan import NONE, TRANSFERS, Origin, Plan, TaskCosts, TaskKind
from stepsim.timeline import Spans, Timeline

COMPUTES = (TaskKind.COMPUTE, TaskKind.RECOMPUTE)
MOVES = (*TRANSFERS, TaskKind.COLLECTIVE)
"""Kinds that keep links busy: what a good plan hides behind `COMPUTES`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What one run of a plan came to.

    ``busy`` is the share of the makespan in which each lane works (0 for an idle lane). ``exposed_transfer_s`` is the
    time in which data moves and nothing computes. ``critical_path`` are the rows, in order of time, that led to the
    last end; ``critical_s`` are its seconds by task kind: what the makespan has beyond them is waiting for launches and
    for busy engines.
    """

    makespan_s: float
    samples_per_s: float | None
    busy: Mapping[str, float]
    exposed_transfer_s: float
    peak_bytes: Mapping[str, int]
    critical_path: tuple[int, ...]
    critical_s: Mapping[str, float]


def report(timeline: Timeline, plan: Plan, *, batch: int | None = None) -> Report:
    """The numbers of ``timeline``, a run of ``plan``; with ``batch`` samples a step also the throughput.

    Raises `StepsimError` if ``timeline`` is of another plan.
    """
    if timeline.plan_hash != plan.content_hash:
        raise StepsimError(f"the timeline is of plan {timeline.plan_hash[:12]}, not of plan {plan.content_hash[:12]}")
    spans, makespan_s = timeline.spans, timeline.makespan_s
    path = critical_path(timeline, plan)
    return Report(
        makespan_s=makespan_s,
        samples_per_s=batch / makespan_s if batch is not None and makespan_s > 0 else None,
        busy=_busy(timeline),
        exposed_transfer_s=_exposed_transfer_s(spans),
        peak_bytes=memory_profile(plan).peaks(),
        critical_path=tuple(path.tolist()),
        critical_s=_seconds_along(path, spans),
    )


def trust(plan: Plan, costs: TaskCosts, timeline: Timeline) -> dict[str, float]:
    """The share of busy seconds whose cost comes from each origin, most trusted first; origins without any left out."""
    spans = timeline.spans
    assert len(costs.index) == len(plan) == len(spans), "costs, plan and timeline are of different plans"
    origin = costs.table.origin[costs.index]
    seconds = np.bincount(origin, spans.end_s - spans.start_s, len(Origin))
    return {one.name.lower(): float(seconds[one] / seconds.sum()) for one in Origin if seconds[one] > 0}


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
    starts, ends = timeline.spans.start_s.tolist(), timeline.spans.end_s.tolist()
    before = _Predecessors.of(plan)
    seen: set[int] = set()
    path: list[int] = []
    row = int(timeline.spans.end_s.argmax()) if len(plan) else NONE
    while row != NONE:
        path.append(row)
        seen.add(row)
        waits = [other for other in before.waits(row) if other not in seen]
        waits += [other for other in before.issued_after(row) if other not in seen and ends[other] <= starts[row]]
        row = max(waits, key=ends.__getitem__, default=NONE)  # of equal ends the first: a dependency explains more
    return np.array(path[::-1], np.int64)


@dataclass(frozen=True, slots=True)
class _Predecessors:
    """For each row the rows that it may have waited for; NONE where there is none."""

    dependencies: list[list[int]]
    on_lane: list[int]
    on_thread: list[int]
    blocking: list[int]
    group: list[int]
    members: dict[int, list[int]]

    @classmethod
    def of(cls, plan: Plan) -> "_Predecessors":
        tasks = plan.tasks
        blocks = (tasks.kind == TaskKind.HOST) | tasks.blocks_thread
        everything = np.ones(len(plan), np.bool_)
        members: dict[int, list[int]] = {}
        for row in np.flatnonzero(tasks.group != NONE).tolist():
            members.setdefault(int(tasks.group[row]), []).append(row)
        return cls(
            dependencies=tasks.dependencies.to_lists(),
            on_lane=_last_before(plan.lane_of_rows(), everything),
            on_thread=_last_before(tasks.thread, everything),
            blocking=_last_before(tasks.thread, blocks),
            group=tasks.group.tolist(),
            members=members,
        )

    def together(self, row: int) -> list[int]:
        """``row`` and the others of its group: they start and end as one."""
        return self.members.get(self.group[row], [row])

    def waits(self, row: int) -> list[int]:
        """Rows that ``row``, or one that it meets, cannot start before."""
        found: list[int] = []
        for one in self.together(row):
            found += [*self.dependencies[one], self.on_lane[one], self.blocking[one]]
        return [other for other in found if other != NONE]

    def issued_after(self, row: int) -> list[int]:
        """The row issued just before: on a CPU it holds the thread, on a GPU it may still run."""
        return [self.on_thread[row]] if self.on_thread[row] != NONE else []


def _last_before(place: NDArray[np.int32], counts: NDArray[np.bool_]) -> list[int]:
    """For each row the last earlier row of the same ``place`` that ``counts``."""
    order = np.argsort(place, kind="stable")
    latest = np.maximum.accumulate(np.where(counts[order], np.arange(len(order)), NONE))
    before = np.concatenate([[NONE], latest])[: len(order)]
    found = np.where(before == NONE, NONE, order[before])
    found[place[found] != place[order]] = NONE
    last = np.empty_like(found)
    last[order] = found
    return [int(row) for row in last]


def _seconds_along(path: NDArray[np.int64], spans: Spans) -> dict[str, float]:
    """Seconds of the path by task kind; where recorded spans overlap, each instant counts once."""
    seconds = np.bincount(spans.kind[path], _added_s(spans.start_s[path], spans.end_s[path]), len(TaskKind))
    return {kind.label: float(seconds[kind]) for kind in TaskKind if seconds[kind] > 0}
