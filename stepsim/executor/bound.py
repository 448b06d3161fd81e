"""BoundProgram: a captured program together with the real tensors that it runs on."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from stepsim.errors import WorkloadError
from stepsim.executor.devices import find_device, placed
from stepsim.workloads import Workload
from stepsim.workloads.capture import capture_program
from stepsim.workloads.factory import Factory, Step, build_step
from stepsim.workloads.program import Program
from stepsim.workloads.step_function import StepFunction
from stepsim.workloads.updates import initial_state


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class BoundProgram:
    """One training step of ``step.module``: its program, and where the values come from."""

    program: Program
    step: Step

    @classmethod
    def of(cls, factory: Factory, batch: int, name: str, device: str = "cpu") -> "BoundProgram":
        """Build the module for real, put it on ``device`` and capture its step.

        Raises `MachineError` for a device that is not here, before anything is built, and `CaptureError`.
        """
        there = find_device(device)
        return bind(placed(build_step(factory, batch), there), name=name, batch=batch)

    @property
    def device(self) -> torch.device:
        """Where the parameters are."""
        return next(self.step.module.parameters()).device

    @property
    def workload(self) -> Workload:
        return self.program.workload

    def values(self, inputs: Sequence[Any] | None = None) -> dict[int, torch.Tensor]:
        """The real tensor of each tensor that comes from outside; ``inputs`` replace those of the capture.

        Optimizer states that do not exist yet are made, as zeros, and belong to the optimizer from then on. Inputs are
        copied: a plan has a buffer for each, and a slice, or one tensor given twice, has no storage of its own. Raises
        `WorkloadError` for inputs that differ from those of the capture in number, shape or dtype.
        """
        program, real = self.program, StepFunction(self.step.module, self.step.inputs)
        given = real.inputs if inputs is None else StepFunction(self.step.module, inputs).inputs
        if given.keys() != real.inputs.keys():
            raise WorkloadError(f"inputs: the step takes {len(real.inputs)} tensors, got {len(given)}")
        values = {tensor: real.parameters[name].detach() for tensor, name in program.parameters.items()}
        values |= {tensor: real.buffers[name] for tensor, name in program.buffers.items()}
        for tensor, position in program.inputs.items():
            values[tensor] = _own(given[position], real.inputs[position], position)
        values |= program.constants
        values |= {t: self._state(real.parameters[name], key) for t, (name, key) in program.states.items()}
        return values

    def _state(self, parameter: torch.Tensor, key: str) -> torch.Tensor:
        assert self.step.optimizer is not None, "a program with optimizer states has an optimizer"
        state = self.step.optimizer.state[parameter]
        if state.get(key) is None:
            state[key] = initial_state(parameter, key)
        found = state[key]
        assert isinstance(found, torch.Tensor)
        return found


def _own(value: torch.Tensor, like: torch.Tensor, position: int) -> torch.Tensor:
    """``value`` in memory of its own, laid out as ``like``."""
    if (value.shape, value.dtype) != (like.shape, like.dtype):
        wanted, found = (f"{tuple(one.shape)} of {one.dtype}" for one in (like, value))
        raise WorkloadError(f"input {position}: the step takes {wanted}, got {found}")
    if value.stride() != like.stride():
        return torch.empty_strided(like.shape, like.stride(), dtype=like.dtype, device=like.device).copy_(value)
    value = value.detach().to(like.device)
    return value.as_strided((_extent(value),), (1,)).clone().as_strided(value.shape, value.stride())


def _extent(value: torch.Tensor) -> int:
    """Elements from the first to the last."""
    if value.numel() == 0:
        return 0
    return 1 + sum((size - 1) * stride for size, stride in zip(value.shape, value.stride(), strict=True))


def bind(step: Step, *, name: str, batch: int) -> BoundProgram:
    """Capture ``step`` as it is. Raises `CaptureError`."""
    program = capture_program(step.module, step.inputs, step.optimizer, name=name, batch=batch)
    return BoundProgram(program=program, step=step)
