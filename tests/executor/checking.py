"""One step of a plan against eager PyTorch, bit for bit, and against the memory pass, byte for byte."""

import numpy as np
import torch
from small_plans import CPU

from stepsim.executor import BoundProgram, Execution, Executor
from stepsim.executor.eager import EagerResult, eager_step
from stepsim.memory import memory_profile
from stepsim.plan import Plan


def unequal(execution: Execution, reference: EagerResult) -> list[str]:
    """What differs in any bit."""
    pairs = {
        "loss": ({"": execution.loss}, {"": reference.loss}),
        "gradients": (execution.gradients, reference.gradients),
        "buffers": (execution.buffers, reference.buffers),
        "parameters": (execution.parameters, reference.parameters),
    }
    assert all(ours.keys() == theirs.keys() for ours, theirs in pairs.values())
    return [
        f"{kind} {name}"
        for kind, (ours, theirs) in pairs.items()
        for name in ours
        if ours[name].dtype != theirs[name].dtype or not torch.equal(ours[name], theirs[name])
    ]


def check(plan: Plan, bound: BoundProgram) -> None:
    """One step of ``plan`` against eager PyTorch and against the memory pass, row by row."""
    reference = eager_step(bound)

    execution = Executor(plan, bound).run(metered=True)

    predicted, measured, cpu = memory_profile(plan), execution.memory, plan.devices.name.index(CPU)
    handed_out = sum(bound.workload.tensors[tensor].size_bytes for tensor in results_of(bound))
    assert unequal(execution, reference) == []
    assert measured.peak_bytes(CPU) == predicted.peak_bytes(CPU)
    assert measured.resident.initial[cpu] == predicted.resident.initial[cpu]
    (during, after), (measured_during, measured_after) = predicted.by_row(CPU), measured.by_row(CPU)
    np.testing.assert_array_equal(measured_during, during)
    np.testing.assert_array_equal(measured_after[:-1], after[:-1])
    assert measured_after[-1] == after[-1] + handed_out


def results_of(bound: BoundProgram) -> set[int]:
    return {bound.workload.loss, *bound.workload.gradients.values()}
