"""Steps that are no plain chains, each with one thing in it that a strategy may stumble over."""

from collections.abc import Callable
from dataclasses import replace

from small_networks import CONVOLUTION, RELU, network
from small_workloads import chain, op, tensor

from stepsim.workloads import Op, Phase, Role, Workload


def reading(workload: Workload, more: dict[str, tuple[int, ...]]) -> Workload:
    """The step, where the ops named read these tensors besides."""
    ops = (replace(each, inputs=(*each.inputs, *more.get(each.name, ()))) for each in workload.ops)
    return replace(workload, ops=tuple(ops))


def nothing_saved() -> Workload:
    """No backward op reads an activation: there is nothing to decide."""
    step = chain(4)
    saved = {index for index, each in enumerate(step.tensors) if each.name.startswith("x")}
    ops = (
        replace(each, inputs=tuple(t for t in each.inputs if t not in saved)) if each.phase is Phase.BACKWARD else each
        for each in step.ops
    )
    return replace(step, ops=tuple(ops), tensors=tuple(replace(each, saved=False) for each in step.tensors))


def forward_only() -> Workload:
    step = chain(4)
    forward = tuple(each for each in step.ops if each.phase is Phase.FORWARD)
    tensors = tuple(replace(each, saved=False) for each in step.tensors[: step.loss + 1])
    return replace(step, ops=forward, tensors=tensors)


def one_op() -> Workload:
    outside, loss = tensor("input", Role.INPUT, 10), tensor("loss", Role.ACTIVATION, 1)
    return Workload(name="one op", batch=1, tensors=(outside, loss), ops=(op("L", Phase.FORWARD, (0,), (1,)),), loss=1)


def tied_weights() -> Workload:
    """Two layers read one weight, and its gradient adds up in place, as that of an update does."""
    step = chain(5)
    weight, gradient = len(step.tensors), len(step.tensors) + 1
    tensors = (*step.tensors, tensor("w", Role.PARAMETER, 20), tensor("dw", Role.GRADIENT, 20))

    def tied(each: Op) -> Op:
        match each.name:
            case "F1" | "F3":
                return replace(each, inputs=(*each.inputs, weight))
            case "B3":
                return replace(each, inputs=(*each.inputs, weight), outputs=(*each.outputs, gradient))
            case "B1":
                return replace(each, inputs=(*each.inputs, weight, gradient), mutates=(gradient,))
        return each

    update = replace(op("U", Phase.UPDATE, (weight, gradient), ()), mutates=(weight,))
    ops = (*map(tied, step.ops), update)
    return replace(step, tensors=tensors, ops=ops, gradients={weight: gradient})


def two_outputs() -> Workload:
    """As a pooling with its indices: the backward op reads both."""
    step = chain(5)
    indices = len(step.tensors)
    tensors = (*step.tensors, tensor("indices", Role.ACTIVATION, 5, saved=True))
    ops = (replace(each, outputs=(*each.outputs, indices)) if each.name == "F2" else each for each in step.ops)
    return reading(replace(step, tensors=tensors, ops=tuple(ops)), {"B2": (indices,)})


def without_bytes() -> Workload:
    step = chain(5)
    tensors = (replace(each, size_bytes=0) if each.name in ("x1", "g3") else each for each in step.tensors)
    return replace(step, tensors=tuple(tensors))


ODD_STEPS: dict[str, Callable[[], Workload]] = {
    "nothing can be recomputed": lambda: chain(6, in_place=frozenset(range(6))),
    "some write in place": lambda: chain(6, in_place=frozenset({2, 4})),
    "convolutions with ReLUs in place": lambda: network(
        CONVOLUTION, RELU, CONVOLUTION, RELU, CONVOLUTION, RELU, in_place=frozenset({1, 3, 5})
    ),
    "nothing is saved": nothing_saved,
    "forward only": forward_only,
    "one op": one_op,
    "weights are tied": tied_weights,
    "outputs are read twice": lambda: reading(chain(6), {"F3": (2,), "F5": (2, 4), "B0": (3,), "B2": (2,)}),
    "one op reads a tensor twice": lambda: reading(chain(5), {"F2": (2,), "B2": (3,)}),
    "an op has two outputs": two_outputs,
    "tensors without bytes": without_bytes,
}
