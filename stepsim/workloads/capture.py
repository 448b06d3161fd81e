"""From a torch module that returns its loss to a workload, and to the program that carries it out.

    factory(batch) -> module, inputs, optimizer
                        | capture           fake tensors: no memory, no GPU, nothing computed
                        v
    Program: the Workload, and for each of its ops the torch call

The same graph comes from real modules (`capture_program`), which are left as they were.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException, FakeTensorMode
from torch.optim import Optimizer

from stepsim.errors import CaptureError, StepsimError
from stepsim.workloads.factory import Factory, build_step, one_line
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
    with FakeTensorMode(allow_non_fake_inputs=True):
        step = build_step(factory, batch)
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
    mode, fakes = step.fake_tensors()
    joint = _trace(step, mode, fakes, name)
    with mode, torch.no_grad():
        return _assemble(step, joint, fakes, optimizer, name, batch)


def _trace(step: StepFunction, mode: FakeTensorMode, fakes: list[torch.Tensor], name: str) -> JointGraph:
    try:
        return trace_joint(step.loss, fakes, step.module, mode)
    except StepsimError as error:
        raise CaptureError(f"{name} cannot be captured: {error}") from error
    except (DataDependentOutputException, DynamicOutputShapeException) as error:
        raise CaptureError(
            f"{name} cannot be captured: its control flow or shapes depend on values ({one_line(error)})"
        ) from error
    except Exception as error:
        raise CaptureError(f"{name} cannot be captured: {one_line(error)}") from error


def _assemble(
    step: StepFunction, joint: JointGraph, fakes: list[torch.Tensor], optimizer: Optimizer | None, name: str, batch: int
) -> Program:
    builder, rest = StepBuilder(), iter(fakes)
    parameters = {key: builder.tensor(key, Role.PARAMETER, next(rest)) for key in step.parameters}
    buffers = {key: builder.tensor(key, Role.BUFFER, next(rest)) for key in step.buffers}
    inputs = {place: builder.tensor(f"input.{place}", Role.INPUT, next(rest)) for place in step.inputs}
    flat = [*parameters.values(), *buffers.values(), *inputs.values()]

    values: Values = {node: {0: flat[position]} for position, node in joint.placeholders.items()}
    constants = read_graph(joint, builder, values)
    loss = values[joint.loss][0]
    names = list(parameters)
    gradients = {names[position]: values[node][0] for position, node in joint.gradients.items()}

    for position, node in joint.mutations.items():
        _add_buffer_update(builder, flat[position], values[node][0])
    states: dict[int, tuple[str, str]] = {}
    if optimizer is not None:
        known = {tensor: key for key, tensor in step.parameters.items()}
        states = add_updates(builder, optimizer, known, parameters, gradients)

    workload = Workload(
        name=name,
        batch=batch,
        tensors=_with_saved(builder),
        ops=tuple(builder.ops),
        loss=loss.tensor,
        gradients={parameters[key].tensor: gradient.tensor for key, gradient in gradients.items()},
    )
    return Program(
        workload=workload,
        ops=tuple(builder.programs),
        parameters={value.tensor: key for key, value in parameters.items()},
        buffers={value.tensor: key for key, value in buffers.items()},
        inputs={value.tensor: place for place, value in inputs.items()},
        states=states,
        constants=constants,
        loss_view=loss.view,
        gradient_views={parameters[key].tensor: gradient.view for key, gradient in gradients.items()},
    )


def _add_buffer_update(builder: StepBuilder, buffer: Value, new: Value) -> None:
    """The graph is functional: what the forward pass makes of a buffer is copied into it when all else is done."""
    tensor = builder.tensors[buffer.tensor]
    if tensor.role is not Role.BUFFER:
        raise CaptureError(f"the module writes to its {tensor.role} {tensor.name!r} in place")
    builder.add(
        Call(
            name=f"{tensor.name}.copy",
            phase=Phase.UPDATE,
            module=tensor.name.rpartition(".")[0],
            function=torch.ops.aten.copy_.default,
            arguments=(buffer, new),
        )
    )


def _with_saved(builder: StepBuilder) -> tuple[Tensor, ...]:
    read_late = {tensor for op in builder.ops if op.phase is Phase.BACKWARD for tensor in op.inputs}
    return tuple(
        replace(tensor, saved=tensor.role is Role.ACTIVATION and index in read_late)
        for index, tensor in enumerate(builder.tensors)
    )
