"""From a policy to the order of execution: which rows run, on which copies of which tensors.

A policy says for each saved activation whether it is kept, swapped out and in, or dropped and recomputed. The schedule
is plain data, cheap enough to score thousands of policies; `lowering` turns one into a plan.

    keep       F0 F1 F2 B2 B1 B0
    swap x0    F0 F1 out0 F2 (release x0 when room is needed) in0 B2 B1 B0      in0 is one op ahead of its reader
    recompute  F0 F1 F2 B2 F0' B1 B0                                           x0 is gone after its last forward reader
"""

from collections.abc import Mapping
from enum import StrEnum

from stepsim.errors import WorkloadError
from stepsim.strategies.memory.rows import Row, settle
from stepsim.strategies.memory.writer import Writer
from stepsim.workloads import Phase, Role, Workload


class Action(StrEnum):
    KEEP = "keep"
    SWAP = "swap"
    RECOMPUTE = "recompute"


Policy = Mapping[int, Action]
"""Tensor to action; a tensor without an entry is kept."""


def candidates(workload: Workload) -> list[int]:
    """Tensors that a policy may decide on: saved activations, but for the loss, which is a result."""
    saved = (i for i, t in enumerate(workload.tensors) if t.saved and t.role is Role.ACTIVATION and t.size_bytes)
    return [tensor for tensor in saved if tensor != workload.loss]


def can_recompute(workload: Workload, tensor: int) -> bool:
    """An op that writes in place does something else the second time; one that draws random numbers draws the same."""
    producer = workload.producer.get(tensor)
    return producer is not None and not workload.ops[producer].mutates


def schedule(workload: Workload, policy: Policy, memory_bytes: int, prefetch_ops: int = 1) -> list[Row]:
    """Rows of one step under ``policy``, in issue order, settled for ``memory_bytes``, which they may still exceed.

    A swapped tensor is asked back when the op that is ``prefetch_ops`` before its reader starts. Raises `WorkloadError`
    for an action that a tensor cannot take.
    """
    _check(workload, policy)
    return list(settle(workload, order(workload, policy, prefetch_ops), memory_bytes))


def _check(workload: Workload, policy: Policy) -> None:
    allowed = set(candidates(workload))
    for tensor, action in policy.items():
        if not 0 <= tensor < len(workload.tensors):
            raise WorkloadError(f"policy: tensor {tensor} of {len(workload.tensors)} does not exist")
        if tensor not in allowed or (action is Action.RECOMPUTE and not can_recompute(workload, tensor)):
            raise WorkloadError(f"tensor {workload.tensors[tensor].name!r}: cannot {action}")


def forward_only(workload: Workload) -> list[int]:
    """Activations that no op reads after the forward pass, of those that can be recomputed.

    They are gone by then. Policies that recompute more than one op back add them, so that they do not stay.
    """
    return [
        tensor
        for tensor, producer in workload.producer.items()
        if workload.tensors[tensor].role is Role.ACTIVATION
        and tensor != workload.loss
        and can_recompute(workload, tensor)
        and all(workload.ops[op].phase is Phase.FORWARD for op in (producer, *workload.consumers[tensor]))
    ]


def order(workload: Workload, policy: Policy, prefetch_ops: int) -> list[Row]:
    """Rows with what they read and write, before anything is allocated or released.

    ``policy`` is not checked, and may hold `forward_only` tensors. With 0 ``prefetch_ops`` a tensor is asked back when
    it is needed.
    """
    writer, leaves = Writer(workload), leaving(workload, policy)
    for index, op in enumerate(workload.ops):
        fetch(writer, policy, op.inputs)
        for ahead in workload.ops[index + 1 : index + 1 + prefetch_ops]:
            _prefetch(writer, policy, ahead.inputs)
        writer.compute(index)
        for tensor in leaves.get(index, ()):
            if policy[tensor] is Action.SWAP:
                writer.swap_out(tensor)
            writer.drop(tensor)
    return writer.rows


def leaving(workload: Workload, policy: Policy) -> dict[int, list[int]]:
    """Forward op to the tensors that go away after it, by policy."""
    found: dict[int, list[int]] = {}
    for tensor, action in sorted(policy.items()):
        if action is not Action.KEEP:
            users = [workload.producer[tensor], *workload.consumers[tensor]]
            last = max(op for op in users if workload.ops[op].phase is Phase.FORWARD)
            found.setdefault(last, []).append(tensor)
    return found


def fetch(writer: Writer, policy: Policy, tensors: tuple[int, ...]) -> None:
    """Make ``tensors`` present: swap in, or recompute what it takes. Deep chains need no recursion limit."""
    wanted = [tensor for tensor in reversed(tensors) if not writer.has(tensor)]
    while wanted:
        tensor = wanted[-1]
        if writer.has(tensor):
            wanted.pop()
        elif policy[tensor] is Action.SWAP:
            writer.swap_in(wanted.pop())
        else:
            op = writer.workload.ops[producer := writer.workload.producer[tensor]]
            missing = [t for t in op.inputs if not writer.has(t)]
            wanted.extend(missing)
            if not missing:
                writer.recompute(producer, [t for t in op.outputs if policy.get(t) is Action.RECOMPUTE])


def _prefetch(writer: Writer, policy: Policy, tensors: tuple[int, ...]) -> None:
    """Swap in what a later op reads."""
    for tensor in tensors:
        if not writer.has(tensor) and policy.get(tensor) is Action.SWAP and writer.was_written(tensor):
            writer.swap_in(tensor)
