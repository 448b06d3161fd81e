"""How launches, idle times and overlap of each device of a trace look."""

import numpy as np
import pandas as pd

from stepsim.traces.intervals import busy_s, intervals_of, span_s, union
from stepsim.traces.moments import ON_DEVICE
from stepsim.traces.trace import Trace

_HIGH = 0.9
"""The quantile that stands for the slow ones."""


def launches(trace: Trace) -> pd.DataFrame:
    """For each device what was launched by a recorded call: how long calls took, and from their begin to the start.

    ``wait`` is short where the device waits for the host, and long where work queues up before it.
    """
    rows = []
    for device, events in _launched(trace).groupby("device"):
        wait_s = events["start_s"] - events["call_s"]
        rows.append(
            {
                "device": device,
                "launched": len(events),
                "call_median_s": float(events["call_took_s"].median()),
                "wait_median_s": float(wait_s.median()),
                "wait_90th_s": float(wait_s.quantile(_HIGH)),
            }
        )
    return pd.DataFrame(rows)


def gaps(trace: Trace) -> pd.DataFrame:
    """For each device the times, between the first and the last of its rows, in which none of them ran.

    A gap is the host's (``host_share`` of all idle time) where what ended it was launched only after it had begun.
    """
    calls = _launched(trace)["call_s"]
    rows = []
    for device, events in trace.of(*ON_DEVICE).groupby("device"):
        start_s, end_s = union(*intervals_of(events))
        gap_s = start_s[1:] - end_s[:-1]
        if not len(gap_s):
            continue
        launched_s = calls.reindex(events.index).groupby(events["start_s"]).max()
        late = launched_s.reindex(start_s[1:]).to_numpy() > end_s[:-1]
        whole_s = span_s(events)
        rows.append(
            {
                "device": device,
                "gaps": len(gap_s),
                "total_s": float(gap_s.sum()),
                "share": float(gap_s.sum()) / whole_s,
                "median_s": float(np.median(gap_s)),
                "longest_s": float(gap_s.max()),
                "host_share": float(gap_s[late].sum() / gap_s.sum()),
            }
        )
    return pd.DataFrame(rows)


def overlaps(trace: Trace) -> pd.DataFrame:
    """For copies and for collectives of each device the time in which one ran, and the part of it beside kernels.

    Each instant counts once, however many ran.
    """
    rows = []
    for device, events in trace.of("kernel", "copy", "collective").groupby("device"):
        kernels = events[events["kind"] == "kernel"]
        for kind, others in events[events["kind"] != "kernel"].groupby("kind"):
            both_s, others_s = beside_s(kernels, others), busy_s(others)
            rows.append(
                {
                    "device": device,
                    "kind": kind,
                    "kernels_s": busy_s(kernels),
                    "total_s": others_s,
                    "beside_kernels_s": both_s,
                    "hidden_share": both_s / others_s if others_s > 0 else 0.0,
                }
            )
    return pd.DataFrame(rows)


def beside_s(some: pd.DataFrame, others: pd.DataFrame) -> float:
    """Seconds in which one of ``some`` and one of ``others`` ran: what their unions have more than the union of all."""
    return max(0.0, busy_s(some) + busy_s(others) - busy_s(pd.concat([some, others])))


def _launched(trace: Trace) -> pd.DataFrame:
    """Rows of devices with the begin (``call_s``) and the duration (``call_took_s``) of the call that launched them."""
    calls = trace.of("launch").drop_duplicates("correlation").set_index("correlation")
    events = trace.of(*ON_DEVICE)
    events = events[events["correlation"].isin(calls.index)]
    called = calls.loc[events["correlation"]]
    return events.assign(call_s=called["start_s"].to_numpy(), call_took_s=called["duration_s"].to_numpy())
