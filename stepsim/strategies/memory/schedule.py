"""From a policy to the order of execution: which rows run, on which copies of which tensors.

A policy says for each saved activation whether it is kept, swapped out and in, or dropped and recomputed. The schedule
is plain data, cheap enough to score thousands of policies; `lowering` turns one into a plan.

    keep       F0 F1 F2 B2 B1 B0
    swap x0    F0 F1 out0 F2 (release x0 when room is needed) in0 B2 B1 B0      in0 is one op ahead of its reader
    recompute  F0 F1 F2 B2 F0' B1 B0                                           x0 is gone after its last forward reader
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from stepsim.errors import WorkloadError
from stepsim.plan import TaskKind
from stepsim.workloads import Phase, Role, Workload


class Action(StrEnum):
    KEEP = "keep"
    SWAP = "swap"
    RECOMPUTE = "recompute"


Policy = Mapping[int, Action]
"""Tensor to action; a tensor without an entry is kept."""

Copy = tuple[int, int]
"""A tensor and the number of its copy: 0 is the first, each swap-in or recomputation makes the next."""

HOST_COPY = -1
"""Number of the copy that lies in host memory."""


@dataclass(frozen=True, slots=True)
class Row:
    """One row to be: what it runs (an op, or a tensor to move) on which copies."""

    kind: TaskKind
    subject: int
    reads: tuple[Copy, ...] = ()
    writes: tuple[Copy, ...] = ()
    allocates: tuple[Copy, ...] = ()
    releases: tuple[Copy, ...] = ()


def candidates(workload: Workload) -> list[int]:
    """Tensors that a policy may decide on: saved activations, but for the loss, which is a result."""
    saved = (i for i, t in enumerate(workload.tensors) if t.saved and t.role is Role.ACTIVATION and t.size_bytes)
    return [tensor for tensor in saved if tensor != workload.loss]


def can_recompute(workload: Workload, tensor: int) -> bool:
    """An op that draws random numbers, or writes in place, does something else the second time."""
    producer = workload.producer.get(tensor)
    return producer is not None and not (workload.ops[producer].random or workload.ops[producer].mutates)


def schedule(workload: Workload, policy: Policy, memory_bytes: int) -> list[Row]:
    """Rows of one step under ``policy``, in issue order.

    A swapped-out tensor is given back when its room is needed to stay within ``memory_bytes``, first out first
    (He et al., "HOME", IEEE TC 2023, Algorithm 2), and at the latest when it is swapped in again. The result may still
    exceed ``memory_bytes``. Raises `WorkloadError` for an action that a tensor cannot take.
    """
    _check(workload, policy)
    return list(_give_back(workload, _order(workload, policy), memory_bytes))


def _check(workload: Workload, policy: Policy) -> None:
    allowed = set(candidates(workload))
    for tensor, action in policy.items():
        if not 0 <= tensor < len(workload.tensors):
            raise WorkloadError(f"policy: tensor {tensor} of {len(workload.tensors)} does not exist")
        if tensor not in allowed or (action is Action.RECOMPUTE and not can_recompute(workload, tensor)):
            raise WorkloadError(f"tensor {workload.tensors[tensor].name!r}: cannot {action}")


def _order(workload: Workload, policy: Policy) -> list[Row]:
    """Rows with what they read and write, before anything is allocated or released."""
    orderer = _Orderer(workload, policy)
    for index, op in enumerate(workload.ops):
        orderer.fetch(op.inputs)
        if index + 1 < len(workload.ops):
            orderer.prefetch(workload.ops[index + 1].inputs)
        orderer.run(index)
    return orderer.rows


class _Orderer:
    """Walks the ops once, knowing which copy of each tensor is there."""

    def __init__(self, workload: Workload, policy: Policy) -> None:
        self.workload = workload
        self.policy = policy
        self.rows: list[Row] = []
        outside = (i for i in range(len(workload.tensors)) if i not in workload.producer)
        self.present: dict[int, Copy] = {tensor: (tensor, 0) for tensor in outside}
        self.copies: dict[int, int] = {}
        self.leaves = self._leaving()

    def _leaving(self) -> dict[int, list[int]]:
        """Forward op to the tensors that go away after it, by policy."""
        found: dict[int, list[int]] = {}
        ops = self.workload.ops
        for tensor, action in sorted(self.policy.items()):
            if action is not Action.KEEP:
                users = [self.workload.producer[tensor], *self.workload.consumers[tensor]]
                last = max(op for op in users if ops[op].phase is Phase.FORWARD)
                found.setdefault(last, []).append(tensor)
        return found

    def fetch(self, tensors: tuple[int, ...]) -> None:
        """Make ``tensors`` present: swap in, or recompute what it takes. Deep chains need no recursion limit."""
        wanted = [tensor for tensor in reversed(tensors) if tensor not in self.present]
        while wanted:
            tensor = wanted[-1]
            if tensor in self.present:
                wanted.pop()
            elif self.policy[tensor] is Action.SWAP:
                self._swap_in(wanted.pop())
            else:
                producer = self.workload.producer[tensor]
                missing = [t for t in self.workload.ops[producer].inputs if t not in self.present]
                wanted.extend(missing)
                if not missing:
                    self._run_again(producer)

    def prefetch(self, tensors: tuple[int, ...]) -> None:
        """Swap in what the next op reads, beside this one."""
        for tensor in tensors:
            if tensor not in self.present and self.policy.get(tensor) is Action.SWAP and tensor in self.copies:
                self._swap_in(tensor)

    def run(self, index: int) -> None:
        self.present |= self._add(TaskKind.COMPUTE, index)
        for tensor in self.leaves.get(index, ()):
            if self.policy[tensor] is Action.SWAP:
                host = (tensor, HOST_COPY)
                self.rows.append(Row(TaskKind.SWAP_OUT, tensor, (self.present[tensor],), (host,)))
            del self.present[tensor]

    def _run_again(self, index: int) -> None:
        """Recompute an op; of its outputs those come back that are gone and not swapped out."""
        for tensor, copy in self._add(TaskKind.RECOMPUTE, index).items():
            if tensor not in self.present and self.policy[tensor] is Action.RECOMPUTE:
                self.present[tensor] = copy

    def _add(self, kind: TaskKind, index: int) -> dict[int, Copy]:
        """A row for an op; gives the new copies of its outputs."""
        op = self.workload.ops[index]
        copies = {tensor: self._new_copy(tensor) for tensor in op.outputs}
        reads = tuple(self.present[tensor] for tensor in op.inputs)
        mutated = tuple(self.present[tensor] for tensor in op.mutates)
        self.rows.append(Row(kind, index, reads, (*copies.values(), *mutated)))
        return copies

    def _swap_in(self, tensor: int) -> None:
        self.present[tensor] = self._new_copy(tensor)
        self.rows.append(Row(TaskKind.SWAP_IN, tensor, ((tensor, HOST_COPY),), (self.present[tensor],)))

    def _new_copy(self, tensor: int) -> Copy:
        self.copies[tensor] = self.copies.get(tensor, -1) + 1
        return tensor, self.copies[tensor]


def _give_back(workload: Workload, rows: list[Row], memory_bytes: int) -> Iterator[Row]:
    """Add to each row what it allocates and releases, and release rows where room is needed."""
    size_bytes = [tensor.size_bytes for tensor in workload.tensors]
    outside = {(tensor, 0) for tensor in range(len(size_bytes)) if tensor not in workload.producer}
    results = {(tensor, 0) for tensor in (workload.loss, *workload.gradients.values())}
    last_use = {copy: number for number, row in enumerate(rows) for copy in (*row.reads, *row.writes)}
    used_bytes = _resident(outside, size_bytes)
    swapped_out: dict[int, Copy] = {}
    seen = set(outside)

    for number, row in enumerate(rows):
        fresh = tuple(copy for copy in row.writes if copy not in seen)
        seen.update(fresh)
        need_bytes = _resident(fresh, size_bytes)
        while swapped_out and (used_bytes + need_bytes > memory_bytes or _comes_back(row, swapped_out)):
            first = row.subject if _comes_back(row, swapped_out) else next(iter(swapped_out))
            used_bytes -= size_bytes[first]
            yield Row(TaskKind.RELEASE, first, releases=(swapped_out.pop(first),))
        dead: tuple[Copy, ...] = ()
        if row.kind is TaskKind.SWAP_OUT:
            swapped_out[row.subject] = row.reads[0]
        else:
            ended = (copy for copy in dict.fromkeys((*row.reads, *row.writes)) if last_use[copy] == number)
            dead = tuple(copy for copy in ended if copy not in outside and copy not in results)
        used_bytes += need_bytes - _resident(dead, size_bytes)
        yield Row(row.kind, row.subject, row.reads, row.writes, fresh, dead)
    yield Row(TaskKind.RELEASE, workload.loss, releases=tuple(sorted(results)))


def _comes_back(row: Row, swapped_out: Mapping[int, Copy]) -> bool:
    return row.kind is TaskKind.SWAP_IN and row.subject in swapped_out


def _resident(copies: Iterable[Copy], size_bytes: list[int]) -> int:
    """Bytes of the copies that lie on the device."""
    return sum(size_bytes[tensor] for tensor, number in copies if number != HOST_COPY)


def resident_bytes(workload: Workload, rows: list[Row]) -> list[int]:
    """Bytes on the device while each row runs: what `stepsim.memory.memory_profile` says of the lowered plan."""
    size_bytes = [tensor.size_bytes for tensor in workload.tensors]
    level = sum(size for tensor, size in enumerate(size_bytes) if tensor not in workload.producer)
    found = []
    for row in rows:
        level += _resident(row.allocates, size_bytes)
        found.append(level)
        level -= _resident(row.releases, size_bytes)
    return found
