"""Which events of a Kineto trace are the ops of an execution trace: on each thread both have them in the same order.

The ids that PyTorch writes do not join them: most versions write none that both files have.
"""

from collections.abc import Iterator, Sequence
from itertools import groupby

import pandas as pd

Instant = list[tuple[int, str]]
"""Rows and names of the ops of one thread that began together. They come in no certain order."""


def matched_ops(nodes: pd.DataFrame, host: pd.DataFrame) -> dict[int, int]:
    """Of each row of ``host`` that is an op of ``nodes``, the row of that node.

    A thread of the execution trace, which has a numbering of its own, is the first thread of ``host`` that has its ops
    in order; each time that it has them is a match, so that one recorded step fits all steps that do the same.
    """
    nodes = nodes.assign(row=range(len(nodes)))
    nodes = nodes[nodes["order"] > 0].sort_values("order", kind="stable")
    threads = [_instants(rows) for _, rows in host[host["name"].isin(nodes["name"])].groupby("thread")]
    found: dict[int, int] = {}
    for _, ops in nodes.groupby("thread"):
        for instants in threads:
            runs = list(_runs(ops["name"].tolist(), instants))
            if runs:
                threads.remove(instants)
                found |= {event: row for run in runs for event, row in zip(run, ops["row"].tolist(), strict=True)}
                break
    return found


def _instants(host: pd.DataFrame) -> list[Instant]:
    """Of one thread, in time order; the longest of an instant first, since it encloses the others."""
    ordered = host.assign(shorter=-host["duration_s"]).sort_values(["start_s", "shorter"], kind="stable")
    began = zip(ordered["start_s"], ordered.index, ordered["name"], strict=True)
    return [[(row, name) for _, row, name in together] for _, together in groupby(began, key=lambda event: event[0])]


def _runs(names: Sequence[str], instants: Sequence[Instant]) -> Iterator[list[int]]:
    """Rows of each run of events that are ``names`` in order; runs do not overlap."""
    at = 0
    while at < len(instants):
        rows, end = _run(names, instants, at)
        if rows:
            yield rows
        at = end if rows else at + 1


def _run(names: Sequence[str], instants: Sequence[Instant], first: int) -> tuple[list[int], int]:
    """Rows of ``names`` from the instant ``first`` on, and the instant behind them; no rows where another name comes.

    Each instant is used up before the next one. But what is left of the first may have begun before the run, and what
    is left of the last one after it.
    """
    rows: list[int] = []
    at, left = first, list(instants[first])
    for name in names:
        used_up = not left or (at == first and rows and name not in _names(left))
        if used_up and at + 1 < len(instants):
            at, left = at + 1, list(instants[at + 1])
        if name not in _names(left):
            return [], at
        row, _ = left.pop(_names(left).index(name))
        rows.append(row)
    return rows, at + 1


def _names(ops: Instant) -> list[str]:
    return [name for _, name in ops]
