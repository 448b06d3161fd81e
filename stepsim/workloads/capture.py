"""From a torch module that returns its loss to a workload, and to the program that carries it out.

    factory(batch) -> module, inputs, optimizer
                        | capture           fake tensors: no memory, no GPU, nothing computed
                        v
    Program: the Workload, and for each of its ops the torch call

The same graph comes from real modules (`capture_program`), which are left as they were. Run op by op it equals eager
PyTorch bit for bit, but for what torch itself calls differently while it traces: bilinear resizing and GRU are taken
apart, and under autocast a weight that is used twice is cast twice. ``torch.utils.checkpoint`` dissolves: what to
recompute is for a plan to say.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException
from torch.optim import Optimizer

from stepsim.errors import CaptureError, StepsimError
from stepsim.workloads.factory import Factory, build_fake_step, one_line
from stepsim.workloads.graph_reader import Values, read_graph
from stepsim.workloads.joint_graph import JointGraph, trace_joint
from stepsim.workloads.optimizers import add_updates, check_optimizer
from stepsim.workloads.program import Program
from stepsim.workloads.step_builder import Call, StepBuilder, Value
from stepsim.workloads.step_function import StepFunction
from stepsim.workloads.workload import Phase, Role, Tensor, Workload


def capture(factory: Factory, batch: int, name: str) -> Program:
    """The program of one step, from fake tensors: takes no memory for them and computes nothing.

    Raises `CaptureError`.
    """
    step = build_fake_step(factory, batch)
    return capture_program(step.module, step.inputs, step.optimizer, name=name, batch=batch)


def capture_program(
    module: torch.nn.Module, inputs: Sequence[Any], optimizer: Optimizer | None = None, *, name: str, batch: int
) -> Program:
    """The program of one step of ``module(*inputs)``, which is the loss. Real tensors stay as they are.

    Shapes, the path through the code and the options of the optimizer are frozen in. Raises `CaptureError`.
    """
    if optimizer is not None:
        check_optimizer(optimizer)
    step = StepFunction(module, inputs)
    with _explained(name):
        mode, fakes = step.fake_tensors()
        joint = trace_joint(step.loss, fakes, step.module, mode)
        with mode, torch.no_grad():
            return _assemble(step, joint, fakes, optimizer, name, batch)


@contextmanager
def _explained(name: str) -> Iterator[None]:
    """Whatever stops a capture, in one line."""
    try:
        yield
    except StepsimError as error:
        raise CaptureError(f"{name} cannot be captured: {error}") from error
    except (DataDependentOutputException, DynamicOutputShapeException) as error:
        problem = f"its control flow or shapes depend on values ({one_line(error)})"
        raise CaptureError(f"{name} cannot be captured: {problem}") from error
    except Exception as error:
        raise CaptureError(f"{name} cannot be captured: {one_line(error)}") from error


def _assemble(
    step: StepFunction, joint: JointGraph, fakes: list[torch.Tensor], optimizer: Optimizer | None, name: str, batch: int
) -> Program:
    builder, rest = StepBuilder(), iter(fakes)
    parameters = {key: builder.tensor(key, Role.PARAMETER, next(rest)) for key in step.parameters}
    buffers = {key: builder.tensor(key, Role.BUFFER, next(rest)) for key in step.buffers}
    inputs = {place: builder.tensor(f"input.{place}", Role.INPUT, next(rest)) for place in step.inputs}
    outside = [*parameters.values(), *buffers.values(), *inputs.values()]
    _check_mutations(builder, [outside[position] for position in joint.mutations])

    values: Values = {node: {0: outside[position]} for position, node in joint.placeholders.items()}
    constants = read_graph(joint, builder, values)
    loss = values[joint.loss][0]
    names = list(parameters)
    gradients = {names[position]: values[node][0] for position, node in joint.gradients.items()}
    for position, node in joint.mutations.items():
        builder.add(_buffer_update(builder, outside[position], values[node][0]))
    states: dict[int, tuple[str, str]] = {}
    if optimizer is not None:
        known = {tensor: key for key, tensor in step.parameters.items()}
        states = add_updates(builder, optimizer, known, parameters, gradients)

    return Program(
        workload=Workload(
            name=name,
            batch=batch,
            tensors=_with_saved(builder),
            ops=tuple(builder.ops),
            loss=loss.tensor,
            gradients={parameters[key].tensor: gradient.tensor for key, gradient in gradients.items()},
        ),
        ops=tuple(builder.programs),
        parameters={value.tensor: key for key, value in parameters.items()},
        buffers={value.tensor: key for key, value in buffers.items()},
        inputs={value.tensor: place for place, value in inputs.items()},
        states=states,
        constants=constants,
        loss_view=loss.view,
        gradient_views={parameters[key].tensor: gradient.view for key, gradient in gradients.items()},
    )


def _check_mutations(builder: StepBuilder, written: list[Value]) -> None:
    for tensor in (builder.tensors[value.tensor] for value in written):
        if tensor.role is not Role.BUFFER:
            raise CaptureError(f"it writes to its {tensor.role} {tensor.name!r} in place")


def _buffer_update(builder: StepBuilder, buffer: Value, new: Value) -> Call:
    """The graph is functional: what the forward pass makes of a buffer is copied into it when all else is done."""
    name = builder.tensors[buffer.tensor].name
    return Call(
        name=f"{name}.copy",
        phase=Phase.UPDATE,
        module=name.rpartition(".")[0],
        function=torch.ops.aten.copy_.default,
        arguments=(buffer, new),
    )


def _with_saved(builder: StepBuilder) -> tuple[Tensor, ...]:
    """What an op of the forward pass gives and an op of the backward pass reads is saved in between."""
    read_late = {tensor for op in builder.ops if op.phase is Phase.BACKWARD for tensor in op.inputs}
    return tuple(
        replace(tensor, saved=tensor.role is Role.ACTIVATION and index in read_late)
        for index, tensor in enumerate(builder.tensors)
    )
