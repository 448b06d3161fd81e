"""Run every benchmark and print its figures, median with spread, beside what is demanded of them.

Figures depend on the machine and on what else it does; within one run they can be compared with the spin rate, which
is printed first. ``python -m benchmarks NAME...`` runs only the named ones.
"""

import platform
import sys
from collections.abc import Callable, Iterator

import numba
import numpy as np

from benchmarks.cases import case_figures
from benchmarks.cluster import cluster_figures
from benchmarks.engines import engine_figures, ratios
from benchmarks.figures import Figure, print_figures
from benchmarks.home import home_figures
from benchmarks.kineto import kineto_figures
from benchmarks.start_up import start_up_figures
from benchmarks.variants import variant_figures

BENCHMARKS: dict[str, Callable[[], Iterator[Figure]]] = {
    "plans": case_figures,
    "engines": engine_figures,
    "ratios": ratios,
    "variants": variant_figures,
    "cluster": cluster_figures,
    "home": home_figures,
    "start-up": start_up_figures,
    "kineto": kineto_figures,
}


def main(names: list[str]) -> None:
    unknown = [name for name in names if name not in BENCHMARKS]
    if unknown:
        sys.exit(f"unknown benchmark {unknown[0]!r}; known: {', '.join(BENCHMARKS)}")
    processor = platform.processor() or platform.machine()
    print(f"{processor}, Python {platform.python_version()}, numpy {np.__version__}, numba {numba.__version__}")
    print_figures(figure for name in names or BENCHMARKS for figure in BENCHMARKS[name]())


if __name__ == "__main__":
    main(sys.argv[1:])
