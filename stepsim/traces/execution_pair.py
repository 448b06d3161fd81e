"""Joins an execution trace and the Kineto trace of the same run: kernels learn for which op, on which shapes, they ran.

A kernel is tied to its launch by its correlation, a launch to the innermost op that was open on its thread, and an op
to a node of the execution trace by order (`stepsim.traces.execution_match`). Kernels of steps that the execution trace
does not have stay as they are.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from stepsim.errors import StepsimError
from stepsim.traces.execution_match import matched_ops
from stepsim.traces.execution_trace import ExecutionTrace
from stepsim.traces.intervals import Times, intervals_of
from stepsim.traces.trace import Trace

_TIMED = ("kernel", "collective")

_ROUNDING_S = 1e-9
"""Kineto's finest digit."""


def paired(execution: ExecutionTrace, trace: Trace) -> Trace:
    """``trace`` with the signature of its op as ``work`` of each kernel and collective.

    The kernels of an op share its FLOP and its bytes (read and written) by their time, so that they add up to those of
    the op, but for rounding. A collective takes what it sends as ``size_bytes``, unless it is known. The provenance
    says for how many an op was found. Raises `StepsimError` for traces of two processes, and where no op of the one is
    found in the other.
    """
    if not of_one_process(execution, trace):
        problem = f"is no thread of the Kineto trace ({', '.join(_threads(trace)[:4])}): of another rank or run?"
        raise StepsimError(f"{_files(execution, trace)}: pid {execution.provenance['pid']} {problem}")
    node_of = matched_ops(execution.nodes, trace.of("host", "step"))
    if not node_of:
        raise StepsimError(f"{_files(execution, trace)}: no thread has the ops of the other file in the same order")
    timed = trace.of(*_TIMED)
    op_of = timed["correlation"].map(_launching_ops(trace, node_of)).dropna().astype("int64")
    nodes = execution.nodes.iloc[op_of.map(node_of)].set_index(op_of.index)
    events = _filled(trace.events, timed.loc[op_of.index], op_of, nodes)
    facts = {
        **trace.provenance,
        "execution trace": execution.provenance["file"],
        "kernels linked": f"{len(op_of)} of {len(timed)}",
    }
    return replace(trace, events=events, provenance=facts)


def _filled(events: pd.DataFrame, linked: pd.DataFrame, op_of: pd.Series, nodes: pd.DataFrame) -> pd.DataFrame:
    """``events`` with what the ``nodes`` of the ``linked`` ones say; all but the first have the same index."""
    filled = events.copy()
    filled.loc[linked.index, "work"] = nodes["work"]
    kernels = linked.index[linked["kind"] == "kernel"]
    share = _shares(linked.loc[kernels, "duration_s"], op_of[kernels])
    for column, whole in (("flop", nodes["flop"]), ("size_bytes", nodes["read_bytes"] + nodes["written_bytes"])):
        filled.loc[kernels, column] = (whole[kernels] * share).round().astype("int64")
    unsized = linked.index[(linked["kind"] == "collective") & (linked["size_bytes"] == 0)]
    filled.loc[unsized, "size_bytes"] = nodes.loc[unsized, "read_bytes"]
    return filled


def _shares(duration_s: pd.Series, op: pd.Series) -> pd.Series:
    """The part of each kernel in the time of its op; equal parts where an op took none."""
    whole_s, count = duration_s.groupby(op).transform("sum"), duration_s.groupby(op).transform("size")
    return (duration_s / whole_s).where(whole_s > 0, 1 / count)


def of_one_process(execution: ExecutionTrace, trace: Trace) -> bool:
    """Whether the process of ``execution``, if it names one, has a thread in ``trace``.

    The main thread of a process has the number of the process; files of two ranks look alike otherwise.
    """
    process = execution.provenance.get("pid", "")
    return not process or process in _threads(trace)


def _threads(trace: Trace) -> list[str]:
    return sorted(set(map(str, trace.events["thread"])) - {"-1"})


def _files(execution: ExecutionTrace, trace: Trace) -> str:
    return f"{execution.provenance['file']} and {trace.provenance['file']}"


def _launching_ops(trace: Trace, matched: Iterable[int]) -> dict[int, int]:
    """Of each launch, by its correlation, the row of the innermost ``matched`` op that was open on its thread."""
    found: dict[int, int] = {}
    launches = trace.of("launch")
    for thread, ops in trace.events.loc[list(matched)].groupby("thread"):
        here = launches[launches["thread"] == thread]
        ops = ops.assign(shorter=-ops["duration_s"]).sort_values(["start_s", "shorter"], kind="stable")
        inner = _innermost(*intervals_of(ops), *intervals_of(here))
        inside = inner >= 0
        found |= dict(zip(here["correlation"][inside].tolist(), ops.index[inner[inside]].tolist(), strict=True))
    return found


def _innermost(op_start_s: Times, op_end_s: Times, start_s: Times, end_s: Times) -> NDArray[np.int64]:
    """For each launch the last op begun before it that encloses it, -1 for none. Ops are nested, outer ones first."""
    around = _around(op_end_s.tolist())
    inner = np.searchsorted(op_start_s, start_s, side="right") - 1
    while (over := (inner >= 0) & (op_end_s[inner] < end_s - _ROUNDING_S)).any():
        inner[over] = around[inner[over]]
    return inner


def _around(ends_s: Sequence[float]) -> NDArray[np.int64]:
    """For each op the one that encloses it: the last of those before it that ends no sooner; -1 for none."""
    around: list[int] = []
    opened: list[int] = []
    for op, end_s in enumerate(ends_s):
        while opened and ends_s[opened[-1]] < end_s - _ROUNDING_S:
            opened.pop()
        around.append(opened[-1] if opened else -1)
        opened.append(op)
    return np.array(around, np.int64)
