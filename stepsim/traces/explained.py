"""What the time of recorded steps went to: each instant counts once, for the first that was active."""

from collections.abc import Mapping

import numpy as np
import pandas as pd

from stepsim.traces.intervals import Times, covered_until, intervals_of, union
from stepsim.traces.trace import Trace

ACTIVITIES: Mapping[str, tuple[str, ...]] = {
    "kernels": ("kernel",),
    "collectives": ("collective",),
    "copies": ("copy", "memset"),
    "host_work": ("host", "launch", "sync", "record", "wait"),
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


def _shares(active_s: Times, window_s: float) -> dict[str, float]:
    idle_s = max(0.0, window_s - float(active_s.sum()))
    spent_s = [*active_s.tolist(), idle_s]
    return {name: seconds / window_s for name, seconds in zip((*ACTIVITIES, "idle"), spent_s, strict=True)}


def _windows(trace: Trace) -> tuple[Times, Times]:
    steps = trace.of("step")
    start_s, end_s = intervals_of(trace.events if steps.empty else steps)
    return (start_s, end_s) if len(steps) else (start_s.min(keepdims=True), end_s.max(keepdims=True))


def _active_s(events: pd.DataFrame, begin_s: Times, end_s: Times) -> Times:
    """Seconds for each activity (rows) in each window (columns).

    An activity has the time that the union of it and those before it covers beyond the union of those before it.
    """
    kinds: tuple[str, ...] = ()
    covered_s = [np.zeros(len(begin_s))]
    for more in ACTIVITIES.values():
        kinds += more
        active = union(*intervals_of(events[events["kind"].isin(kinds)]))
        covered_s.append(covered_until(end_s, *active) - covered_until(begin_s, *active))
    return np.diff(np.array(covered_s), axis=0)
