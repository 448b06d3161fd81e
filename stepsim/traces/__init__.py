"""Measurements of real machines: the Trace, and readers of the formats that profilers write."""

from stepsim.traces.bandwidth_logs import read_bandwidth_log
from stepsim.traces.chakra import read_chakra
from stepsim.traces.detect import read_any
from stepsim.traces.execution_pair import paired
from stepsim.traces.execution_trace import ExecutionTrace, read_execution_trace
from stepsim.traces.explained import explained, explained_by_step
from stepsim.traces.kineto import read_kineto
from stepsim.traces.nccl_tests import read_nccl_tests
from stepsim.traces.nsys import read_nsys
from stepsim.traces.replay import Rebuilt, RecordedStep, StepError, machine_of, rebuild, step_errors
from stepsim.traces.trace import Trace

__all__ = [
    "ExecutionTrace",
    "Rebuilt",
    "RecordedStep",
    "StepError",
    "Trace",
    "explained",
    "explained_by_step",
    "machine_of",
    "paired",
    "read_any",
    "read_bandwidth_log",
    "read_chakra",
    "read_execution_trace",
    "read_kineto",
    "read_nccl_tests",
    "read_nsys",
    "rebuild",
    "step_errors",
]
