"""What a trace holds, in tables: devices, kernels by class, copies and collectives by size, streams, steps.

Columns are named as everywhere (``_s``, ``_bytes``, ``_bytes_per_s``; ``share`` from 0 to 1), so that one printer and
one JSON serve all tables.
"""

import re

import numpy as np
import pandas as pd

from stepsim.traces.explained import explained_by_step
from stepsim.traces.gaps import gaps, launches, overlaps
from stepsim.traces.intervals import busy_s, span_s
from stepsim.traces.kernel_classes import KernelClass, kernel_class
from stepsim.traces.moments import ON_DEVICE
from stepsim.traces.trace import Trace

SIZE_STEP = 16
"""Sizes share a row up to the next power of this: 4 KiB, 64 KiB, 1 MiB, 16 MiB ...; all below 4 KiB are one."""

_SMALL = 3
"""The power that 4 KiB is."""

UNCLASSED_SHOWN = 5
"""Of the kernels of no known class, this many names are told: those that take most time."""

WHOLE = "whole trace"
"""The name of the only step of a trace without steps."""

Tables = dict[str, pd.DataFrame]
"""By title, in the order in which they are shown; none is empty."""


def summary(trace: Trace) -> Tables:
    """The tables of all that ``trace`` has.

    Logs that do not say when things began have no streams, steps, gaps and overlap.
    """
    tables = {
        "kernels_by_class": kernels_by_class(trace),
        "kernels_of_no_class": unclassed(trace),
        "copies": moves(trace, "copy", ["device", "source", "destination"]),
        "fills": moves(trace, "memset", ["device"]),
        "collectives": moves(trace, "collective", ["device", "name", "work"]),
    }
    if tells_when(trace) and len(trace.of(*ON_DEVICE)):
        tables = {"devices": devices(trace), **tables, "streams": streams(trace), "steps": steps(trace)}
        tables |= {"launches": launches(trace), "idle": gaps(trace), "overlap": overlaps(trace)}
    return {title: table for title, table in tables.items() if len(table)}


def tells_when(trace: Trace) -> bool:
    """Whether starts were recorded: logs tell durations only, and their events lie one behind the other."""
    return not trace.provenance.get("start_s", "").startswith("not recorded")


def devices(trace: Trace) -> pd.DataFrame:
    """Each device: its name, its memory (0 where unknown), and the share of its time in which something ran."""
    rows = []
    for device, events in trace.of(*ON_DEVICE).groupby("device"):
        whole_s, memory_bytes = span_s(events), trace.provenance.get(f"{device} memory_bytes", "")
        rows.append(
            {
                "device": device,
                "name": trace.provenance.get(str(device), ""),
                "memory_bytes": int(memory_bytes) if re.fullmatch(r"\d{1,18}", memory_bytes) else 0,
                "kernels": int(events["kind"].isin(("kernel", "collective")).sum()),
                "copies": int((events["kind"] == "copy").sum()),
                "span_s": whole_s,
                "busy_share": busy_s(events) / whole_s if whole_s > 0 else 0.0,
            }
        )
    return pd.DataFrame(rows)


def kernels_by_class(trace: Trace) -> pd.DataFrame:
    """Kernels and collectives of each class, in the order of `KernelClass`, with their part in the sum of all times.

    Empty where all are collectives, which have a table of their own.
    """
    kernels = trace.of("kernel", "collective")
    if (kernels["kind"] == "collective").all():
        return pd.DataFrame()
    kinds = [kind.value for kind in KernelClass]
    named = [kernel_class(name).value for name in kernels["name"]]
    kernels = kernels.assign(kind=pd.Categorical(named, kinds))
    kernels.loc[trace.of("collective").index, "kind"] = KernelClass.COLLECTIVE.value
    times = kernels.groupby("kind", observed=True)["duration_s"]
    table = times.agg(count="size", total_s="sum", median_s="median").reset_index().rename(columns={"kind": "class"})
    whole_s = table["total_s"].sum()
    table.insert(2, "share", table["total_s"] / whole_s if whole_s > 0 else 0.0)
    return table.astype({"class": str})


def unclassed(trace: Trace) -> pd.DataFrame:
    """The names of most time among those of `KernelClass.OTHER`."""
    times = trace.of("kernel").groupby("name")["duration_s"].agg(count="size", total_s="sum").reset_index()
    times = times[times["name"].map(kernel_class) == KernelClass.OTHER]
    return times.sort_values("total_s", ascending=False, kind="stable").head(UNCLASSED_SHOWN)


def moves(trace: Trace, kind: str, by: list[str]) -> pd.DataFrame:
    """Events that move bytes, by the columns ``by`` and by size; ``bytes_per_s`` is of their bytes in their time.

    Sizes and rates are 0 where sizes are not recorded. Columns that say nothing are left out.
    """
    events = trace.of(kind)
    told = [column for column in by if (events[column] != "").any()]
    power = np.log2(np.maximum(events["size_bytes"], 1)) // np.log2(SIZE_STEP)
    events = events.assign(power=np.maximum(power, _SMALL - 1))
    table = events.groupby([*told, "power"]).agg(
        smallest_bytes=("size_bytes", "min"),
        largest_bytes=("size_bytes", "max"),
        count=("size_bytes", "size"),
        moved_bytes=("size_bytes", "sum"),
        total_s=("duration_s", "sum"),
        median_s=("duration_s", "median"),
    )
    rate = table["moved_bytes"] / table["total_s"]
    return table.assign(bytes_per_s=rate.where(table["total_s"] > 0, 0.0)).reset_index().drop(columns="power")


def streams(trace: Trace) -> pd.DataFrame:
    """What each stream ran, and the share of its device's time in which it did."""
    rows = []
    for device, on_device in trace.of(*ON_DEVICE).groupby("device"):
        whole_s = span_s(on_device)
        for stream, events in on_device.groupby("stream"):
            counts = {kind: int((events["kind"] == kind).sum()) for kind in ON_DEVICE}
            share = busy_s(events) / whole_s if whole_s > 0 else 0.0
            rows.append({"device": device, "stream": stream, **counts, "busy_share": share})
    return pd.DataFrame(rows)


def steps(trace: Trace) -> pd.DataFrame:
    """How long each step took, and the share of what was active, as `stepsim.traces.explained` has it.

    There are no shares where a step took no time.
    """
    found = trace.of("step").reset_index()
    if found.empty:
        first_s = trace.events["start_s"].min()
        found = pd.DataFrame({"name": [WHOLE], "start_s": [first_s], "duration_s": [span_s(trace.events)]})
    table = found[["name", "duration_s"]]
    if (found["start_s"] + found["duration_s"] == found["start_s"]).any():
        return table
    return table.join(pd.DataFrame(explained_by_step(trace)).add_suffix("_share"))
