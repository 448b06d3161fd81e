"""Run every benchmark and print its rate, median with spread.

Rates depend on the machine and on what else it does; within one run they can be compared with the spin rate, which is
printed beside them.
"""

import platform
import statistics
import time
from collections.abc import Callable, Iterator

import numpy as np

from benchmarks.cases import all_cases

REPEATS = 5


def main() -> None:
    print(f"{platform.processor() or platform.machine()}, Python {platform.python_version()}, numpy {np.__version__}")
    print(f"{'case':44}{'size':>10}{'median/s':>14}{'lowest/s':>14}{'highest/s':>14}")
    for name, size, run in (spin_case(), *all_cases()):
        rates = sorted(size / seconds for seconds in timed(run))
        median, lowest, highest = statistics.median(rates), rates[0], rates[-1]
        print(f"{name:44}{size:>10,}{median:>14,.0f}{lowest:>14,.0f}{highest:>14,.0f}", flush=True)


def timed(run: Callable[[], object]) -> Iterator[float]:
    """Seconds of each repeat, after one that is thrown away."""
    run()
    for _ in range(REPEATS):
        began_s = time.perf_counter()
        run()
        yield time.perf_counter() - began_s


def spin_case() -> tuple[str, int, Callable[[], object]]:
    """A bare Python loop: how fast this machine is right now."""
    size = 1_000_000

    def spin() -> None:
        for _ in range(size):
            pass

    return "spin (bare Python loop, turns)", size, spin


if __name__ == "__main__":
    main()
