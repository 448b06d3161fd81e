"""Recomputation as Checkmate has it: results of nodes are kept from stage to stage, or computed again.

Jain et al., "Checkmate", MLSys 2020, section 4: in stage t of n, node t is computed for the first time, with whatever
it takes that is not there any more. A schedule is two triangular tables of shape (n, n): ``computed[t, i]``, node i
runs in stage t, and ``kept[t, i]``, the result of node i is kept from stage t - 1 to stage t.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from stepsim.strategies.memory.rows import Row
from stepsim.strategies.memory.writer import Writer
from stepsim.workloads import Phase, Workload

Table = NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True, eq=False)
class Recomputation:
    """Nodes in order of their first run.

    Attributes
    ----------
    seconds, size_bytes
        Of each node: to run it, and of its result. Shape (nodes,).
    staying_bytes
        Of what each node makes besides and nobody ever gives back. Shape (nodes,).
    parents
        The nodes whose results it reads. What stays is there anyway.
    last_run
        The last stage in which a node may run: its own, for one that cannot run twice. Shape (nodes,).
    fixed_bytes
        What lies on the device all the time.
    """

    seconds: NDArray[np.float64]
    size_bytes: NDArray[np.int64]
    staying_bytes: NDArray[np.int64]
    parents: Sequence[tuple[int, ...]]
    last_run: NDArray[np.int64]
    fixed_bytes: int

    def __len__(self) -> int:
        return len(self.seconds)

    @cached_property
    def children(self) -> tuple[tuple[int, ...], ...]:
        found: list[list[int]] = [[] for _ in self.parents]
        for node, parents in enumerate(self.parents):
            for parent in parents:
                found[parent].append(node)
        return tuple(map(tuple, found))


@dataclass(frozen=True, slots=True, eq=False)
class Schedule:
    """What runs and what is kept in each stage: two tables of shape (nodes, nodes)."""

    computed: Table
    kept: Table

    def seconds(self, problem: Recomputation) -> float:
        return float(self.computed.sum(axis=0) @ problem.seconds)


def recomputation_of(workload: Workload, seconds: Sequence[float]) -> Recomputation:
    """One node for each op of the forward and backward passes, which take ``seconds``.

    Its result are all its outputs, but for those that stay: what the step gives and what the update reads. Ops of the
    update do not count: they run after the last stage.
    """
    nodes = [index for index, op in enumerate(workload.ops) if op.phase is not Phase.UPDATE]
    place, stay = {op: node for node, op in enumerate(nodes)}, _read_last(workload)
    producer = {t: place[op] for t, op in workload.producer.items() if op in place and t not in stay}
    ops = [workload.ops[index] for index in nodes]

    def bytes_of(tensors: Iterable[int]) -> int:
        return sum(workload.tensors[tensor].size_bytes for tensor in tensors)

    return Recomputation(
        seconds=np.array([seconds[index] for index in nodes], np.float64),
        size_bytes=np.array([bytes_of({*op.outputs} - stay) for op in ops], np.int64),
        staying_bytes=np.array([bytes_of(stay.intersection(op.outputs)) for op in ops], np.int64),
        parents=[tuple(sorted({producer[tensor] for tensor in op.inputs if tensor in producer})) for op in ops],
        last_run=np.array([node if op.mutates else len(nodes) - 1 for node, op in enumerate(ops)], np.int64),
        fixed_bytes=sum(tensor.size_bytes for i, tensor in enumerate(workload.tensors) if i not in workload.producer),
    )


def keep_everything(problem: Recomputation) -> Schedule:
    """Each result until its last reader, so that nothing runs twice."""
    node = np.arange(len(problem))
    last = np.array([max(children, default=made) for made, children in enumerate(problem.children)], np.int64)
    return Schedule(np.eye(len(problem), dtype=np.bool_), (node < node[:, None]) & (node[:, None] <= last))


def with_least_work(problem: Recomputation, kept: Table) -> Schedule:
    """The least that must run when ``kept`` says what is kept (Checkmate, section 5.2, the second phase of rounding).

    What is kept is computed in time. What cannot run again is kept besides for as long as something reads it.
    """
    stage = np.arange(len(problem))[:, None]
    kept = _all_along(problem, kept) & (stage > np.arange(len(problem)))
    computed = np.eye(len(problem), dtype=np.bool_)
    last_run = problem.last_run.tolist()
    for t in reversed(range(len(problem))):
        late = kept[t + 1] & ~kept[t] if t + 1 < len(problem) else False
        runs, there = (computed[t] | late).tolist(), kept[t].tolist()
        for node in range(t, -1, -1):
            for parent in problem.parents[node] if runs[node] else ():
                if not there[parent] and t > last_run[parent]:
                    kept[parent + 1 : t + 1, parent] = there[parent] = True
                runs[parent] |= not there[parent]
        computed[t] = runs
    return Schedule(computed, kept)


def _all_along(problem: Recomputation, kept: Table) -> Table:
    """What cannot run again, and is kept at some stage, is kept in all before."""
    ever_after = np.logical_or.accumulate(kept[::-1], axis=0)[::-1]
    return np.where(problem.last_run < len(problem) - 1, ever_after, kept)


def peak_bytes(problem: Recomputation, schedule: Schedule) -> int:
    """The most that lies on the device while a node runs; a result goes after its last use in a stage, unless kept.

    What stays, and is made again with a result, lies there twice while its node runs.
    """
    keep_on = np.vstack([schedule.kept[1:], np.zeros(len(problem), np.bool_)])
    stayed_bytes = np.cumsum(problem.staying_bytes) - problem.staying_bytes + problem.fixed_bytes
    peaks = (
        level + _stage_peak_bytes(problem, schedule, keep_on[t], t) for t, level in enumerate(stayed_bytes.tolist())
    )
    return max(peaks, default=problem.fixed_bytes)


def _stage_peak_bytes(problem: Recomputation, schedule: Schedule, keep_on: Table, stage: int) -> int:
    """Without what stayed from stages before."""
    runs = np.flatnonzero(schedule.computed[stage]).tolist()
    last_use = {parent: node for node in runs for parent in (*problem.parents[node], node)}
    level, peak = int(problem.size_bytes[schedule.kept[stage]].sum()), 0
    for node in runs:
        level += int(problem.size_bytes[node]) * (not schedule.kept[stage, node])
        peak = max(peak, level + int(problem.staying_bytes[node]))
        for used in {*problem.parents[node], node}:
            level -= int(problem.size_bytes[used]) * bool(last_use[used] == node and not keep_on[used])
    return peak


def rows_of(workload: Workload, schedule: Schedule) -> list[Row]:
    """The rows of one step under ``schedule``, not settled yet; the update comes last."""
    writer = Writer(workload)
    nodes = [index for index, op in enumerate(workload.ops) if op.phase is not Phase.UPDATE]
    results = _read_last(workload)
    for stage in range(len(nodes)):
        for node in np.flatnonzero(schedule.computed[stage]).tolist():
            if node == stage:
                writer.compute(nodes[node])
            else:
                writer.recompute(nodes[node], workload.ops[nodes[node]].outputs)
        gone = ~schedule.kept[stage + 1] if stage + 1 < len(nodes) else np.ones(len(nodes), np.bool_)
        for node in np.flatnonzero(gone[: stage + 1]).tolist():
            for tensor in workload.ops[nodes[node]].outputs:
                if writer.has(tensor) and tensor not in results:
                    writer.drop(tensor)
    for index, op in enumerate(workload.ops):
        if op.phase is Phase.UPDATE:
            writer.compute(index)
    return writer.rows


def _read_last(workload: Workload) -> set[int]:
    """What the step gives, and what the update reads."""
    updates = (op for op in workload.ops if op.phase is Phase.UPDATE)
    return {workload.loss, *workload.gradients.values()}.union(*(op.inputs for op in updates))
