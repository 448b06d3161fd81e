"""When one host thread waits for another: the main thread in ``backward()``, while the autograd thread launches.

A trace does not record the wait. It is seen as a gap between two events of the main thread in which all that the other
thread does begins and ends.

main      ops----|....................|--ops
autograd         ....|ops--ops--ops|..
               give  wake        done take
"""

from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from stepsim.traces.intervals import Times, intervals_of, union

ENGINE = "autograd::engine::evaluate_function"
"""How PyTorch names what its autograd engine runs."""


@dataclass(frozen=True, slots=True)
class HostEvents:
    """The events of one host thread by start: ops, annotations, runtime calls. ``in_call`` marks launches and syncs."""

    start_s: Times
    end_s: Times
    in_call: NDArray[np.bool_]

    @property
    def span_s(self) -> float:
        return float(self.end_s.max() - self.start_s.min())


@dataclass(frozen=True, slots=True)
class Handover:
    """The main thread waits from ``give_s`` to ``take_s``; ``runs`` has thread, begin and end of what it waits for."""

    runs: tuple[tuple[int, float, float], ...]

    @property
    def give_s(self) -> float:
        return min(begin_s for _, begin_s, _ in self.runs)

    @property
    def take_s(self) -> float:
        return max(end_s for _, _, end_s in self.runs)


def handovers(threads: dict[int, HostEvents], main: int) -> list[Handover]:
    """The waits of ``main`` for other threads, in time order."""
    events = threads[main]
    borders_s = np.unique(np.concatenate([events.start_s, events.end_s]))
    in_call = _covered(borders_s, events.start_s[events.in_call], events.end_s[events.in_call])
    runs: dict[int, list[tuple[int, float, float]]] = {}
    for thread, other in threads.items():
        if thread != main:
            for gap, begin_s, end_s in _runs_inside_gaps(borders_s, in_call, other):
                runs.setdefault(gap, []).append((thread, begin_s, end_s))
    return [Handover(tuple(runs[gap])) for gap in sorted(runs)]


def _runs_inside_gaps(
    borders_s: Times, in_call: NDArray[np.bool_], other: HostEvents
) -> list[tuple[int, float, float]]:
    """Gap number, begin and end of all that ``other`` does in that gap, for gaps whose borders it does not cross."""
    gap = np.searchsorted(borders_s, other.start_s, side="right")
    crosses = np.searchsorted(borders_s, other.end_s, side="left") > gap
    free = in_call | _covered(borders_s, other.start_s[crosses], other.end_s[crosses])
    first = np.flatnonzero(np.diff(gap, prepend=-1))
    ends_s = np.maximum.reduceat(other.end_s, first)
    runs = zip(gap[first].tolist(), other.start_s[first].tolist(), ends_s.tolist(), strict=True)
    return [run for run in runs if not free[run[0]]]


def _covered(borders_s: Times, start_s: Times, end_s: Times) -> NDArray[np.bool_]:
    """For each gap between borders (gap ``i`` ends at border ``i``) whether one of the intervals reaches into it."""
    change = np.zeros(len(borders_s) + 2, dtype=np.int64)
    np.add.at(change, np.searchsorted(borders_s, start_s, side="right"), 1)
    np.add.at(change, np.searchsorted(borders_s, end_s, side="left") + 1, -1)
    return np.cumsum(change[:-1]) > 0


def of_engine(rows: pd.DataFrame) -> NDArray[np.bool_]:
    """Which events of the main thread its autograd engine runs.

    The thread that called ``backward()`` waits for the threads of the devices, and meanwhile runs what belongs to the
    host, as the accumulation of gradients that lie in its memory: that does not end its wait.
    """
    begin_s, end_s = union(*intervals_of(rows[rows["name"].str.startswith(ENGINE)]))
    start_s = rows["start_s"].to_numpy()
    before = np.searchsorted(begin_s, start_s, side="right")
    return start_s < np.concatenate([[-np.inf], end_s])[before]
