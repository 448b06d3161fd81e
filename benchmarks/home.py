"""HOME's search, on two models of its paper with every output kept, at 70 % of what keeping everything takes."""

import time
from collections.abc import Iterator
from functools import partial

import numpy as np

from benchmarks.figures import Figure, figure, rate
from stepsim.costmodels import DataSheetCosts
from stepsim.machines import load_machine
from stepsim.strategies import HomeExtended
from stepsim.strategies.memory.home.building import home_problem
from stepsim.strategies.memory.home.evaluator import Evaluator
from stepsim.strategies.memory.home.options import Rules, Swarm
from stepsim.strategies.memory.home.swarm import search
from stepsim.strategies.memory.prices import prices_of
from stepsim.strategies.memory.rows import resident_bytes
from stepsim.strategies.memory.schedule import schedule
from stepsim.workloads import Workload
from stepsim.workloads.shipped import load_workload
from stepsim.workloads.storage import every_output_kept


def home_figures() -> Iterator[Figure]:
    """The paper's search takes 25 s for VGG16 and 350 s for Inception v3, on 16 threads (table 3)."""
    for name, batch, least_per_s, most_s in (("vgg16_cifar", 3950, 500_000, 10), ("inception3", 170, 50_000, 400)):
        workload = every_output_kept(load_workload(name).at_batch(batch))
        yield from _figures(f"HOME, {name}", workload, least_per_s, most_s)


def _figures(name: str, workload: Workload, least_per_s: float, most_s: float) -> Iterator[Figure]:
    problem = home_problem(workload, prices_of(workload, load_machine("rtx_2080_ti"), DataSheetCosts()))
    memory_bytes = int(0.7 * max(resident_bytes(workload, schedule(workload, {}, 0))))
    evaluator = Evaluator(problem, memory_bytes)
    policies = np.random.default_rng(0).integers(0, problem.num_actions, (2000, problem.num_layers), dtype=np.int8)
    penalised = Evaluator(problem, memory_bytes, Rules(penalty=True))
    yield rate(f"{name}: whole evaluations, none given up", len(policies), partial(penalised.all_ticks, policies))
    runs = [_run(evaluator, Swarm()) for _ in range(7)][1:]
    yield figure(f"{name}: trials of the swarm", "/s", [n / s for n, s in runs], at_least=least_per_s)
    yield figure(f"{name}: literal swarm, 500 x 500", "s", [s for _, s in runs], at_most=most_s)
    extended = Evaluator(problem, memory_bytes, HomeExtended().rules)
    yield figure(f"{name}: extended swarm, 100 x 100", "s", [_run(extended, HomeExtended().swarm)[1] for _ in range(3)])


def _run(evaluator: Evaluator, swarm: Swarm) -> tuple[int, float]:
    """Trials, and seconds of the core: it is one thread, and others may be at work."""
    began_s = time.process_time()
    found = search(evaluator, swarm, np.random.default_rng(0))
    return found.num_trials, time.process_time() - began_s
