"""What a recording may do wrong: refused where it means nothing, read with a warning where it can be put right.

All functions take the rows of `stepsim.traces.kineto`, in the order of their times.
"""

import warnings
from pathlib import Path

import numpy as np
import pandas as pd

from stepsim.errors import FileError

CLIPPED_OVERLAP_S = 10e-6
"""What runs on one stream cannot overlap; rounded clocks make it seem so by less than this."""

LONGEST_TRACE_US = 1e12
"""Eleven days. Farther apart, events are not of one recording, and float64 seconds lose the nanoseconds."""

_ROUNDING_S = 1e-9
"""Kineto's finest digit, far above the rounding of float64 seconds."""

_TICK_US = 1.0
"""The digit to which older versions of Kineto cut their times."""


def check_kernels(path: str | Path, rows: pd.DataFrame, on_device: pd.Series) -> None:
    if not rows["kind"].isin(("kernel", "collective")).any():
        raise FileError(path, "kernels", 0, "must be >= 1: nothing was recorded on a GPU")
    places = rows.loc[on_device & (rows["correlation"] < 0), "place"]
    if len(places):
        problem = f"must be a number > 0; {len(places)} of {on_device.sum()} kernels and copies lack it"
        raise FileError(path, f"traceEvents[{places.min()}].args.correlation", None, problem)


def check_spans(path: str | Path, rows: pd.DataFrame) -> None:
    """What is compared with a simulation must last: the steps, and the whole; but no longer than a recording can."""
    for place in rows.loc[(rows["kind"] == "step") & (rows["duration_us"] == 0), "place"]:
        raise FileError(path, f"traceEvents[{place}].dur", 0, "must be > 0 for a profiler step")
    start_us, end_us = rows["start_us"].to_numpy(), (rows["start_us"] + rows["duration_us"]).to_numpy()
    first, last = (f"traceEvents[{rows['place'].iloc[row]}]" for row in (0, int(end_us.argmax())))
    if end_us.max() <= start_us[0]:
        raise FileError(path, f"{last}.dur", 0, "must be > 0 for some event: the trace spans no time")
    if end_us.max() - start_us[0] > LONGEST_TRACE_US:
        problem = f"must be within {LONGEST_TRACE_US:g} microseconds of the end of {last}"
        raise FileError(path, f"{first}.ts", float(start_us[0]), problem)


def without_duplicates(path: str | Path, rows: pd.DataFrame) -> pd.DataFrame:
    """Events that have an id, and are alike in everything else too, are one event that was written again."""
    alike = ["start_us", "correlation", "external", "duration_us", "label", "device", "stream", "thread"]
    has_id = rows[["correlation", "external"]].max(axis="columns") > 0
    again = has_id & rows.duplicated(alike)
    if not again.any():
        return rows
    place = rows.loc[again, "place"].min()
    warnings.warn(f"{path}: traceEvents[{place}]: {again.sum()} events stand there twice: read once", stacklevel=3)
    return rows[~again].reset_index(drop=True)


def warn_of_clocks(path: str | Path, rows: pd.DataFrame, on_device: pd.Series) -> None:
    """Correlations grow with each call of a thread, nothing starts before it is launched, and a stream keeps the order.

    Only what launched something counts: of other calls the order is not needed, and not every tool numbers them in it.
    The first of the three that does not hold is told, as one jump may break them all.
    """
    work = rows.loc[on_device, ["correlation", "device", "stream", "start_us"]]
    calls = rows[(rows["kind"] == "call") & rows["correlation"].isin(work["correlation"])]
    in_turn = calls[["thread", "correlation", "start_us"]].sort_values(["thread", "correlation"], kind="stable")
    launches = calls.drop_duplicates("correlation").set_index("correlation")[["thread", "start_us"]]
    work = work.join(launches.add_prefix("launch_"), on="correlation")
    queue = ["device", "stream", "launch_thread"]
    queued = work.dropna().sort_values([*queue, "launch_start_us", "start_us"], kind="stable")
    problems = {
        "calls of a runtime start before an earlier call of their thread": _back_us(in_turn, ["thread"]),
        "kernels and copies start before their launch": work["launch_start_us"] - work["start_us"],
        "kernels and copies start before what was launched earlier on their stream": _back_us(queued, queue),
    }
    for problem, early_us in problems.items():
        wrong = early_us[early_us > _TICK_US]
        if len(wrong):
            worst = f"traceEvents[{rows.loc[wrong.index[int(wrong.argmax())], 'place']}].ts"
            problem = f"{len(wrong)} of {len(early_us)} {problem}, by up to {wrong.max():.1f} us"
            warnings.warn(f"{path}: {worst}: {problem}: clocks jumped or disagree", stacklevel=3)
            return


def _back_us(rows: pd.DataFrame, alike: list[str]) -> pd.Series:
    """How much earlier each of ``rows`` starts than the one before it, where both are ``alike``."""
    return -rows["start_us"].diff()[rows[alike].diff().eq(0).all(axis="columns")]


def clip_overlaps(path: str | Path, events: pd.DataFrame, on_device: pd.Series) -> pd.DataFrame:
    """End each row of a stream where the next one starts, if it seems to run a little longer."""
    starts_s, durations_s = events["start_s"].to_numpy(), events["duration_s"].to_numpy(copy=True)
    positions = np.flatnonzero(on_device)
    for chosen in events.loc[on_device, ["device", "stream"]].groupby(["device", "stream"]).indices.values():
        on_stream = positions[chosen]
        start_s, duration_s = starts_s[on_stream], durations_s[on_stream]
        overlap_s = np.maximum.accumulate(start_s + duration_s)[:-1] - start_s[1:]
        if overlap_s.max(initial=0.0) > CLIPPED_OVERLAP_S + _ROUNDING_S:
            worst = int(np.argmax(overlap_s))
            raise _overlap(path, events.iloc[on_stream[worst + 1]], overlap_s[worst])
        durations_s[on_stream[:-1]] = np.minimum(duration_s[:-1], np.diff(start_s))
    return events.assign(duration_s=durations_s)


def _overlap(path: str | Path, event: pd.Series, overlap_s: float) -> FileError:
    problem = f"{event['name'][:40]!r} at {event['start_s']:.6f} s overlaps an earlier row by more than 10 us"
    return FileError(path, f"{event['device']} stream {event['stream']}", f"{overlap_s * 1e6:.1f} us", problem)
