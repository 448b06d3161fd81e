"""Run a plan on real hardware with PyTorch, and measure that hardware. It never sees a cost model."""

from stepsim.executor.bound import BoundProgram, bind
from stepsim.executor.devices import find_device
from stepsim.executor.execute import Execution, Executor, execute
from stepsim.executor.lanes import use_threads
from stepsim.executor.record import Recorder, record
from stepsim.executor.this_gpu import machine_of

__all__ = [
    "BoundProgram",
    "Execution",
    "Executor",
    "Recorder",
    "bind",
    "execute",
    "find_device",
    "machine_of",
    "record",
    "use_threads",
]
