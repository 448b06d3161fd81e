"""What the time of recorded steps went to: each instant counts once, for the first that was active."""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from stepsim.traces.trace import Trace

ACTIVITIES: Mapping[str, tuple[str, ...]] = {
    "kernels": ("kernel",),
    "collectives": ("collective",),
    "copies": ("copy", "memset"),
    "host_work": ("host", "launch", "sync"),
}
"""What counts for which kinds of events, first come first; where none is active the time is ``idle``."""


def explained(trace: Trace) -> dict[str, float]:
    """Share of the time of all steps by activity, `ACTIVITIES` and ``idle``; together 1.

    Without profiler steps the whole trace is one step.
    """
    begin_s, end_s = _windows(trace)
    active_s = _active_s(trace.events, begin_s, end_s).sum(axis=1)
    return _shares(active_s, float((end_s - begin_s).sum()))


def explained_by_step(trace: Trace) -> tuple[dict[str, float], ...]:
    """The same for each step, in the order of the steps."""
    begin_s, end_s = _windows(trace)
    active_s = _active_s(trace.events, begin_s, end_s)
    return tuple(_shares(active_s[:, step], float(end_s[step] - begin_s[step])) for step in range(len(begin_s)))


def _shares(active_s: NDArray[np.float64], window_s: float) -> dict[str, float]:
    idle_s = max(0.0, window_s - float(active_s.sum()))
    spent_s = [*active_s.tolist(), idle_s]
    return {name: seconds / window_s for name, seconds in zip((*ACTIVITIES, "idle"), spent_s, strict=True)}


def _windows(trace: Trace) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    steps = trace.of("step")
    start_s, end_s = _intervals(trace.events if steps.empty else steps)
    return (start_s, end_s) if len(steps) else (start_s.min(keepdims=True), end_s.max(keepdims=True))


def _active_s(events: pd.DataFrame, begin_s: NDArray[np.float64], end_s: NDArray[np.float64]) -> NDArray[np.float64]:
    """Seconds for each activity (rows) in each window (columns).

    An activity has the time that the union of it and those before it covers beyond the union of those before it.
    """
    kinds: Sequence[str] = ()
    covered = [np.zeros(len(begin_s))]
    for more in ACTIVITIES.values():
        kinds = (*kinds, *more)
        borders_s, covered_s = _union(*_intervals(events[events["kind"].isin(kinds)]))
        covered.append(np.interp(end_s, borders_s, covered_s) - np.interp(begin_s, borders_s, covered_s))
    return np.diff(np.array(covered), axis=0)


def _intervals(rows: pd.DataFrame) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    start_s = rows["start_s"].to_numpy()
    return start_s, start_s + rows["duration_s"].to_numpy()


def _union(start_s: NDArray[np.float64], end_s: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Borders of the disjoint intervals that cover the same instants, and the time covered up to each border."""
    order = np.argsort(start_s, kind="stable")
    start_s, reached_s = start_s[order], np.maximum.accumulate(end_s[order])
    first = np.flatnonzero(np.concatenate([[True], start_s[1:] > reached_s[:-1]]))
    last = np.concatenate([first[1:] - 1, [len(start_s) - 1]])
    borders_s = np.stack([start_s[first], reached_s[last]], axis=1)
    covered_s = np.cumsum(borders_s[:, 1] - borders_s[:, 0])
    before_s = covered_s - (borders_s[:, 1] - borders_s[:, 0])
    return borders_s.ravel(), np.stack([before_s, covered_s], axis=1).ravel()
