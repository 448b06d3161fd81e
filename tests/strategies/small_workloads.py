"""Workloads by hand: chains whose bytes and seconds can be added up on paper."""

from collections.abc import Mapping
from dataclasses import replace

from stepsim.workloads import Op, Phase, Role, Tensor, Workload


def op(name: str, phase: Phase, inputs: tuple[int, ...], outputs: tuple[int, ...], *, random: bool = False) -> Op:
    return Op(
        name=name,
        phase=phase,
        kind=name,
        module="",
        inputs=inputs,
        outputs=outputs,
        flop=0,
        bytes_read=0,
        bytes_written=0,
        input_shapes=(),
        output_shapes=(),
        dtype="float32",
        arguments="",
        signature=name,
        random=random,
    )


def tensor(name: str, role: Role, size_bytes: int, *, saved: bool = False) -> Tensor:
    return Tensor(name=name, role=role, size_bytes=size_bytes, shape=(size_bytes,), dtype="uint8", saved=saved)


def chain(length: int, size_bytes: int = 10, *, in_place: frozenset[int] = frozenset()) -> Workload:
    """``length`` layers of one activation each.

    F0 F1 ... L | Bn ... B1 B0: layer ``i`` makes x_i from x_(i-1) (x_-1 is the input); its backward reads x_i and the
    gradient of what follows, and makes the gradient of x_i. Tensors: 0 the input, 1..n the activations, n + 1 the
    loss, then the gradients from the last layer to the first. Layers ``in_place`` write x_(i-1) too, so that they
    cannot run again.
    """
    activations = [tensor(f"x{i}", Role.ACTIVATION, size_bytes, saved=True) for i in range(length)]
    gradients = [tensor(f"g{i}", Role.GRADIENT, size_bytes) for i in reversed(range(length))]
    outside, loss = tensor("input", Role.INPUT, size_bytes), tensor("loss", Role.ACTIVATION, 1, saved=True)
    forward = [op(f"F{i}", Phase.FORWARD, (i,), (i + 1,)) for i in range(length)]
    forward = [replace(each, mutates=each.inputs if i in in_place else ()) for i, each in enumerate(forward)]
    forward.append(op("L", Phase.FORWARD, (length,), (length + 1,)))
    backward = [
        op(f"B{i}", Phase.BACKWARD, (i + 1, 2 * length - i), (2 * length + 1 - i,)) for i in reversed(range(length))
    ]
    return Workload(
        name="chain",
        batch=1,
        tensors=(outside, *activations, loss, *gradients),
        ops=(*forward, *backward),
        loss=length + 1,
    )


def accumulated(workload: Workload, passes: int) -> Workload:
    """Forward and backward as often as that, each on tensors of its own, before the update: gradients add up.

    What a further pass makes comes after all tensors so far, in the order in which the first made it.
    """
    once = [each for each in workload.ops if each.phase is not Phase.UPDATE]
    tensors, ops = [*workload.tensors], [*once]
    for number in range(2, passes + 1):
        own = {made: len(tensors) + place for place, made in enumerate(sorted(workload.producer))}
        tensors += [replace(tensors[made], name=f"{tensors[made].name}@{number}") for made in own]
        ops += [_on_other_tensors(each, own, f"@{number}") for each in once]
        for total in workload.gradients.values():
            add = op(f"add{total}@{number}", Phase.BACKWARD, (total, own[total]), ())
            ops.append(replace(add, mutates=(total,)))
    updates = (each for each in workload.ops if each.phase is Phase.UPDATE)
    return replace(workload, tensors=tuple(tensors), ops=(*ops, *updates))


def _on_other_tensors(op: Op, others: Mapping[int, int], suffix: str) -> Op:
    inputs, outputs, mutates = (
        tuple(others.get(tensor, tensor) for tensor in tensors) for tensors in (op.inputs, op.outputs, op.mutates)
    )
    return replace(op, name=op.name + suffix, inputs=inputs, outputs=outputs, mutates=mutates)
