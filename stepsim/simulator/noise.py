"""Noise: how long a step takes when every task varies as much as it did where it was measured."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from stepsim.errors import StepsimError, StoppedError
from stepsim.machines import Machine
from stepsim.plan import Costs, Plan
from stepsim.report import steady_period_s
from stepsim.simulator.outcome import Outcome, Progress, Sharing
from stepsim.simulator.problem import Prices, Problem, first_of_group, problem_of
from stepsim.simulator.simulate import check_memory_on, check_nouns


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class StepTimes:
    """``seconds`` of a step in each run, shape (runs,), and ``without_noise_s``, what one takes when nothing varies."""

    seconds: NDArray[np.float64]
    without_noise_s: float

    def quantiles(self, shares: Iterable[float] = (0.05, 0.5, 0.95)) -> dict[float, float]:
        """For each share of the runs, the seconds within which their step ends."""
        return {share: float(np.quantile(self.seconds, share)) for share in shares}


def step_times(
    plan: Plan,
    machine: Machine,
    costs: Costs,
    *,
    num_runs: int,
    generator: np.random.Generator,
    sharing: Sharing = "leftover",
    progress: Progress | None = None,
) -> StepTimes:
    """Monte Carlo over the spread of ``costs``: the same generator gives the same times.

    In each run a task takes ``exp(spread * z)`` times what it costs, with z normal and its own for each task (for a
    group one of all members); so its median is its cost. Launches do not vary. Of a plan of several steps the time is
    the period (`stepsim.report.steady_period_s`), else the makespan. Raises what `simulate` raises.
    """
    from stepsim.simulator.compiled import CompiledEngine
    from stepsim.simulator.deadlock import check_all_ran

    check_nouns(plan, machine, costs)
    if num_runs < 1:
        raise StepsimError(f"num_runs must be >= 1, got {num_runs}")
    check_memory_on(plan, machine, "exact")
    problem = problem_of(plan, machine, costs)
    priced = costs.task_costs(plan, machine)
    first = first_of_group(plan.tasks.group)
    spread = priced.table.spread[priced.index][first]
    engine = CompiledEngine(problem, sharing)
    nominal = engine.run()
    check_all_ran(problem, nominal)
    seconds = np.empty(num_runs)
    for number in range(num_runs):
        factor = np.exp(spread * generator.standard_normal(len(plan))[first])
        try:
            seconds[number] = _step_s(plan, engine.run(_varied(problem, factor)))
            if progress is not None:
                progress(number + 1, num_runs)
        except KeyboardInterrupt:
            raise StoppedError(f"stopped after {number} of {num_runs} runs with noise") from None
    return StepTimes(seconds=seconds, without_noise_s=_step_s(plan, nominal))


def _varied(problem: Problem, factor: NDArray[np.float64]) -> Prices:
    """What takes longer by a factor has that much more latency, and that many more bytes to move."""
    prices = problem.prices
    return replace(
        prices,
        seconds=prices.seconds * factor,
        latency_s=prices.latency_s * factor,
        size_bytes=prices.size_bytes * factor,
    )


def _step_s(plan: Plan, outcome: Outcome) -> float:
    period_s = steady_period_s(plan, outcome.end_s)
    return float(outcome.end_s.max(initial=0.0)) if period_s is None else period_s
