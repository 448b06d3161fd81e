"""The compiled engine as Python sees it: prepared once for a plan, run as often as you like."""

import numpy as np

from stepsim.simulator.compiled.loop import advance
from stepsim.simulator.compiled.packed import fresh, packed, packed_prices
from stepsim.simulator.compiled.records import ENDED
from stepsim.simulator.compiled.sweep import is_free_of_contention, sweep
from stepsim.simulator.outcome import Outcome, Progress, Sharing, check_sharing, stopped
from stepsim.simulator.problem import Prices, Problem

INSTANTS_A_CALL = 50_000
"""Between calls Python looks for Ctrl-C, and progress is told: a few hundredths of a second."""


class CompiledEngine:
    """Runs one problem, each time from the start. Threads can share it: each run has its own state."""

    def __init__(self, problem: Problem, sharing: Sharing = "leftover") -> None:
        check_sharing(sharing)
        self.problem, self.sharing = problem, sharing
        self._state = packed(problem)

    def run(self, prices: Prices | None = None, progress: Progress | None = None) -> Outcome:
        """The outcome at the prices of the problem, or at others. Raises `StoppedError` on Ctrl-C."""
        records = self._state.prices if prices is None else packed_prices(prices, self.problem.kind)
        state = fresh(self._state, records)
        size, fair = len(self.problem.plan), self.sharing == "fair"
        try:
            while advance(state, fair, INSTANTS_A_CALL):
                if progress is not None:
                    progress(int(state.count[ENDED]), size)
        except KeyboardInterrupt:
            raise stopped(int(state.count[ENDED]), size, float(np.nanmax(state.end, initial=0))) from None
        if progress is not None:
            progress(int(state.count[ENDED]), size)
        issued = ~np.isnan(state.ready)
        state.ready[np.isnan(state.start)] = np.nan
        return Outcome(ready_s=state.ready, start_s=state.start, end_s=state.end, issued=issued)


def run_compiled(problem: Problem, sharing: Sharing, progress: Progress | None = None) -> Outcome:
    """One run; without events where nothing can contend. Raises `StoppedError` on Ctrl-C."""
    if is_free_of_contention(problem):
        outcome = sweep(problem)
        if progress is not None:
            progress(len(problem.plan), len(problem.plan))
        return outcome
    return CompiledEngine(problem, sharing).run(progress=progress)
