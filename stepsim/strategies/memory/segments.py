"""Checkpoints of SuperNeurons, the segments between them, and which segments may stay once they were recomputed.

Wang et al., "SuperNeurons", PPoPP 2018, section 3.4.

    conv -> norm -> relu -> pool -> conv       both convolutions are checkpoints; norm, relu and pool are one segment
"""

from collections.abc import Collection, Iterable
from typing import Literal

from stepsim.strategies.memory.schedule import forward_only
from stepsim.strategies.memory.vdnn import is_convolution, is_linear
from stepsim.workloads import Op, Phase, Role, Workload
from stepsim.workloads.storage import CONCAT

Segments = Literal["cost-aware", "speed", "memory"]

_CHECKPOINTS = (CONCAT, "aten._log_softmax")

_HANDS_ON = (CONCAT, "aten.add")
"""The gradients of what these ops read are that of what they make, or views of it."""


def checkpoints(workload: Workload) -> tuple[set[int], set[int]]:
    """Tensors that are no part of a segment, and those of them that convolutions make.

    Made by convolutions, linear layers, joins, concatenations, softmax and the loss, or read by several forward ops.
    Where the backward pass does not read a checkpoint, what is made from it takes its place: the ReLU of a convolution.
    """
    found, convolved = set[int](), set[int]()
    gone = set(forward_only(workload))
    for op in (op for op in workload.ops if op.phase is Phase.FORWARD):
        inherited = gone.intersection(op.inputs)
        if _is_checkpoint(workload, op) or inherited & found:
            found.update(op.outputs)
        if is_convolution(op) or inherited & convolved:
            convolved.update(op.outputs)
    return found, convolved


def _is_checkpoint(workload: Workload, op: Op) -> bool:
    joins = sum(workload.tensors[tensor].role is Role.ACTIVATION for tensor in op.inputs) > 1
    known = op.kind in _CHECKPOINTS or is_convolution(op) or is_linear(op) or workload.loss in op.outputs
    return known or joins or _forks(workload, op)


def _forks(workload: Workload, op: Op) -> bool:
    readers = ([workload.ops[reader].phase for reader in workload.consumers[tensor]] for tensor in op.outputs)
    return any(phases.count(Phase.FORWARD) > 1 for phases in readers)


def staying(workload: Workload, again: Collection[int], kind: Segments) -> set[int]:
    """Of the tensors recomputed ``again`` those that stay, once they were, until they have been used.

    Cost-aware: of segments that take no more, with the checkpoint they start from and the gradients of their last op,
    than the op of the forward pass takes that takes the most, with its gradients.
    """
    if kind != "cost-aware":
        return set(again) if kind == "speed" else set()
    forward = [op for op in workload.ops if op.phase is Phase.FORWARD]
    most_bytes = max((_layer_bytes(workload, op) for op in forward), default=0)
    return {
        tensor
        for segment in segments(workload, again)
        if _segment_bytes(workload, segment) <= most_bytes
        for op in segment
        for tensor in workload.ops[op].outputs
    }.intersection(again)


def segments(workload: Workload, again: Iterable[int]) -> list[list[int]]:
    """Ops that make the tensors ``again``, those in one list that are made from each other."""
    found: list[list[int]] = []
    place: dict[int, int] = {}
    wanted = set(again)
    for index in sorted({workload.producer[tensor] for tensor in wanted}):
        op = workload.ops[index]
        number = next((place[tensor] for tensor in op.inputs if tensor in place), len(found))
        if number == len(found):
            found.append([])
        found[number].append(index)
        place |= dict.fromkeys(wanted.intersection(op.outputs), number)
    return found


def _segment_bytes(workload: Workload, segment: list[int]) -> int:
    ops = [workload.ops[index] for index in segment]
    kept = {tensor for op in ops for tensor in (*op.inputs, *op.outputs)}
    gradients = {*ops[-1].inputs, *ops[-1].outputs}
    return _bytes(workload, kept) + _bytes(workload, gradients, Role.ACTIVATION)


def _layer_bytes(workload: Workload, op: Op) -> int:
    gradients = op.outputs if op.kind in _HANDS_ON else (*op.inputs, *op.outputs)
    return _bytes(workload, {*op.inputs, *op.outputs}) + _bytes(workload, gradients, Role.ACTIVATION)


def _bytes(workload: Workload, tensors: Iterable[int], *roles: Role) -> int:
    """Of data, or of those of ``roles``: weights are in memory all the time."""
    counted = roles or (Role.ACTIVATION, Role.INPUT)
    each = (workload.tensors[tensor] for tensor in tensors)
    return sum(tensor.size_bytes for tensor in each if tensor.role in counted)
