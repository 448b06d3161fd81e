"""Building, checking, hashing, measuring memory, writing: what happens to a plan around its simulation."""

import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from benchmarks.figures import Figure, figure, rate, seconds_of
from stepsim.chrome_trace import write_chrome_trace
from stepsim.costmodels import GivenCosts
from stepsim.machines import Device, DeviceKind, Link, Machine, Route
from stepsim.memory import memory_profile
from stepsim.plan import Plan
from stepsim.plan.builder import PlanBuilder
from stepsim.simulator import simulate
from stepsim.strategies.memory.schedule import Action, candidates, schedule
from stepsim.workloads import Workload

NUM_TASKS = 20_000


def case_figures() -> Iterator[Figure]:
    yield rate("a bare Python loop, turns: how fast this machine is now", 1_000_000, _spin)
    plan = layered_plan(NUM_TASKS)
    size = len(plan)
    yield rate("plan: build and self-check, tasks", size, partial(layered_plan, NUM_TASKS))
    yield rate("plan: content hash, tasks", size, lambda: Plan.__dict__["content_hash"].func(plan))
    yield rate("memory pass, exact, tasks", size, partial(memory_profile, plan))
    yield rate("memory pass, caching, tasks", size, partial(memory_profile, plan, accounting="caching"))
    yield rate(
        "simulate to a timeline, compiled, tasks", size, partial(simulate, plan, machine(), COSTS, engine="compiled")
    )
    yield from strategy_figures()
    yield trace_figure()


def _spin() -> None:
    for _ in range(1_000_000):
        pass


def strategy_figures() -> Iterator[Figure]:
    """One evaluation of a policy, as a search makes many."""
    workload = captured_resnet()
    policy = dict.fromkeys(candidates(workload), Action.SWAP)
    schedule_it = partial(schedule, workload, policy, 0)
    yield rate("schedule a policy, ops of small_resnet", len(workload.ops), schedule_it)


def trace_figure() -> Figure:
    """A timeline of 100,000 tasks with memory and arrows."""
    plan = layered_plan(100_000)
    timeline = simulate(plan, machine(), COSTS, engine="compiled")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        write = partial(write_chrome_trace, path, {"predicted": timeline}, plans={"predicted": plan})
        return figure("Chrome trace of 100,000 tasks", "s", seconds_of(write, 5), at_most=2)


COSTS = GivenCosts(seconds={"forward": 1.0, "backward": 2.0}, launch_s=0.1)


def machine() -> Machine:
    """One GPU beside a host; the numbers are round, not measured."""
    memory = {"memory_bytes": "made up for the benchmark"}
    speed = {"latency_s": "made up for the benchmark", "bandwidth_bytes_per_s": "made up for the benchmark"}
    links = [Link(name=name, latency_s=0.0, bandwidth_bytes_per_s=1e3, sources=speed) for name in ("out", "in")]
    return Machine(
        name="benchmark",
        devices=(
            Device(name="gpu0", kind=DeviceKind.GPU, memory_bytes=10**12, sources=memory),
            Device(name="host", kind=DeviceKind.HOST, memory_bytes=10**12, sources=memory),
        ),
        links=tuple(links),
        routes=(
            Route(source="gpu0", destination="host", links=("out",)),
            Route(source="host", destination="gpu0", links=("in",)),
        ),
    )


def layered_plan(num_tasks: int) -> Plan:
    """Layers that swap their activation out and in again: four tasks and a release each, on three streams."""
    builder = PlanBuilder()
    gpu, host = builder.device("gpu0"), builder.device("host")
    compute = builder.stream("compute", gpu)
    out, back = builder.stream("d2h", gpu, role="d2h"), builder.stream("h2d", gpu, role="h2d")
    forward, backward = builder.work("forward"), builder.work("backward")
    on_host = []
    for _ in range(num_tasks // 5):
        x, copy = builder.buffer(1000, gpu, owner=compute), builder.buffer(1000, host)
        builder.compute(forward, compute, writes=[x], allocates=[x])
        builder.swap_out(x, copy, out)
        builder.release([x], compute)
        on_host.append(copy)
    for copy in reversed(on_host):
        x = builder.buffer(1000, gpu, owner=compute)
        builder.swap_in(copy, x, back)
        builder.compute(backward, compute, reads=[x], releases=[x])
    return builder.build()


def captured_resnet() -> Workload:
    from stepsim.workloads.capture import capture
    from stepsim.workloads.models import small_resnet

    return capture(small_resnet, 32, "small_resnet").workload
