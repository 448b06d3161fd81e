"""Measurements of real machines: the Trace, and readers of the formats that profilers write."""

from stepsim.traces.bandwidth_logs import read_bandwidth_log
from stepsim.traces.detect import read_any
from stepsim.traces.explained import explained, explained_by_step
from stepsim.traces.kineto import read_kineto
from stepsim.traces.nccl_tests import read_nccl_tests
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
    "read_any",
    "read_bandwidth_log",
    "read_kineto",
    "read_nccl_tests",
    "rebuild",
    "step_errors",
]
