"""What lies in memory between forward and backward: what autograd saves, or every output of an op.

A captured workload is what autograd really saves: an output stays until its last reader. What the papers about memory
count is often more, and here are the changes that make a workload say so.

    x -> conv -> c -> norm -> n -> relu -> r -> conv ...           autograd saves c and r: the backward pass reads them
                                                                   `every_output_kept`: n stays as well
                                                                   `norm_and_relu_merged`: there is no n
    r -> max pool -> p, where the largest were -> conv ...         autograd saves r, p and the places
                                                                   `max_pool_without_indices`: there are no places

A view is no tensor of a workload, so it takes no memory in any of them. All of them fit one batch: change the batch
first.
"""

from bisect import bisect_left
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

from stepsim.workloads.op import Op, Phase, Role, Tensor
from stepsim.workloads.workload import Workload

NORM, RELU, CONCAT = "aten._native_batch_norm_legit_functional", "aten.relu", "aten.cat"
MAX_POOL, MAX_POOL_BACKWARD = "aten.max_pool2d_with_indices", "aten.max_pool2d_with_indices_backward"
"""What the ops of batch norm in training, of ReLU, of concatenation and of max pooling are called by torch."""


def saved_bytes(workload: Workload) -> int:
    """Bytes of what the forward pass keeps for the backward pass."""
    return sum(tensor.size_bytes for tensor in workload.tensors if tensor.saved)


def every_output_kept(workload: Workload) -> Workload:
    """Each output of a forward op stays until the backward pass comes to that op.

    The backward pass goes back over the forward ops in reverse order. A backward op that reads a weight or a saved
    value belongs to an op that used it, so that it tells how far the pass has come; the first one that can only belong
    to the producer of an output, or to an op before it, is the last to find it in memory. It reads the output besides
    what it needs, as its last inputs: the step still runs, and gives the same.

    What stays longer by itself is left as it is. So are the loss and the new statistics of a batch norm.
    """
    kept: dict[int, list[int]] = {}
    backward, reached = backward_pass(workload)
    for tensor, producer in workload.producer.items():
        if backward and workload.ops[producer].phase is Phase.FORWARD and tensor != workload.loss:
            found = bisect_left(reached, -producer, key=lambda op: -op)
            last = backward[min(found, len(backward) - 1)]
            if max(workload.consumers[tensor], default=producer) < last:
                kept.setdefault(last, []).append(tensor)
    ops = (replace(op, inputs=(*op.inputs, *kept.get(index, ()))) for index, op in enumerate(workload.ops))
    marked = {tensor for tensors in kept.values() for tensor in tensors}
    tensors = (replace(t, saved=t.saved or index in marked) for index, t in enumerate(workload.tensors))
    return replace(workload, tensors=tuple(tensors), ops=tuple(ops), growth=None)


def backward_pass(workload: Workload) -> tuple[list[int], list[int]]:
    """The backward ops, and for each of them the last forward op that it can belong to."""
    last_user: dict[int, int] = {}
    backward, reached, came_to = [], [], len(workload.ops)
    for index, op in enumerate(workload.ops):
        if op.phase is Phase.FORWARD:
            last_user |= dict.fromkeys((*op.inputs, *op.outputs), index)
        elif op.phase is Phase.BACKWARD:
            came_to = min([came_to, *(last_user[tensor] for tensor in op.inputs if tensor in last_user)])
            backward.append(index)
            reached.append(came_to)
    return backward, reached


def norm_and_relu_merged(workload: Workload) -> Workload:
    """Batch norm writes what ReLU makes of it, wherever nothing else reads the output of the norm.

    So does a ReLU in place, or a kernel that does both. The op keeps the cost of the norm alone. For simulating only:
    torch has no such op on its own.
    """
    merged = {
        op.inputs[0]: op.outputs[0]
        for index, op in enumerate(workload.ops)
        if op.kind == RELU and _made_by(workload, op.inputs[0], NORM) and workload.consumers[op.inputs[0]] == (index,)
    }
    relus = {workload.producer[tensor] for tensor in merged.values()}
    return _without(workload, relus, lambda op: replace(op, outputs=tuple(merged.get(t, t) for t in op.outputs)))


def concat_as_view(workload: Workload) -> Workload:
    """What is concatenated is written side by side in the first place: who reads the whole reads its parts.

    A part that comes from outside, or that is a part of another whole too, has its place elsewhere: then the whole is a
    copy, as it was. For simulating only: an op still says the shape of the whole.
    """
    placed: set[int] = set()
    parts: dict[int, tuple[int, ...]] = {}
    for op in workload.ops:
        if op.kind == CONCAT and placed.isdisjoint(op.inputs) and all(t in workload.producer for t in op.inputs):
            placed.update(op.inputs)
            parts[op.outputs[0]] = op.inputs
    concats = {workload.producer[whole] for whole in parts}
    return _without(workload, concats, lambda op: replace(op, inputs=_in_parts(op.inputs, parts)))


def max_pool_without_indices(workload: Workload) -> Workload:
    """The gradient of max pooling finds the largest values again in the input, so that nothing says where they were.

    So do libraries whose gradient takes the input (cuDNN's cudnnPoolingBackward), and whoever profiles a network by
    the outputs of its modules sees no indices either. The ops keep their costs. For simulating only: torch's takes the
    indices, of 8 bytes each.
    """
    indices = {op.outputs[1] for op in workload.ops if op.kind == MAX_POOL}
    wanted = {tensor for op in workload.ops if op.kind != MAX_POOL_BACKWARD for tensor in op.inputs}
    forgotten = indices - wanted

    def others(tensors: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(tensor for tensor in tensors if tensor not in forgotten)

    return _without(workload, (), lambda op: replace(op, inputs=others(op.inputs), outputs=others(op.outputs)))


def _in_parts(tensors: Sequence[int], parts: Mapping[int, Sequence[int]]) -> tuple[int, ...]:
    """``tensors`` with each whole exchanged for its parts, which may be wholes themselves; each once."""
    found: dict[int, None] = {}
    for tensor in tensors:
        found |= dict.fromkeys(_in_parts(parts[tensor], parts) if tensor in parts else (tensor,))
    return tuple(found)


def _made_by(workload: Workload, tensor: int, kind: str) -> bool:
    producer = workload.producer.get(tensor)
    return producer is not None and workload.ops[producer].kind == kind


def _without(workload: Workload, dropped: Collection[int], change: Callable[[Op], Op]) -> Workload:
    """The ops but for those ``dropped``, changed, and the tensors that they still name, numbered anew."""
    ops = [change(op) for index, op in enumerate(workload.ops) if index not in dropped]
    named = {tensor for op in ops for tensor in (*op.inputs, *op.outputs)}
    left = [index for index in range(len(workload.tensors)) if index in named or index not in workload.producer]
    number = {tensor: place for place, tensor in enumerate(left)}
    late = {tensor for op in ops if op.phase is Phase.BACKWARD for tensor in op.inputs}
    return replace(
        workload,
        tensors=tuple(_saved(workload.tensors[tensor], tensor in late) for tensor in left),
        ops=tuple(_renumbered(op, number) for op in ops),
        loss=number[workload.loss],
        gradients={number[tensor]: number[gradient] for tensor, gradient in workload.gradients.items()},
        growth=None,
    )


def _saved(tensor: Tensor, late: bool) -> Tensor:
    return replace(tensor, saved=late and tensor.role is Role.ACTIVATION)


def _renumbered(op: Op, number: Mapping[int, int]) -> Op:
    inputs, outputs, mutates = (tuple(number[t] for t in tensors) for tensors in (op.inputs, op.outputs, op.mutates))
    return replace(op, inputs=inputs, outputs=outputs, mutates=mutates)
