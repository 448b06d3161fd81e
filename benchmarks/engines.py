"""Speed of the engines, preparation apart, and beside two ordinary ways to do the same."""

from collections.abc import Iterator
from functools import partial
from statistics import median

import networkx
import simpy

from benchmarks.figures import Figure, figure, rate, seconds_of
from benchmarks.plans import EVERY_MECHANISM, KERNELS_ONLY, Mix, MixedCosts, mixed_machine, mixed_plan
from stepsim.simulator.compiled import CompiledEngine, is_free_of_contention, sweep
from stepsim.simulator.problem import Problem, problem_of
from stepsim.simulator.reference import run_reference


def mixed_problem(num_tasks: int, num_devices: int, mix: Mix) -> Problem:
    shares = mix is EVERY_MECHANISM
    plan = mixed_plan(num_tasks, num_devices, mix)
    return problem_of(plan, mixed_machine(num_devices), MixedCosts(shares=shares))


def engine_figures() -> Iterator[Figure]:
    for size, devices in ((10_000, 16), (1_000_000, 64), (5_000_000, 64)):
        problem = mixed_problem(size, devices, KERNELS_ONLY)
        assert is_free_of_contention(problem)
        least = 4e6 if size == 10_000 else 2e6
        repeats = 7 if size <= 1_000_000 else 3
        yield rate(f"sweep, {size:,} tasks", size, partial(sweep, problem), repeats, at_least=50e6)
        engine = CompiledEngine(problem)
        yield rate(f"events, streams and dependencies, {size:,} tasks", size, engine.run, repeats, at_least=least)
    for size, devices in ((20_000, 4), (20_000, 16), (20_000, 64), (1_000_000, 64)):
        problem = mixed_problem(size, devices, EVERY_MECHANISM)
        least = 1.5e6 if size == 20_000 else 1e6
        engine = CompiledEngine(problem)
        name = f"every mechanism, {size:,} tasks, {devices} devices"
        yield rate(name, len(problem.plan), engine.run, at_least=least)
    yield bytes_a_task(problem)


def bytes_a_task(problem: Problem) -> Figure:
    state = CompiledEngine(problem)._state
    total = sum(array.nbytes for array in state)
    return figure("arrays of the engine, every mechanism", "bytes/task", [total / len(problem.plan)], at_most=160)


def ratios() -> Iterator[Figure]:
    """The same plans through both engines, and one through other programs, in turn."""
    for devices in (4, 16, 64):
        yield from beside_reference(
            f"every mechanism, {devices} devices", mixed_problem(20_000, devices, EVERY_MECHANISM)
        )
    problem = mixed_problem(20_000, 16, KERNELS_ONLY)
    yield from beside_reference("streams and dependencies", problem)
    compiled_s = median(seconds_of(CompiledEngine(problem).run))
    for name, run in (("bare SimPy, one process a kernel", bare_simpy), ("networkx longest path", longest_path)):
        other_s = seconds_of(partial(run, problem), 3)
        yield figure(f"compiled beside {name}", "times", [seconds / compiled_s for seconds in other_s])
    swept_s = seconds_of(partial(sweep, problem))
    yield figure("sweep beside compiled", "times", [compiled_s / seconds for seconds in swept_s])


def beside_reference(name: str, problem: Problem) -> Iterator[Figure]:
    compiled_s = median(seconds_of(CompiledEngine(problem).run))
    reference_s = seconds_of(partial(run_reference, problem, "leftover"), 3)
    speeds = [len(problem.plan) / seconds for seconds in reference_s]
    yield figure(f"reference, 20,000 tasks, {name}", "/s", speeds, at_least=3_000)
    times = [seconds / compiled_s for seconds in reference_s]
    yield figure(f"compiled beside reference, {name}", "times", times, at_least=200)


def bare_simpy(problem: Problem) -> float:
    """Streams are resources, kernels processes, and there is no host."""
    env = simpy.Environment()
    streams = [simpy.Resource(env, 1) for _ in problem.plan.streams.name]
    done = [env.event() for _ in problem.kind]

    def kernel(row: int, waits: list[int], stream: int, seconds: float):  # type: ignore[no-untyped-def]
        with streams[stream].request() as turn:
            yield turn
            yield env.all_of([done[other] for other in waits])
            yield env.timeout(seconds)
        done[row].succeed()

    columns = (problem.dependencies.to_lists(), problem.stream.tolist(), problem.prices.seconds.tolist())
    for row, (waits, stream, seconds) in enumerate(zip(*columns, strict=True)):
        env.process(kernel(row, waits, stream, seconds))
    env.run()
    return float(env.now)


def longest_path(problem: Problem) -> float:
    """The same, as a graph of rows whose edges are dependencies and stream order."""
    graph: networkx.DiGraph = networkx.DiGraph()
    seconds, last = problem.prices.seconds.tolist(), {}
    columns = zip(problem.dependencies.to_lists(), problem.stream.tolist(), strict=True)
    for row, (waits, stream) in enumerate(columns):
        graph.add_node(row)
        for other in (*waits, *([last[stream]] if stream in last else [])):
            graph.add_edge(other, row, weight=seconds[other])
        last[stream] = row
    return float(networkx.dag_longest_path_length(graph))
