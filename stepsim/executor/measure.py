"""Measure plans of one step: each once for memory and values, then all of them in turns for time."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from stepsim.executor.bound import BoundProgram
from stepsim.executor.eager import eager_step, max_abs_difference
from stepsim.executor.execute import Executor, with_memory
from stepsim.executor.lanes import Lanes
from stepsim.memory import MemoryProfile
from stepsim.plan import Plan
from stepsim.timeline import Timeline

WARM_UP = 2
"""Runs of each plan that are thrown away."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Measured:
    """One plan on real hardware: its timed runs, its metered memory, and how far it is from eager PyTorch.

    ``allocated_peak_bytes`` is what PyTorch's allocator had handed out at most in the last run, with workspaces,
    rounding and all else on the device; ``None`` on a CPU, where it does not count.
    """

    runs: tuple[Timeline, ...]
    memory: MemoryProfile
    max_abs_difference: float
    allocated_peak_bytes: int | None

    @property
    def median_run(self) -> Timeline:
        """The run with the median step time (the upper one of two)."""
        return sorted(self.runs, key=lambda run: run.makespan_s)[len(self.runs) // 2]


def measure(
    bound: BoundProgram,
    plans: Sequence[Plan],
    *,
    runs: int,
    lanes: Lanes | None = None,
    after_run: Callable[[], None] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> list[Measured]:
    """Measure every plan of ``plans``; the timed runs take turns, so that a slow minute strikes all of them alike.

    Runs on ``lanes``, by default those of the device that ``bound`` is on, and trains its module by one step a run.
    ``after_run()`` is called after each run, warm-up too, ``progress(done, all)`` after each round of them.
    """
    executors = [Executor(plan, bound, lanes) for plan in plans]
    metered = []
    for executor in executors:
        reference = eager_step(bound)
        execution = executor.run(metered=True)
        metered.append((execution.memory, max_abs_difference(execution, reference)))
        del execution, reference
    timed: list[list[Timeline]] = [[] for _ in plans]
    for number in range(WARM_UP + runs):
        for place, executor in enumerate(executors):
            timeline = executor.run().timeline
            if number >= WARM_UP:
                timed[place].append(timeline)
            if after_run is not None:
                after_run()
        if progress is not None:
            progress(number + 1, WARM_UP + runs)
    found = []
    for executor, (memory, difference), timelines in zip(executors, metered, timed, strict=True):
        assert memory is not None, "a metered run measures memory"
        found.append(
            Measured(
                runs=tuple(with_memory(timeline, memory) for timeline in timelines),
                memory=memory,
                max_abs_difference=difference,
                allocated_peak_bytes=executor.lanes.allocated_peak_bytes,
            )
        )
    return found
