"""Traces as `stepsim record` writes them, made of a few rows whose seconds are known, and a plan to price."""

from collections.abc import Iterable, Mapping

import pandas as pd

from stepsim.plan.builder import PlanBuilder
from stepsim.traces.trace import ABSENT, COLUMNS, Trace

NOTHING = {**ABSENT, "kind": "kernel", "device": "gpu0", "stream": 0, "thread": 0, "start_s": 0.0, "duration_s": 1.0}

MOVE_BYTES_PER_S = 100.0
PEAK_FLOP_PER_S = 1000.0

WORK_S = {"copy-like": 2.0, "matrix": 4.0, "small": 0.5}
"""Median seconds: `copy-like` moves 200 bytes at 100 bytes/s, `matrix` computes 4000 FLOP at 1000 FLOP/s."""

COPY_S = {10: 1.0, 40: 2.0, 160: 4.0}
"""Seconds by size: on a line in log time over log size, of slope one half."""

LAUNCH_S = 0.125


def frame(rows: Iterable[Mapping[str, object]]) -> pd.DataFrame:
    return pd.DataFrame([{**NOTHING, **row} for row in rows], columns=list(COLUMNS))


def work_rows(repeats=(-0.1, 0.0, 0.1)):
    facts = {
        "copy-like": {"size_bytes": 200, "flop": 0},
        "matrix": {"size_bytes": 10, "flop": 4000},
        "small": {"size_bytes": 50, "flop": 0},
    }
    return [
        {"kind": "kernel", "name": f"op.{work}", "work": work, "duration_s": seconds + off, **facts[work]}
        for work, seconds in WORK_S.items()
        for off in repeats
    ]


def copy_rows(ways=(("device", "host"), ("host", "device"))):
    return [
        {"kind": "copy", "name": "copy", "source": a, "destination": b, "size_bytes": size, "duration_s": seconds}
        for a, b in ways
        for size, seconds in COPY_S.items()
    ]


def launch_rows():
    return [{"kind": "launch", "name": "interpreter", "duration_s": LAUNCH_S * factor} for factor in (0.5, 1, 8)]


def recorded(rows=None, **provenance):
    rows = [*work_rows(), *copy_rows(), *launch_rows()] if rows is None else rows
    return Trace(events=frame(rows), provenance={"machine": "small", "source": "test", **provenance})


def swapped(sizes_bytes):
    """For each size: work that makes a tensor, its way out, and its way back."""
    builder = PlanBuilder()
    gpu, host = builder.device("gpu0"), builder.device("host")
    compute, d2h, h2d = (builder.stream(name, gpu, role=name) for name in ("compute", "d2h", "h2d"))
    for size in sizes_bytes:
        y, on_host = builder.buffer(size, gpu, owner=compute), builder.buffer(size, host)
        back = builder.buffer(size, gpu, owner=compute)
        builder.compute(builder.work("F", signature="matrix"), compute, writes=[y], allocates=[y])
        builder.swap_out(y, on_host, d2h)
        builder.release([y], compute)
        builder.swap_in(on_host, back, h2d)
        builder.compute(builder.work("B", signature="small"), compute, reads=[back], releases=[back])
    return builder.build()
