"""One plan at many prices, as a search asks: on one thread, and on two beside a control."""

import threading
import time
from collections.abc import Callable, Iterator

import numpy as np
from numba import njit

from benchmarks.engines import mixed_problem
from benchmarks.figures import Figure, figure
from benchmarks.plans import EVERY_MECHANISM
from stepsim.simulator.compiled import CompiledEngine
from stepsim.simulator.problem import Prices

NUM_VARIANTS = 10_000
NUM_TASKS = 2_000


def variant_figures() -> Iterator[Figure]:
    problem = mixed_problem(NUM_TASKS, 4, EVERY_MECHANISM)
    engine = CompiledEngine(problem)
    prices = [_other(problem.prices, seed) for seed in range(50)]

    def work(share: range) -> None:
        for number in share:
            engine.run(prices[number % len(prices)])

    def spin(share: range) -> None:
        for _ in share:
            _spin(200_000)

    work(range(100))
    spin(range(100))
    single_s = [_seconds_on(1, work, NUM_VARIANTS) for _ in range(3)]
    yield figure("10,000 variants of 2,000 tasks, one thread", "s", single_s, at_most=10)
    pairs = [_speed_up(work, NUM_VARIANTS // 4) for _ in range(5)]
    controls = [_speed_up(spin, NUM_VARIANTS // 4) for _ in range(5)]
    yield figure("two threads beside one", "times", pairs, at_least=1.7)
    yield figure("two threads beside one, spin control", "times", controls)


def _other(prices: Prices, seed: int) -> Prices:
    factor = np.random.default_rng(seed).uniform(0.5, 2.0, len(prices.seconds))
    names = ("launch_s", "latency_s", "size_bytes", "rate_cap_bytes_per_s", "sm_share", "bandwidth_share")
    same = {name: getattr(prices, name) for name in names}
    return Prices(seconds=prices.seconds * factor, **same)


def _speed_up(work: Callable[[range], None], size: int) -> float:
    return _seconds_on(1, work, size) / _seconds_on(2, work, size)


def _seconds_on(num_threads: int, work: Callable[[range], None], size: int) -> float:
    shares = [range(first, size, num_threads) for first in range(num_threads)]
    threads = [threading.Thread(target=work, args=(share,)) for share in shares]
    began_s = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return time.perf_counter() - began_s


@njit(nogil=True)  # type: ignore[untyped-decorator]
def _spin(turns: int) -> float:
    total = 0.0
    for turn in range(turns):
        total = total * 0.5 + turn
    return total
