"""HOME's search apart from its strategy, on a model of its paper: how it went, and how long it took."""

import time
from dataclasses import dataclass

import numpy as np

from experiments.home_constants import FITTED
from experiments.home_costs import PaperCosts, limit_bytes, machine_with
from experiments.home_setting import step
from stepsim.strategies.memory.home.building import home_problem
from stepsim.strategies.memory.home.evaluator import Evaluator
from stepsim.strategies.memory.home.options import Rules, Swarm
from stepsim.strategies.memory.home.swarm import Found, search
from stepsim.strategies.memory.prices import prices_of

SEED = 0


@dataclass(frozen=True, slots=True)
class Searched:
    """``seconds`` are of the core: a search is one thread, and others may be at work."""

    found: Found
    seconds: float


def evaluator_at(model: str, batch: int, rules: Rules | None = None) -> Evaluator:
    """Of the paper's Algorithm 2, with the paper's rules unless ``rules`` are given."""
    workload, machine, costs = step(model, batch), machine_with(FITTED), PaperCosts(FITTED)
    return Evaluator(home_problem(workload, prices_of(workload, machine, costs)), limit_bytes(FITTED), rules)


def searched(evaluator: Evaluator, swarm: Swarm) -> Searched:
    """Run ``swarm`` to its end."""
    search(evaluator, Swarm(num_particles=1, num_iterations=1), np.random.default_rng(SEED))  # compiles
    began_s = time.process_time()
    found = search(evaluator, swarm, np.random.default_rng(SEED))
    return Searched(found, time.process_time() - began_s)
