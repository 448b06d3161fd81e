"""How much slower kernels ran beside collectives or copies, from a trace of several steps.

The same kernel of a step (by name, stream and place among its namesakes) runs beside a collective in one step and
alone in another, because steps differ a little. The ratio of both is the slowdown that sharing the GPU cost it.
"""

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from stepsim.traces.trace import Trace

ALONE, BESIDE = 0.01, 0.99
"""Shares of a kernel's time, below and above which it counts as having run alone and beside others."""


def slowdowns(trace: Trace, *others: str) -> pd.DataFrame:
    """Kernels that ran beside events of the kinds ``others`` in some steps and alone in other steps.

    One row each: ``name``, ``alone_s`` and ``beside_s`` (medians), ``ratio``. Empty where no kernel did both.
    """
    kernels = _placed(trace)
    kernels["share"] = _beside(kernels, trace.of(*others))
    same = ["name", "device", "stream", "place"]
    alone = kernels[kernels["share"] < ALONE].groupby(same)["duration_s"].median().rename("alone_s")
    beside = kernels[kernels["share"] > BESIDE].groupby(same)["duration_s"].median().rename("beside_s")
    both = pd.concat([alone, beside], axis=1, join="inner").reset_index()
    return both.assign(ratio=both["beside_s"] / both["alone_s"])[["name", "alone_s", "beside_s", "ratio"]]


def _placed(trace: Trace) -> pd.DataFrame:
    """Kernels launched within a step, with their ``place`` among those of the same name and stream in it."""
    calls = trace.of("launch").drop_duplicates("correlation").set_index("correlation")["start_s"]
    kernels = trace.of("kernel")[["name", "device", "stream", "start_s", "duration_s", "correlation"]]
    kernels = kernels[kernels["duration_s"] > 0]
    launched_s = kernels["correlation"].map(calls)
    begin_s = np.sort(trace.of("step")["start_s"].to_numpy())
    kernels = kernels.assign(launched_s=launched_s, step=np.searchsorted(begin_s, launched_s, side="right"))
    kernels = kernels[(kernels["step"] > 0) & launched_s.notna()].sort_values("launched_s", kind="stable")
    return kernels.assign(place=kernels.groupby(["step", "name", "device", "stream"]).cumcount())


def _beside(kernels: pd.DataFrame, others: pd.DataFrame) -> NDArray[np.float64]:
    """For each kernel, the share of its time during which one of ``others`` ran on its device."""
    share = np.zeros(len(kernels))
    for device, rows in others.groupby("device"):
        here = (kernels["device"] == device).to_numpy()
        start_s = kernels["start_s"].to_numpy()[here]
        end_s = start_s + kernels["duration_s"].to_numpy()[here]
        share[here] = (_busy_until(rows, end_s) - _busy_until(rows, start_s)) / (end_s - start_s)
    return share


def _busy_until(rows: pd.DataFrame, times_s: NDArray[np.float64]) -> NDArray[np.float64]:
    """Seconds before each of ``times_s`` during which at least one of ``rows`` ran."""
    ordered = rows.sort_values("start_s")
    start_s = ordered["start_s"].to_numpy()
    end_s = np.maximum.accumulate((ordered["start_s"] + ordered["duration_s"]).to_numpy())
    start_s = np.maximum(start_s, np.concatenate([start_s[:1], end_s[:-1]]))
    length_s = np.maximum(end_s - start_s, 0.0)
    done_s = np.concatenate([[0.0], np.cumsum(length_s)])
    begun = np.searchsorted(start_s, times_s, side="right")
    last = np.maximum(begun - 1, 0)
    return np.where(begun > 0, done_s[last] + np.clip(times_s - start_s[last], 0.0, length_s[last]), 0.0)
