"""A step of 2 million tasks on 1,024 GPUs, in a process of its own: built, prepared, simulated, and its memory."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import pairwise

from benchmarks.figures import Figure, figure, peak_rss_bytes

REPEATS = 3


def cluster_figures() -> Iterator[Figure]:
    runs = [_in_a_process() for _ in range(REPEATS)]
    tasks = f"{runs[0]['tasks']:,.0f} tasks on 1,024 GPUs"
    for name, most in (("built and checked", 5), ("prepared", 1), ("simulated", 2), ("simulated to a timeline", None)):
        demanded = {} if most is None else {"at_most": most}
        yield figure(f"{tasks}, {name}", "s", [run[name] for run in runs], **demanded)
    yield figure(f"{tasks}, whole process", "GiB", [run["rss_bytes"] / 2**30 for run in runs], at_most=2)


def _in_a_process() -> dict[str, float]:
    ran = subprocess.run([sys.executable, "-m", "benchmarks.cluster"], check=True, capture_output=True, text=True)
    found: dict[str, float] = json.loads(ran.stdout)
    return found


def main() -> None:
    """One line of JSON. What is compiled is kept from run to run; the times are those of a warm cache."""
    from benchmarks.engines import mixed_problem
    from benchmarks.plans import EVERY_MECHANISM
    from stepsim.costmodels import DataSheetCosts
    from stepsim.machines import load_machine
    from stepsim.simulator import simulate
    from stepsim.simulator.compiled import CompiledEngine
    from stepsim.simulator.problem import problem_of
    from stepsim.strategies.parallel import Layout, lay_out
    from stepsim.workloads.shapes import transformer

    workload = transformer(layers=32, hidden=4096, sequence=2048, batch=512)
    machine = load_machine("hgx_h100_x128")
    layout = Layout(data=8, tensor=8, pipeline=16, microbatches=32)
    CompiledEngine(mixed_problem(1000, 4, EVERY_MECHANISM)).run()
    clock = [time.perf_counter()]
    plan = lay_out(workload, machine, layout)
    clock.append(time.perf_counter())
    engine = CompiledEngine(problem_of(plan, machine, DataSheetCosts()))
    clock.append(time.perf_counter())
    engine.run()
    clock.append(time.perf_counter())
    del engine
    simulate(plan, machine, DataSheetCosts(), engine="compiled")
    clock.append(time.perf_counter())
    built_s, prepared_s, simulated_s, whole_s = (b - a for a, b in pairwise(clock))
    found = {
        "tasks": len(plan),
        "built and checked": built_s,
        "prepared": prepared_s,
        "simulated": simulated_s,
        "simulated to a timeline": whole_s,
        "rss_bytes": peak_rss_bytes(),
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
