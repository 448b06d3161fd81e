"""The paper's Algorithms 1 and 3: a particle swarm over the actions of all layers. Loading this module loads numba."""

import math
import time
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stepsim.strategies.memory.home.algorithm3 import NO_ACTION, update
from stepsim.strategies.memory.home.evaluator import Evaluator
from stepsim.strategies.memory.home.options import Swarm
from stepsim.strategies.memory.home.problem import Actions
from stepsim.strategies.memory.home.work import OVER, UNUSABLE

BATCH = 100
"""Particles that are updated between two looks at the clock."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Found:
    """What a swarm found: the best ``actions`` ever, and their ``seconds``, which are None if none fits the limit.

    With a penalty the actions are then those that exceed it least; without, there are none. ``best_s`` and ``mean_s``
    are of the particles that fit, at the start (first) and after each iteration; NaN where none does. They end early
    when no further iteration can change anything. ``complete``: not stopped by its time limit.
    """

    actions: Actions | None
    seconds: float | None
    best_s: NDArray[np.float64]
    mean_s: NDArray[np.float64]
    num_trials: int
    complete: bool


def search(
    evaluator: Evaluator,
    swarm: Swarm,
    rng: np.random.Generator,
    deadline_s: float = math.inf,
    start: NDArray[np.int8] | None = None,
) -> Found:
    """Run the swarm, until monotonic time ``deadline_s`` at most. The same state of ``rng`` gives the same result.

    ``start``, shape (some particles, layers), has the actions of the first particles; the others are drawn.
    """
    return _Flock(evaluator, swarm, rng, start).run(deadline_s)


class _Flock:
    """The particles, and the best of each one's own history."""

    def __init__(
        self, evaluator: Evaluator, swarm: Swarm, rng: np.random.Generator, start: NDArray[np.int8] | None
    ) -> None:
        self.evaluator, self.swarm, self.rng = evaluator, swarm, rng
        self.particles = self._drawn()
        if start is not None:
            self.particles[: len(start)] = start[: len(self.particles)]
        self.ticks = evaluator.all_ticks(self.particles)
        self.own: NDArray[np.int8] = np.where((self.ticks == UNUSABLE)[:, None], np.int8(NO_ACTION), self.particles)
        self.own_ticks = self.ticks.copy()
        self.settled = np.zeros(swarm.num_particles, np.bool_)
        self.nobody = np.full(evaluator.problem.num_layers, NO_ACTION, np.int8)
        self.nothing = np.full_like(self.particles, NO_ACTION)
        self.num_trials = 0

    def run(self, deadline_s: float) -> Found:
        history, leader, complete = [self._now()], self.nobody, True
        for _ in range(self.swarm.num_iterations):
            before, leader = leader, self._leader()
            if self.swarm.random_share or not np.array_equal(before, leader):
                self.settled[:] = False
            if self.settled.all() or not complete:
                break
            complete = self._update(leader, deadline_s)
            history.append(self._now())
        best = int(self.own_ticks.argmin())
        best_s, mean_s = np.array(history).T
        return Found(
            actions=None if self.own_ticks[best] == UNUSABLE else self.own[best].copy(),
            seconds=self.evaluator.seconds(int(self.own_ticks[best])),
            best_s=best_s,
            mean_s=mean_s,
            num_trials=self.num_trials,
            complete=complete,
        )

    def _update(self, leader: Actions, deadline_s: float) -> bool:
        """Update all particles, a few between two looks at the clock; False when time runs out."""
        wild = self._wild()
        for first in range(0, len(self.particles), BATCH):
            if time.monotonic() > deadline_s:
                return False
            self.num_trials += update(
                self.evaluator.work,
                self.particles,
                self.ticks,
                self.own,
                self.own_ticks,
                self.settled,
                leader,
                wild,
                first,
                min(first + BATCH, len(self.particles)),
            )
        return True

    def _leader(self) -> Actions:
        """Whom all learn from now."""
        if self.swarm.leader == "previous":
            best = int(self.ticks.argmin())
            return self.nobody if self.ticks[best] == UNUSABLE else self.particles[best].copy()
        ever: Actions = self.own[int(self.own_ticks.argmin())].copy()
        return ever

    def _wild(self) -> NDArray[np.int8]:
        """For each position of each particle the action to try beside, or `NO_ACTION`."""
        if not self.swarm.random_share:
            return self.nothing
        chosen = self.rng.random(self.particles.shape) < self.swarm.random_share
        wild: NDArray[np.int8] = np.where(chosen, self._drawn(), np.int8(NO_ACTION))
        return wild

    def _drawn(self) -> NDArray[np.int8]:
        num_actions = self.evaluator.problem.num_actions
        shape = (self.swarm.num_particles, len(num_actions))
        drawn: NDArray[np.int8] = self.rng.integers(0, num_actions, shape, dtype=np.int8)
        return drawn

    def _now(self) -> tuple[float, float]:
        """Seconds of the best particle and of their mean, of those that fit."""
        fit_s = self.ticks[self.ticks < OVER] * self.evaluator.problem.tick_s
        return (float(fit_s.min()), float(fit_s.mean())) if len(fit_s) else (math.nan, math.nan)
