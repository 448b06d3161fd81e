"""Devices by name: where a step is put, and the lanes that it runs on there."""

import torch
from torch.utils._pytree import tree_map_only

from stepsim.errors import MachineError
from stepsim.executor.cuda_lanes import CudaLanes
from stepsim.executor.lanes import CpuLanes, Lanes
from stepsim.workloads.factory import Step


def find_device(name: str) -> torch.device:
    """The device called ``cpu``, ``cuda`` (the first) or ``cuda:N``. Raises `MachineError` for one that is not here."""
    kind, _, number = name.partition(":")
    place = int(number) if number.isdecimal() else 0
    there = torch.cuda.device_count() if kind == "cuda" else int(kind == "cpu")
    if name not in (kind, f"{kind}:{place}") or place >= there:
        raise MachineError(f"device {name!r} is not here; there is {', '.join(devices_here())}")
    return torch.device(kind, place) if kind == "cuda" else torch.device("cpu")


def devices_here() -> list[str]:
    """What a step can run on here."""
    return ["cpu", *(f"cuda:{number}" for number in range(torch.cuda.device_count()))]


def device_name(device: torch.device) -> str:
    """What traces and machines call ``device``: ``cpu0``, ``gpu0``."""
    return "cpu0" if device.type == "cpu" else f"gpu{device.index}"


def lanes_of(device: torch.device) -> Lanes:
    return CpuLanes() if device.type == "cpu" else CudaLanes(device)


def placed(step: Step, device: torch.device) -> Step:
    """``step`` with all its tensors on ``device``. Module and optimizer move as they are, and keep their identity."""
    step.module.to(device)
    for module in step.module.modules():
        attributes = vars(module)
        attributes |= {name: value.to(device) for name, value in attributes.items() if isinstance(value, torch.Tensor)}
    if step.optimizer is not None:
        step.optimizer.load_state_dict(step.optimizer.state_dict())  # moves the state to its parameters
    return Step(step.module, tree_map_only(torch.Tensor, lambda value: value.to(device), step.inputs), step.optimizer)
