"""What an Nsight Systems export may do wrong: refused if it means nothing, read with a warning if it can be mended."""

import warnings
from pathlib import Path

import pandas as pd

from stepsim.errors import FileError
from stepsim.traces.log_lines import LARGEST_BYTES

LONGEST_TRACE_NS = 10**15
"""Eleven days. Farther apart, events are not of one recording, and float64 seconds lose the nanoseconds."""

LARGEST_NUMBER = 2**32 - 1
"""CUPTI numbers devices and streams with 32 bits."""

CLOCKS_AGREE_NS = 1000
"""The clocks of host and GPU are set to each other to about a microsecond."""


def check_numbers(path: str | Path, table: str, rows: pd.DataFrame) -> None:
    """Devices, streams and sizes in their bounds."""
    for column, largest in (("deviceId", LARGEST_NUMBER), ("streamId", LARGEST_NUMBER), ("bytes", LARGEST_BYTES)):
        if column in rows:
            wrong = rows.loc[~rows[column].between(0, largest), column]
            if len(wrong):
                raise FileError(path, f"{table}.{column}", int(wrong.iloc[0]), f"must be from 0 to {largest}")


def check_processes(path: str | Path, on_device: pd.DataFrame) -> None:
    processes = on_device.groupby("device")["globalPid"].nunique()
    if (processes > 1).any():
        device = str(processes.idxmax())
        raise FileError(path, f"{device} processes", int(processes.max()), "must be 1: streams would be mixed up")


def check_times(path: str | Path, events: pd.DataFrame) -> None:
    """Nothing ends before it starts, steps last, and the whole is no longer than a recording can be."""
    for wrong, problem in (
        (events["end"] < events["start"], "must be >= its start"),
        ((events["end"] == events["start"]) & (events["kind"] == "step"), "must be > the start of the step"),
    ):
        for row in events[wrong].head(1).itertuples():
            raise FileError(path, f"end of {str(row.name)[:40]!r}", row.end, f"{problem} {row.start}")
    first, last = int(events["start"].min()), int(events["end"].max())
    if not 0 < last - first <= LONGEST_TRACE_NS:
        raise FileError(path, "end", last, f"must be within {LONGEST_TRACE_NS:g} nanoseconds behind {first}")


def without_duplicates(path: str | Path, events: pd.DataFrame) -> pd.DataFrame:
    """What has a correlation, and is alike in everything else too, is one event that was written again."""
    alike = ["kind", "name", "start", "end", "correlation", "globalPid", "device", "stream", "thread"]
    again = (events["correlation"] > 0) & events.duplicated(alike)
    if again.any():
        name = str(events.loc[again, "name"].iloc[0])[:40]
        warnings.warn(f"{path}: {again.sum()} events stand there twice, {name!r} first: read once", stacklevel=3)
    return events[~again]


def warn_of_clocks(path: str | Path, events: pd.DataFrame) -> None:
    """Nothing starts before it is launched."""
    by = ["globalPid", "correlation"]
    calls = events.loc[events["device"].isna() & (events["correlation"] > 0), [*by, "start"]].drop_duplicates(by)
    tied = events[events["device"].notna()].merge(calls, on=by, suffixes=("", "_launch"))
    early_ns = tied["start_launch"] - tied["start"]
    num_early = int((early_ns > CLOCKS_AGREE_NS).sum())
    if num_early:
        problem = f"{num_early} of {len(tied)} kernels and copies start before their launch, by up to"
        warnings.warn(f"{path}: {problem} {early_ns.max() / 1e3:.1f} us: clocks jumped or disagree", stacklevel=3)
