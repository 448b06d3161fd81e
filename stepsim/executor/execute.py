"""Execute a plan on one device: its rows in issue order, on the tensors that its buffers stand for."""

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from stepsim.errors import PlanError
from stepsim.executor.bound import BoundProgram, bind
from stepsim.executor.devices import lanes_of
from stepsim.executor.instructions import interpret, lower
from stepsim.executor.lanes import Lanes
from stepsim.executor.meter import MemoryMeter
from stepsim.memory import MemoryProfile, lifetimes, memory_steps
from stepsim.memory.levels import levels_of_rows
from stepsim.plan import Plan
from stepsim.timeline import Timeline
from stepsim.workloads import Workload
from stepsim.workloads.factory import Step
from stepsim.workloads.step_function import Microbatches


@dataclass(frozen=True, eq=False, kw_only=True)
class Execution:
    """What one run of a plan gave.

    ``gradients``, and ``buffers`` and ``parameters`` after the step, are by name in the module. ``memory`` is what was
    alive on the computing device at each row, counted by PyTorch's storages and not by the plan; ``None`` in a run that
    was not metered. Loss and gradients, which the run hands out, outlive their release. Metering slows a run down, so
    time and memory are measured in runs of their own.
    """

    timeline: Timeline
    loss: torch.Tensor
    gradients: Mapping[str, torch.Tensor]
    buffers: Mapping[str, torch.Tensor]
    parameters: Mapping[str, torch.Tensor]
    memory: MemoryProfile | None


def execute(
    plan: Plan,
    module: torch.nn.Module,
    inputs: Sequence[Any],
    optimizer: torch.optim.Optimizer | None = None,
    *,
    metered: bool = False,
) -> Execution:
    """Run one step of ``module`` as ``plan`` says: parameters, buffers and optimizer state are updated in place.

    For more than one step, make an `Executor` once and call its ``run``. Raises `CaptureError` for a module that cannot
    be captured, `PlanError` for a plan of another graph or with rows that one device cannot run.
    """
    batch = int(plan.work.batch.max(initial=0))
    given = inputs if isinstance(inputs, Microbatches) else tuple(inputs)
    bound = bind(Step(module, given, optimizer), name=type(module).__name__, batch=batch)
    return Executor(plan, bound).run(metered=metered)


class Executor:
    """A plan bound to the module that it trains, ready to run again and again on the device that the module is on."""

    def __init__(self, plan: Plan, bound: BoundProgram, lanes: Lanes | None = None) -> None:
        self.plan = plan
        self.bound = bound
        self.lanes = lanes_of(bound.device) if lanes is None else lanes
        workload, tensors = bound.workload, plan.buffers.tensor.tolist()
        wanted = {workload.loss, *workload.gradients.values()}
        self._results = {tensors.index(tensor): tensor for tensor in wanted & set(tensors)}
        self.device, self.instructions = lower(plan, bound.program, self.lanes, kept=self._results)
        for tensor in sorted(wanted - set(tensors)):
            raise PlanError(f"the plan has no buffer of {workload.tensors[tensor].name!r}, which the step is run for")
        self._given = _given(plan, workload, self.device)

    def run(self, inputs: Sequence[Any] | None = None, *, metered: bool = False) -> Execution:
        """One step, on ``inputs`` if given, else on those of the capture."""
        values = self.bound.values(inputs)
        live: list[torch.Tensor | None] = [None] * len(self.plan.buffers)
        for buffer, tensor in self._given.items():
            live[buffer] = values[tensor]
        given = [values[tensor] for tensor in self._given.values()]
        meter = MemoryMeter(given) if metered else None
        levels = [] if meter is None else [meter.live_bytes]
        watch = None if meter is None else lambda: levels.append(meter.live_bytes)
        with torch.no_grad(), meter or nullcontext():
            interpret(self.instructions, live, self.lanes, watch)
        starts_s, ends_s = (np.array(times_s) for times_s in self.lanes.finish())
        memory = None if meter is None else self._profile(levels)
        timeline = with_memory(Timeline.of(self.plan, starts_s, ends_s, "measured"), memory)
        return self._execution(timeline, live, memory)

    def _profile(self, levels: Sequence[int]) -> MemoryProfile:
        """The measured levels, first and two for each row, as a profile. Only the computing device is metered."""
        during, after = (np.array(levels[first::2], np.int64) for first in (1, 2))
        measured = levels_of_rows(len(self.plan.devices), self.device, levels[0], during, after)
        return MemoryProfile.exact(self.plan, measured)

    def _execution(
        self, timeline: Timeline, live: Sequence[torch.Tensor | None], memory: MemoryProfile | None
    ) -> Execution:
        program, workload = self.bound.program, self.bound.workload
        found = ((tensor, live[buffer]) for buffer, tensor in self._results.items())
        results = {tensor: value for tensor, value in found if value is not None}
        named = {
            program.parameters[parameter]: program.gradient_views[parameter](results[gradient])
            for parameter, gradient in workload.gradients.items()
        }
        module = self.bound.step.module
        return Execution(
            timeline=timeline,
            loss=program.loss_view(results[workload.loss]),
            gradients=named,
            buffers={name: buffer.clone() for name, buffer in module.named_buffers()},
            parameters={name: parameter.detach().clone() for name, parameter in module.named_parameters()},
            memory=memory,
        )


def _given(plan: Plan, workload: Workload, device: int) -> dict[int, int]:
    """Buffers on ``device`` that no row allocates, and their tensors. Raises `PlanError` for what an op has to make."""
    first, _ = lifetimes(plan)
    there = np.flatnonzero((first < 0) & (plan.buffers.device == device)).tolist()
    found = {buffer: int(plan.buffers.tensor[buffer]) for buffer in there}
    for buffer, tensor in found.items():
        if tensor in workload.producer or not 0 <= tensor < len(workload.tensors):
            name = plan.buffers.name[buffer]
            raise PlanError(f"buffer {name!r} is there from the start, and its value comes from nowhere")
    return found


def with_memory(timeline: Timeline, memory: MemoryProfile | None) -> Timeline:
    """``timeline`` with the memory curve of ``memory``, which another run of the same plan may have measured."""
    if memory is None:
        return timeline
    return replace(timeline, memory=memory_steps(memory, timeline.spans.start_s, timeline.spans.end_s))
