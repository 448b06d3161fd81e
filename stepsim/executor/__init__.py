"""Run a plan on real hardware with PyTorch, and measure that hardware. It never sees a cost model."""

from stepsim.executor.bound import BoundProgram, bind
from stepsim.executor.execute import Execution, Executor, execute
from stepsim.executor.lanes import use_threads
from stepsim.executor.record import Recorder, record

__all__ = ["BoundProgram", "Execution", "Executor", "Recorder", "bind", "execute", "record", "use_threads"]
