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
from typing import Any

import torch
from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException
from torch.optim import Optimizer

from stepsim.errors import CaptureError, StepsimError
from stepsim.workloads.assembly import assemble
from stepsim.workloads.factory import Factory, build_fake_step, one_line
from stepsim.workloads.joint_graph import trace_joint
from stepsim.workloads.optimizers import check_optimizer
from stepsim.workloads.program import Program
from stepsim.workloads.step_function import StepFunction
from stepsim.workloads.two_captures import at_any_batch
from stepsim.workloads.workload import Workload


def capture(factory: Factory, batch: int, name: str) -> Program:
    """The program of one step, from fake tensors: takes no memory for them and computes nothing.

    Raises `CaptureError`.
    """
    step = build_fake_step(factory, batch)
    return capture_program(step.module, step.inputs, step.optimizer, name=name, batch=batch)


def capture_workload(factory: Factory, batch: int, name: str) -> Workload:
    """The step at ``batch`` as a workload that can be had `at_batch` of any size: two captures of fake tensors.

    Raises `CaptureError`, also for a graph that depends on the batch and for numbers that do not grow along a line.
    """
    workload = capture(factory, batch, name).workload
    with _explained(name):
        return at_any_batch(workload, lambda other: capture(factory, other, name).workload)


def capture_program(
    module: torch.nn.Module, inputs: Sequence[Any], optimizer: Optimizer | None = None, *, name: str, batch: int
) -> Program:
    """The program of one step of ``module(*inputs)``, which is the loss. Real tensors stay as they are.

    Shapes, the path through the code and the options of the optimizer are frozen in. Raises `CaptureError`.
    """
    if optimizer is not None:
        check_optimizer(optimizer)
    with _explained(name):
        step = StepFunction(module, inputs)
        mode, fakes = step.fake_tensors()
        joint = trace_joint(step.loss, fakes[: step.num_traced], step.module, mode)
        with mode, torch.no_grad():
            return assemble(step, joint, fakes, optimizer, name=name, batch=batch)


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
