"""From the joint graph of one microbatch to the whole step: a pass for each microbatch, then buffers and the update.

::

    F0 B0 | F1 B1, each gradient added to that of B0 as soon as it is there | ... | buffers | optimizer
"""

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch.fx import Node
from torch.optim import Optimizer

from stepsim.errors import CaptureError
from stepsim.workloads.graph_reader import Values, read_graph
from stepsim.workloads.joint_graph import JointGraph
from stepsim.workloads.op import Phase, Role, Tensor
from stepsim.workloads.optimizers import add_updates
from stepsim.workloads.program import Program
from stepsim.workloads.step_builder import Call, StepBuilder, Value
from stepsim.workloads.step_function import StepFunction
from stepsim.workloads.workload import Workload

_aten = torch.ops.aten


def assemble(
    step: StepFunction,
    joint: JointGraph,
    fakes: Sequence[torch.Tensor],
    optimizer: Optimizer | None,
    *,
    name: str,
    batch: int,
) -> Program:
    """``joint`` is of the first microbatch of ``step``, whose tensors look like ``fakes``."""
    builder, rest = StepBuilder(), iter(fakes)
    parameters = {key: builder.tensor(key, Role.PARAMETER, next(rest)) for key in step.parameters}
    buffers = {key: builder.tensor(key, Role.BUFFER, next(rest)) for key in step.buffers}
    inputs = {place: builder.tensor(f"input.{place}", Role.INPUT, next(rest)) for place in step.inputs}
    _check_mutations(builder, joint)
    passes = _Passes(builder, joint, list(parameters), [*parameters.values(), *buffers.values()])
    passes.add_all([*inputs.values()], step.num_microbatches)
    passes.write_buffers()
    states: dict[int, tuple[str, str]] = {}
    if optimizer is not None:
        known = {tensor: key for key, tensor in step.parameters.items()}
        states = add_updates(builder, optimizer, known, parameters, passes.gradients)
    in_order = (key for key in parameters if key in passes.gradients)
    gradients = {parameters[key].tensor: passes.gradients[key] for key in in_order}
    return Program(
        workload=Workload(
            name=name,
            batch=batch,
            tensors=_with_saved(builder),
            ops=tuple(builder.ops),
            loss=passes.loss.tensor,
            gradients={parameter: gradient.tensor for parameter, gradient in gradients.items()},
        ),
        ops=tuple(builder.programs),
        parameters={value.tensor: key for key, value in parameters.items()},
        buffers={value.tensor: key for key, value in buffers.items()},
        inputs={value.tensor: place for place, value in inputs.items()},
        states=states,
        constants=passes.constants,
        loss_view=passes.loss.view,
        gradient_views={parameter: gradient.view for parameter, gradient in gradients.items()},
    )


class _Passes:
    """Adds forward and backward of one microbatch after another.

    ``held`` are parameters and buffers as the next pass finds them. The loss is the sum of all.
    """

    loss: Value

    def __init__(self, builder: StepBuilder, joint: JointGraph, names: Sequence[str], held: Sequence[Value]) -> None:
        self.gradients: dict[str, Value] = {}
        self.constants: dict[int, torch.Tensor] = {}
        self._builder = builder
        self._joint = joint
        self._first = held
        self._held = [*held]
        self._wanted: dict[Node, list[str]] = {}
        for position, node in joint.gradients.items():
            self._wanted.setdefault(node, []).append(names[position])

    def add_all(self, inputs: Sequence[Value], num_microbatches: int) -> None:
        each = len(inputs) // num_microbatches
        for number in range(num_microbatches):
            self._builder.suffix = f"@{number + 1}" if number else ""
            loss = self._add([*self._held, *inputs[number * each : (number + 1) * each]], num_microbatches > 1)
            self.loss = self._added("loss", self.loss, loss) if number else loss
        self._builder.suffix = ""

    def _add(self, outside: Sequence[Value], accumulates: bool) -> Value:
        """One pass; gives its loss."""
        values: Values = {node: {0: outside[position]} for position, node in self._joint.placeholders.items()}
        for node in read_graph(self._joint, self._builder, values, self.constants):
            for name in self._wanted.get(node, ()):
                self._gather(name, values[node][0], accumulates)
        for position, node in self._joint.mutations.items():
            self._held[position] = _of_this_pass(values[node][0])
        return _of_this_pass(values[self._joint.loss][0])

    def _gather(self, name: str, gradient: Value, accumulates: bool) -> None:
        if name in self.gradients:
            add = Call(
                name=f"{name}.accumulate",
                phase=Phase.BACKWARD,
                module=name.rpartition(".")[0],
                function=_aten.add_.Tensor,
                arguments=(self.gradients[name], gradient),
            )
            self._builder.add(add)
        else:
            self.gradients[name] = _of_this_pass(self._own(name, gradient)) if accumulates else gradient

    def _own(self, name: str, gradient: Value) -> Value:
        """A gradient that can be added to: a copy of one that is only a part of its storage, or another's too."""
        tensor = self._builder.tensors[gradient.tensor]
        is_whole = gradient.fake.numel() * gradient.fake.element_size() == tensor.size_bytes
        taken = any(gradient.tensor == other.tensor for other in self.gradients.values())
        if tensor.role is Role.GRADIENT and is_whole and not taken:
            return gradient
        module = name.rpartition(".")[0]
        clone = Call(
            name=f"{name}.own", phase=Phase.BACKWARD, module=module, function=_aten.clone.default, arguments=(gradient,)
        )
        return self._builder.add(clone)[0]

    def _added(self, name: str, one: Value, other: Value) -> Value:
        function = _aten.add.Tensor
        call = Call(name=name, phase=Phase.FORWARD, module="", function=function, arguments=(one, other))
        return self._builder.add(call)[0]

    def write_buffers(self) -> None:
        """The graph is functional: what the passes make of a buffer is copied into it when all else is done."""
        for position in self._joint.mutations:
            buffer = self._first[position]
            name = self._builder.tensors[buffer.tensor].name
            copy = Call(
                name=f"{name}.copy",
                phase=Phase.UPDATE,
                module=name.rpartition(".")[0],
                function=_aten.copy_.default,
                arguments=(buffer, self._held[position]),
            )
            self._builder.add(copy)


def _of_this_pass(value: Value) -> Value:
    """With a stand-in of its own: the next pass gives the same stand-in to what it makes in its place."""
    fake = value.fake
    own = torch.empty_strided(fake.shape, fake.stride(), dtype=fake.dtype, device=fake.device)
    return replace(value, fake=own)


def _check_mutations(builder: StepBuilder, joint: JointGraph) -> None:
    """Tensors are in the order in which the loss takes them, the first microbatch's inputs before all others."""
    for tensor in (builder.tensors[position] for position in joint.mutations):
        if tensor.role is not Role.BUFFER:
            raise CaptureError(f"it writes to its {tensor.role} {tensor.name!r} in place")


def _with_saved(builder: StepBuilder) -> tuple[Tensor, ...]:
    """What the forward pass is done with and the backward pass still reads is saved in between.

    The statistics that one microbatch leaves to the forward pass of the next are not.
    """
    last: dict[tuple[int, Phase], int] = {}
    for number, op in enumerate(builder.ops):
        last |= {(tensor, op.phase): number for tensor in (*op.inputs, *op.outputs)}
    return tuple(
        replace(
            tensor,
            saved=tensor.role is Role.ACTIVATION
            and last.get((index, Phase.FORWARD), -1) < last.get((index, Phase.BACKWARD), -1),
        )
        for index, tensor in enumerate(builder.tensors)
    )
