"""Instants that events of a trace cover, as intervals."""

import numpy as np
import pandas as pd
from numpy.typing import NDArray

Times = NDArray[np.float64]
"""Seconds."""


def intervals_of(rows: pd.DataFrame) -> tuple[Times, Times]:
    """Start and end of each event."""
    start_s = rows["start_s"].to_numpy()
    return start_s, start_s + rows["duration_s"].to_numpy()


def union(start_s: Times, end_s: Times) -> tuple[Times, Times]:
    """The disjoint intervals that cover the same instants, in time order."""
    order = np.argsort(start_s, kind="stable")
    start_s, reached_s = start_s[order], np.maximum.accumulate(end_s[order])
    opens = start_s > np.concatenate([[-np.inf], reached_s])[:-1]
    closes = reached_s < np.concatenate([start_s, [np.inf]])[1:]
    return start_s[opens], reached_s[closes]


def covered_until(time_s: Times, start_s: Times, end_s: Times) -> Times:
    """Seconds that disjoint intervals cover before each of ``time_s``: those begun, less what sticks out behind it."""
    begun = np.searchsorted(start_s, time_s, side="right")
    covered_s = np.concatenate([[0.0], np.cumsum(end_s - start_s)])
    last_end_s = np.concatenate([[-np.inf], end_s])
    return covered_s[begun] - np.maximum(0.0, last_end_s[begun] - time_s)


def busy_s(rows: pd.DataFrame) -> float:
    """Seconds in which at least one of the events ran."""
    start_s, end_s = union(*intervals_of(rows))
    return float((end_s - start_s).sum())


def span_s(rows: pd.DataFrame) -> float:
    """Seconds from the first start to the last end; 0 for no event."""
    start_s, end_s = intervals_of(rows)
    return float(end_s.max() - start_s.min()) if len(rows) else 0.0
