"""Whole processes: compiling cold, and the first result when that has been done before."""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator

from benchmarks.figures import Figure, figure

FIRST_RESULT = """
from benchmarks.engines import mixed_problem
from benchmarks.plans import EVERY_MECHANISM
from stepsim.simulator.compiled import CompiledEngine
CompiledEngine(mixed_problem(1000, 4, EVERY_MECHANISM)).run()
"""


def start_up_figures() -> Iterator[Figure]:
    with tempfile.TemporaryDirectory() as cache:
        cold_s = _seconds_of_process(cache)
        warm_s = [_seconds_of_process(cache) for _ in range(5)]
    yield figure("first result of a process, nothing compiled yet", "s", [cold_s], at_most=40)
    yield figure("first result of a process, compiled before", "s", warm_s, at_most=2)


def _seconds_of_process(cache: str) -> float:
    began_s = time.perf_counter()
    subprocess.run([sys.executable, "-c", FIRST_RESULT], check=True, env={**os.environ, "NUMBA_CACHE_DIR": cache})
    return time.perf_counter() - began_s
