"""Measurements of real machines: the Trace, and readers of the formats that profilers write."""

from stepsim.traces.explained import explained, explained_by_step
from stepsim.traces.kineto import read_kineto
from stepsim.traces.replay import Rebuilt, RecordedStep, StepError, machine_of, rebuild, step_errors
from stepsim.traces.trace import Trace

__all__ = [
    "Rebuilt",
    "RecordedStep",
    "StepError",
    "Trace",
    "explained",
    "explained_by_step",
    "machine_of",
    "read_kineto",
    "rebuild",
    "step_errors",
]
