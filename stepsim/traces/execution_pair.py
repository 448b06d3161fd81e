"""Joins an execution trace and the Kineto trace of the same run: kernels learn for which op, on which shapes, they ran.

A kernel is tied to its launch by its correlation, a launch to the innermost op that was open on its thread, and an op
to a node of the execution trace by order: on each thread both files list the same ops in the order in which they began.
(The ids that PyTorch writes do not join them: most versions write none that both files have.) An execution trace of one
step fits every step of a Kineto trace that does the same; kernels of other steps stay as they are.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from stepsim.errors import StepsimError
from stepsim.traces.execution_trace import ExecutionTrace
from stepsim.traces.trace import Trace

_TIMED = ("kernel", "collective")

_ROUNDING_S = 1e-9
"""Kineto's finest digit."""

Op = tuple[int, int]
"""Row of a host event, and the row of the node that it is."""


Instants = list[list[tuple[int, str]]]
"""The ops of one thread of the Kineto trace, rows and names: those that began together come in no certain order."""


def paired(execution: ExecutionTrace, trace: Trace) -> Trace:
    """``trace`` with the signature of its op as ``work`` of each kernel and collective.

    The kernels of an op share its FLOP and its bytes (read and written) by their time, so that they add up to those of
    the op, but for rounding. A collective takes what it sends as ``size_bytes``, unless it is known. The provenance
    says for how many an op was found. Raises `StepsimError` for traces of two processes, and where no op of the one is
    found in the other.
    """
    _check_process(execution, trace)
    node_of = dict(_matched(execution, trace))
    if not node_of:
        raise StepsimError(f"{_files(execution, trace)}: no thread has the ops of the other file in the same order")
    timed = trace.of(*_TIMED)
    op_of = timed["correlation"].map(_op_of_launches(trace, [*node_of])).dropna().astype("int64")
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


def _check_process(execution: ExecutionTrace, trace: Trace) -> None:
    """The main thread of a process has the number of the process; files of two ranks look alike otherwise."""
    process, threads = execution.provenance.get("pid", ""), set(map(str, trace.events["thread"])) - {"-1"}
    if process and process not in threads:
        problem = f"is no thread of the Kineto trace ({', '.join(sorted(threads)[:4])}): of another rank or run?"
        raise StepsimError(f"{_files(execution, trace)}: pid {process} {problem}")


def _files(execution: ExecutionTrace, trace: Trace) -> str:
    return f"{execution.provenance['file']} and {trace.provenance['file']}"


def _matched(execution: ExecutionTrace, trace: Trace) -> Iterator[Op]:
    """Each thread of the execution trace with the first thread of the Kineto trace that has its ops in order."""
    nodes = execution.nodes.assign(row=range(len(execution.nodes)))
    nodes = nodes[nodes["order"] > 0].sort_values("order", kind="stable")
    lists = list(_lists(trace, set(nodes["name"])))
    for _, on_thread in nodes.groupby("thread"):
        names, rows = on_thread["name"].tolist(), on_thread["row"].tolist()
        for listed in lists:
            found = list(_occurrences(names, listed))
            if found:
                lists.remove(listed)
                yield from ((event, row) for events in found for event, row in zip(events, rows, strict=True))
                break


def _lists(trace: Trace, names: set[str]) -> Iterator[Instants]:
    host = trace.of("host", "step")
    host = host[host["name"].isin(names)]
    host = host.assign(shorter=-host["duration_s"]).sort_values(["start_s", "shorter"], kind="stable")
    for _, on_thread in host.groupby("thread"):
        began = zip(on_thread["start_s"], on_thread.index, on_thread["name"], strict=True)
        yield [[(row, name) for _, row, name in at] for _, at in groupby(began, key=lambda event: event[0])]


def _occurrences(names: Sequence[str], instants: Instants) -> Iterator[list[int]]:
    """Rows of each run of events that are ``names`` in order; runs do not overlap."""
    at = 0
    while at < len(instants):
        rows, end = _followed(names, instants, at)
        if rows:
            yield rows
        at = end if rows else at + 1


def _followed(names: Sequence[str], instants: Instants, first: int) -> tuple[list[int], int]:
    """Rows of ``names`` from the instant ``first`` on, and the instant behind them; none where another name comes.

    The first instant may also hold what began before, the last one what began after.
    """
    rows: list[int] = []
    at, pending = first, list(instants[first])
    for name in names:
        place = _place(name, pending)
        if place is None and at + 1 < len(instants) and (not pending or (rows and at == first)):
            at, pending = at + 1, list(instants[at + 1])
            place = _place(name, pending)
        if place is None:
            return [], at
        rows.append(pending.pop(place)[0])
    return rows, at + 1


def _place(name: str, pending: list[tuple[int, str]]) -> int | None:
    return next((place for place, (_, there) in enumerate(pending) if there == name), None)


def _op_of_launches(trace: Trace, ops: list[int]) -> dict[int, int]:
    """Of each launch, by its correlation, the event of the innermost matched op that was open on its thread."""
    matched = trace.events.loc[ops]
    found: dict[int, int] = {}
    launches = trace.of("launch")
    for thread, opened in matched.groupby("thread"):
        here = launches[launches["thread"] == thread]
        inner = _innermost(_spans(opened), _spans(here))
        found |= {
            correlation: int(opened.index[op])
            for correlation, op in zip(here["correlation"].tolist(), inner, strict=True)
            if op >= 0
        }
    return found


def _spans(events: pd.DataFrame) -> NDArray[np.float64]:
    """Start and end of each event, in seconds."""
    start_s = events["start_s"].to_numpy()
    return np.column_stack([start_s, start_s + events["duration_s"].to_numpy()])


def _innermost(ops: NDArray[np.float64], launches: NDArray[np.float64]) -> list[int]:
    """For each launch the shortest op that encloses it, -1 for none. Ops of a thread are nested."""
    order = np.lexsort((-ops[:, 1], ops[:, 0]))
    inner = [-1] * len(launches)
    opened: list[int] = []
    following = 0
    for launch in np.argsort(launches[:, 0], kind="stable"):
        start_s, end_s = launches[launch]
        while following < len(order) and ops[order[following], 0] <= start_s:
            opened.append(int(order[following]))
            following += 1
        opened = [op for op in opened if ops[op, 1] >= start_s]
        around = [op for op in opened if ops[op, 1] >= end_s - _ROUNDING_S]
        inner[launch] = min(around, key=lambda op: ops[op, 1] - ops[op, 0], default=-1)
    return inner
