"""What any file of measurements holds, in tables: also those that are no `Trace`, because they have no times."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from stepsim.traces.detect import format_of, head_of
from stepsim.traces.execution_trace import looks_like_execution_trace, read_execution_trace
from stepsim.traces.memory_snapshot import looks_like_memory_snapshot, read_memory_snapshot
from stepsim.traces.memory_timeline import CATEGORIES, looks_like_memory_timeline, read_memory_timeline
from stepsim.traces.summary import Tables, summary
from stepsim.traces.trace import Trace

OPS_SHOWN = 20
"""Of the ops of an execution trace, those of most FLOP, then of most bytes."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Contents:
    """Name of the format, provenance, ``tables``, and the trace, where the file is one."""

    form: str
    provenance: Mapping[str, str]
    tables: Tables
    trace: Trace | None = None


def contents(path: str | Path) -> Contents:
    """What is in ``path``. Raises `FileError` for a file of no known format, or one that its reader refuses."""
    head = head_of(path)
    for looks_like, read in _WITHOUT_TIMES:
        if looks_like(head):
            return read(path)
    form = format_of(path)
    trace = form.read(path)
    return Contents(form=form.name, provenance=trace.provenance, tables=summary(trace), trace=trace)


def _execution_trace(path: str | Path) -> Contents:
    execution = read_execution_trace(path)
    nodes = execution.nodes[execution.nodes["order"] > 0]
    moved = nodes.assign(count=1, size_bytes=nodes["read_bytes"] + nodes["written_bytes"])
    ops = moved.groupby("name")[["count", "flop", "size_bytes"]].sum().reset_index()
    most = ops.sort_values(["flop", "size_bytes"], ascending=False, kind="stable").head(OPS_SHOWN)
    sent = nodes[nodes["collective"] != ""].groupby("collective")["read_bytes"]
    collectives = sent.agg(count="size", largest_bytes="max", sent_bytes="sum").reset_index()
    tables = {"ops": most, "collectives": collectives}
    return _contents("PyTorch execution trace", tables, execution.provenance)


def _memory_snapshot(path: str | Path) -> Contents:
    recorded = read_memory_snapshot(path)
    requested = recorded.size_bytes[recorded.request]
    change_bytes = np.where(recorded.released, -requested, requested)
    before_bytes = int(recorded.size_bytes[recorded.there].sum())
    resident_bytes = before_bytes + np.concatenate([[0], np.cumsum(change_bytes)])
    row = {
        "allocations": int((~recorded.released).sum()),
        "frees": int(recorded.released.sum()),
        "new_segments": len(recorded.new_segments),
        "before_bytes": before_bytes,
        "peak_bytes": int(resident_bytes.max()),
        "after_bytes": int(resident_bytes[-1]),
        "reserved_bytes": int(recorded.blocks.size_bytes.sum()),
    }
    return _contents("PyTorch memory snapshot", {"allocator_requests": pd.DataFrame([row])}, {"file": str(path)})


def _memory_timeline(path: str | Path) -> Contents:
    timeline = read_memory_timeline(path)
    rows = []
    for number, category in enumerate(CATEGORIES):
        resident_bytes = np.cumsum(timeline.change_bytes[timeline.category == number])
        if len(resident_bytes):
            ends = {"peak_bytes": int(resident_bytes.max()), "after_bytes": int(resident_bytes[-1])}
            rows.append({"category": category, "changes": len(resident_bytes), **ends})
    return _contents("PyTorch memory timeline", {"memory_by_category": pd.DataFrame(rows)}, {"file": str(path)})


def _contents(form: str, tables: Tables, provenance: Mapping[str, str]) -> Contents:
    told = {title: table for title, table in tables.items() if len(table)}
    return Contents(form=form, provenance=provenance, tables=told)


_WITHOUT_TIMES: tuple[tuple[Callable[[bytes], bool], Callable[[str | Path], Contents]], ...] = (
    (looks_like_execution_trace, _execution_trace),
    (looks_like_memory_snapshot, _memory_snapshot),
    (looks_like_memory_timeline, _memory_timeline),
)
