"""The update phase of a step: which optimizers there are, and the update of every parameter."""

from collections.abc import Mapping

import torch
from torch.optim import Optimizer

from stepsim.errors import CaptureError
from stepsim.workloads.step_builder import StepBuilder, Value
from stepsim.workloads.updates import UPDATES, Update

_UNSUPPORTED = ("dampening", "amsgrad", "maximize", "foreach", "capturable", "differentiable", "fused")
"""Options that make other calls than those written in `stepsim.workloads.updates`."""


def check_optimizer(optimizer: object) -> None:
    """Raises `CaptureError` for anything but SGD, Adam and AdamW on the single-tensor path with plain numbers."""
    name = type(optimizer).__name__
    if not isinstance(optimizer, Optimizer) or type(optimizer) not in UPDATES:
        known = ", ".join(kind.__name__ for kind in UPDATES)
        raise CaptureError(f"optimizer: must be None or one of torch.optim's {known}, got {name}")
    for group in optimizer.param_groups:
        for option in _UNSUPPORTED:
            if group.get(option):
                raise CaptureError(f"optimizer: {name} with {option} is not supported, got {option}={group[option]}")
        for option in ("lr", "weight_decay", "betas"):
            value = group.get(option)
            if any(isinstance(number, torch.Tensor) for number in (value if isinstance(value, tuple) else [value])):
                raise CaptureError(f"optimizer: {option} must be a number, got a tensor")


def add_updates(
    builder: StepBuilder,
    optimizer: Optimizer,
    names: Mapping[torch.Tensor, str],
    parameters: Mapping[str, Value],
    gradients: Mapping[str, Value],
) -> dict[int, tuple[str, str]]:
    """Add the update of every parameter that has a gradient, in the order of the optimizer's groups.

    Gives the tensors of the optimizer's state: index to parameter name and key.
    """
    states: dict[int, tuple[str, str]] = {}
    add_update = UPDATES[type(optimizer)]
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            name = names.get(parameter)
            if name is None:
                raise CaptureError(
                    f"optimizer: holds a parameter of shape {tuple(parameter.shape)} that the module does not have"
                )
            if name in gradients:
                update = Update(builder, group, name, parameters[name])
                add_update(update, gradients[name])
                states |= update.states
    return states
