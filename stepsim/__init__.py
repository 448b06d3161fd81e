"""stepsim: how long will one training step take, and how much memory, run this way on that machine?

The public names are listed in `__all__`. Each is imported from its module when it is first asked for, so that
``import stepsim`` loads neither torch nor any other heavy package.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from stepsim.errors import (
    CalibrationError,
    CaptureError,
    DeadlockError,
    FileError,
    InfeasibleError,
    MachineError,
    NotFittedError,
    OutOfMemoryError,
    PlanError,
    StepsimError,
    WorkloadError,
)

if TYPE_CHECKING:
    from stepsim.costmodels import Calibration, DataSheetCosts, GivenCosts, RecordedCosts
    from stepsim.executor import BoundProgram, Execution, Executor, execute, record
    from stepsim.machines import Device, DeviceKind, Link, Machine, Route, cluster, load_machine
    from stepsim.memory import MemoryProfile, check_memory, memory_profile
    from stepsim.plan import Costs, Plan, Task, TaskKind
    from stepsim.plan.builder import PlanBuilder
    from stepsim.report import Report
    from stepsim.simulator import simulate, step_times
    from stepsim.strategies import Proposal, Strategy
    from stepsim.strategies.parallel import Layout, lay_out
    from stepsim.timeline import Span, Timeline
    from stepsim.traces.trace import Trace
    from stepsim.validation import Comparison, compare
    from stepsim.workloads import Op, Phase, Role, Tensor, Workload
    from stepsim.workloads.capture import capture
    from stepsim.workloads.program import Program
    from stepsim.workloads.shipped import load_workload

__version__ = "0.1.0"

__all__ = [
    "BoundProgram",
    "Calibration",
    "CalibrationError",
    "CaptureError",
    "Comparison",
    "Costs",
    "DataSheetCosts",
    "DeadlockError",
    "Device",
    "DeviceKind",
    "Execution",
    "Executor",
    "FileError",
    "GivenCosts",
    "InfeasibleError",
    "Layout",
    "Link",
    "Machine",
    "MachineError",
    "MemoryProfile",
    "NotFittedError",
    "Op",
    "OutOfMemoryError",
    "Phase",
    "Plan",
    "PlanBuilder",
    "PlanError",
    "Program",
    "Proposal",
    "RecordedCosts",
    "Report",
    "Role",
    "Route",
    "Span",
    "StepsimError",
    "Strategy",
    "Task",
    "TaskKind",
    "Tensor",
    "Timeline",
    "Trace",
    "Workload",
    "WorkloadError",
    "capture",
    "check_memory",
    "cluster",
    "compare",
    "execute",
    "lay_out",
    "load_machine",
    "load_workload",
    "memory_profile",
    "record",
    "simulate",
    "step_times",
]

_HOME = {
    "BoundProgram": "executor",
    "Calibration": "costmodels",
    "Comparison": "validation",
    "Costs": "plan",
    "DataSheetCosts": "costmodels",
    "Device": "machines",
    "DeviceKind": "machines",
    "Execution": "executor",
    "Executor": "executor",
    "GivenCosts": "costmodels",
    "Layout": "strategies.parallel",
    "Link": "machines",
    "Machine": "machines",
    "MemoryProfile": "memory",
    "Op": "workloads",
    "Phase": "workloads",
    "Plan": "plan",
    "PlanBuilder": "plan.builder",
    "Program": "workloads.program",
    "Proposal": "strategies",
    "RecordedCosts": "costmodels",
    "Report": "report",
    "Role": "workloads",
    "Route": "machines",
    "Span": "timeline",
    "Strategy": "strategies",
    "Task": "plan",
    "TaskKind": "plan",
    "Tensor": "workloads",
    "Timeline": "timeline",
    "Trace": "traces.trace",
    "Workload": "workloads",
    "capture": "workloads.capture",
    "check_memory": "memory",
    "cluster": "machines",
    "compare": "validation",
    "execute": "executor",
    "lay_out": "strategies.parallel",
    "load_machine": "machines",
    "load_workload": "workloads.shipped",
    "memory_profile": "memory",
    "record": "executor",
    "simulate": "simulator",
    "step_times": "simulator",
}
"""The module of each name that is imported on demand."""


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'stepsim' has no attribute {name!r}")
    value = getattr(import_module(f"stepsim.{_HOME[name]}"), name)
    globals()[name] = value  # the next access does not come here
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
