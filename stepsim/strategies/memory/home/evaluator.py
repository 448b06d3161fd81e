"""The time and the memory of a policy by the paper's Algorithm 2, as Python asks for it. Loads numba."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stepsim.strategies.memory.home.algorithm2 import evaluate
from stepsim.strategies.memory.home.options import Rules
from stepsim.strategies.memory.home.problem import Actions, HomeProblem
from stepsim.strategies.memory.home.work import EXCESS, NOW, OVER, UNUSABLE, settings_of, work_on


@dataclass(frozen=True, eq=False, kw_only=True)
class Evaluation:
    """``seconds`` of the step, or None if it does not fit; ``overhead_s``, shape (layers,), is what each layer adds.

    With a penalty ``over_bytes`` says by how much a step that does not fit exceeds the limit, summed over the stages,
    recomputations and copies in for which there is no room: a search that has only the peak to go by gets stuck.
    """

    seconds: float | None
    overhead_s: NDArray[np.float64]
    over_bytes: int


class Evaluator:
    """Evaluates policies of ``problem`` within ``memory_bytes``. For one thread at a time."""

    def __init__(self, problem: HomeProblem, memory_bytes: int, rules: Rules | None = None) -> None:
        self.problem = problem
        self.work = work_on(problem, settings_of(memory_bytes, rules or Rules()))

    def evaluate(self, actions: Actions) -> Evaluation:
        """What the step takes when the layers take ``actions``, shape (layers,)."""
        fits = self.ticks(actions) < OVER
        tick_s, overhead_ticks = self.problem.tick_s, self.work.overhead[: self.problem.num_layers]
        return Evaluation(
            seconds=float(self.work.clock[NOW] * tick_s) if fits else None,
            overhead_s=overhead_ticks * tick_s,
            over_bytes=int(self.work.clock[EXCESS]),
        )

    def ticks(self, actions: Actions) -> int:
        """Whole ticks; `UNUSABLE` for a policy that does not fit, or with a penalty at least `OVER`."""
        return int(self.all_ticks(actions[np.newaxis])[0])

    def all_ticks(self, policies: NDArray[np.int8]) -> NDArray[np.int64]:
        """`ticks` of each row of ``policies``. Shape (policies,)."""
        found = np.empty(len(policies), np.int64)
        evaluate(self.work, policies, found)
        return found

    def seconds(self, ticks: int) -> float | None:
        """Of a policy that fits."""
        assert ticks <= UNUSABLE
        return float(ticks * self.problem.tick_s) if ticks < OVER else None
