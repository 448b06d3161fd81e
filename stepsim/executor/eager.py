"""Plain PyTorch: the reference that every plan is held against."""

import copy
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from stepsim.executor.bound import BoundProgram
from stepsim.executor.execute import Execution
from stepsim.workloads.step_function import microbatches_of


@dataclass(frozen=True, eq=False, kw_only=True)
class EagerResult:
    """Loss, gradients, and buffers and parameters after one eager step, by name."""

    loss: torch.Tensor
    gradients: Mapping[str, torch.Tensor]
    buffers: Mapping[str, torch.Tensor]
    parameters: Mapping[str, torch.Tensor]


def eager_step(bound: BoundProgram) -> EagerResult:
    """Run the step in plain PyTorch, on copies: module, optimizer and random generator stay as they are.

    So a run of a plan that follows draws the same random numbers. The optimizer goes parameter by parameter, as a plan
    does; on a GPU it would take several at once unless told.
    """
    module, optimizer = copy.deepcopy((bound.step.module, bound.step.optimizer))
    module.zero_grad(set_to_none=True)
    with torch.random.fork_rng(devices=[] if bound.device.type == "cpu" else [bound.device]):
        loss = sum(_backward(module, inputs) for inputs in microbatches_of(bound.step.inputs))
    gradients = {name: p.grad.clone() for name, p in module.named_parameters() if p.grad is not None}
    if optimizer is not None:
        for group in optimizer.param_groups:
            group["foreach"] = False
        optimizer.step()
    return EagerResult(
        loss=torch.as_tensor(loss),
        gradients=gradients,
        buffers=dict(module.named_buffers()),
        parameters={name: parameter.detach() for name, parameter in module.named_parameters()},
    )


def _backward(module: torch.nn.Module, inputs: Sequence[Any]) -> torch.Tensor:
    """The loss of one microbatch, whose gradients are added to those that are there."""
    loss = module(*inputs)
    loss = loss[0] if isinstance(loss, tuple | list) else loss
    loss.backward()
    detached: torch.Tensor = loss.detach()
    return detached


def max_abs_difference(execution: Execution | EagerResult, reference: EagerResult) -> float:
    """The largest absolute difference over loss, gradients, buffers and parameters; 0 means equal.

    Values missing on one side count as infinitely different.
    """
    pairs = [(execution.loss, reference.loss)]
    for ours, theirs in (
        (execution.gradients, reference.gradients),
        (execution.buffers, reference.buffers),
        (execution.parameters, reference.parameters),
    ):
        if ours.keys() != theirs.keys():
            return math.inf
        pairs += [(ours[name], theirs[name]) for name in ours]
    return max(_difference(one, other) for one, other in pairs)


def _difference(one: torch.Tensor, other: torch.Tensor) -> float:
    if one.shape != other.shape or one.dtype != other.dtype:
        return math.inf
    if torch.allclose(one, other, rtol=0, atol=0, equal_nan=True):
        return 0.0
    wide = torch.complex128 if one.is_complex() else torch.float64
    difference = float((one.to(wide) - other.to(wide)).abs().max())
    return math.inf if math.isnan(difference) else difference
