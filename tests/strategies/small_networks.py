"""Chains whose layers are of kinds that strategies know."""

from dataclasses import replace

from small_workloads import chain

from stepsim.workloads import Op, Workload

CONVOLUTION, LINEAR, ADDITION, RELU = "aten.convolution", "aten.addmm", "aten.add", "aten.relu"


def network(*kinds: str, in_place: frozenset[int] = frozenset()) -> Workload:
    """A `chain` whose forward ops are of these kinds. The backward ops of convolutions have theirs, too."""
    workload = chain(len(kinds), in_place=in_place)
    backward = {f"B{layer}" for layer, kind in enumerate(kinds) if kind == CONVOLUTION}

    def named(number: int, op: Op) -> Op:
        if op.name in backward:
            return replace(op, kind="aten.convolution_backward.data")
        return replace(op, kind=kinds[number]) if number < len(kinds) else op

    return replace(workload, ops=tuple(named(number, op) for number, op in enumerate(workload.ops)))


def without_saving(workload: Workload, layer: int) -> Workload:
    """The backward pass does not read what ``layer`` makes."""
    tensor = layer + 1
    tensors = [replace(each, saved=each.saved and index != tensor) for index, each in enumerate(workload.tensors)]
    ops = [
        replace(op, inputs=tuple(each for each in op.inputs if each != tensor)) if op.name == f"B{layer}" else op
        for op in workload.ops
    ]
    return replace(workload, tensors=tuple(tensors), ops=tuple(ops))
