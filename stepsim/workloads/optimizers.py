"""The update phase of a step: the calls that torch.optim makes, one op each."""

from collections.abc import Mapping
from functools import partial
from typing import Any

import torch
from torch.optim import SGD, Optimizer

from stepsim.errors import CaptureError
from stepsim.workloads.step_builder import Call, StepBuilder, Value
from stepsim.workloads.workload import Phase, Role

_aten = torch.ops.aten

_UNSUPPORTED = ("dampening", "maximize", "foreach", "differentiable", "fused")
"""Options of SGD that make other calls than those written here."""


def check_optimizer(optimizer: object) -> None:
    """Raises `CaptureError` for anything but SGD on the single-tensor path with plain numbers."""
    if type(optimizer) is not SGD:
        raise CaptureError(f"optimizer: must be torch.optim.SGD or None, got {type(optimizer).__name__}")
    for group in optimizer.param_groups:
        for option in _UNSUPPORTED:
            if group[option]:
                raise CaptureError(f"optimizer: SGD with {option} is not supported, got {option}={group[option]}")
        for option in ("lr", "weight_decay"):
            if isinstance(group[option], torch.Tensor):
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
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            name = names.get(parameter)
            if name is None:
                raise CaptureError(
                    f"optimizer: holds a parameter of shape {tuple(parameter.shape)} that the module does not have"
                )
            if name in gradients:
                states |= _add_update(builder, group, name, parameters[name], gradients[name])
    return states


def _add_update(
    builder: StepBuilder, group: Mapping[str, Any], name: str, weight: Value, gradient: Value
) -> dict[int, tuple[str, str]]:
    """One parameter, call by call as ``_single_tensor_sgd`` of torch/optim/sgd.py.

    There the first step clones the gradient into the momentum buffer. Here the buffer starts at zero, which comes to
    the same: 0 * momentum + gradient is the gradient.
    """
    call = partial(Call, phase=Phase.UPDATE, module=name.rpartition(".")[0])
    add, add_, mul_ = _aten.add.Tensor, _aten.add_.Tensor, _aten.mul_.Tensor
    momentum, decay, states = group["momentum"], group["weight_decay"], {}
    if decay != 0:
        decayed = call(name=f"{name}.decay", function=add, arguments=(gradient, weight), keywords={"alpha": decay})
        gradient = builder.add(decayed)[0]
    if momentum != 0:
        buffer = builder.tensor(f"{name}.momentum_buffer", Role.OPTIMIZER_STATE, torch.empty_like(weight.fake))
        states[buffer.tensor] = (name, "momentum_buffer")
        builder.add(call(name=f"{name}.fade", function=mul_, arguments=(buffer, momentum)))
        builder.add(call(name=f"{name}.gather", function=add_, arguments=(buffer, gradient), keywords={"alpha": 1}))
        if group["nesterov"]:
            ahead = call(name=f"{name}.ahead", function=add, arguments=(gradient, buffer), keywords={"alpha": momentum})
            gradient = builder.add(ahead)[0]
        else:
            gradient = buffer
    builder.add(
        call(name=f"{name}.step", function=add_, arguments=(weight, gradient), keywords={"alpha": -group["lr"]})
    )
    return states
