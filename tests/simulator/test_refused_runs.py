"""What cannot be simulated is refused before the run, with the row named; and a run can be stopped."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from small_machines import RowCosts, gpus

from stepsim.errors import CalibrationError, MachineError, StepsimError, StoppedError
from stepsim.machines import Device, DeviceKind
from stepsim.plan.builder import PlanBuilder
from stepsim.simulator import simulate, step_times
from stepsim.simulator.compiled import CompiledEngine
from stepsim.simulator.problem import problem_of


def kernel_on(name, **work):
    builder = PlanBuilder()
    builder.compute(builder.work("F", **work), builder.stream("compute", builder.device(name)))
    return builder.build()


@pytest.mark.parametrize("noun", ["plan", "machine", "costs"])
@pytest.mark.parametrize("run", [simulate, partial(step_times, num_runs=1, generator=np.random.default_rng(0))])
def test_a_name_in_the_place_of_a_noun_is_refused_by_what_it_stands_for(run, noun):
    nouns = {"plan": kernel_on("gpu0"), "machine": gpus(), "costs": RowCosts(), noun: "v100"}

    with pytest.raises(TypeError, match=f"^{noun} must .*, got 'v100'$"):
        run(**nouns)


def test_a_plan_for_another_machine_is_refused_with_the_row_that_it_lacks_a_device_for():
    with pytest.raises(MachineError) as caught:
        simulate(kernel_on("gpu7"), gpus(), RowCosts())

    assert str(caught.value) == "row 0 (F): machine 'small' has no device 'gpu7'; it has ['gpu0', 'host']"


def test_a_large_machine_is_not_listed_device_by_device():
    with pytest.raises(MachineError, match=r"has no device 'tpu'; it has \['gpu0', .*\] and 13 more$"):
        simulate(kernel_on("tpu"), gpus(20), RowCosts())


def test_a_route_that_does_not_connect_is_refused_with_the_row_that_takes_it():
    builder = PlanBuilder()
    one, two = builder.device("gpu0"), builder.device("gpu1")
    source, target = builder.buffer(4, one), builder.buffer(4, two)
    builder.copy(source, target, builder.stream("out", one))
    apart = replace(gpus(2), routes=())

    with pytest.raises(MachineError) as caught:
        simulate(builder.build(), apart, RowCosts())

    assert str(caught.value) == "row 0 (copy b1): machine 'small' has no route from 'gpu0' to 'gpu1'"


def test_a_collective_whose_members_cannot_reach_each_other_is_refused_with_its_first_row():
    builder = PlanBuilder()
    devices, group = [builder.device(f"gpu{i}") for i in range(2)], builder.group()
    for number in devices:
        builder.collective("all_reduce", devices, builder.stream("nccl", number), group, size_bytes=4)
    plan, apart = builder.build(), replace(gpus(2), routes=())

    with pytest.raises(MachineError, match=r"^row 0 \(collective\): .*no route from 'gpu0' to 'gpu1'"):
        simulate(plan, apart, RowCosts())
    assert simulate(plan, apart, RowCosts(seconds=3.0, fixed=True)).makespan_s == 3.0


def test_a_stream_on_a_network_is_refused():
    network = Device(name="network", kind=DeviceKind.NETWORK, memory_bytes=0, sources={})
    machine = replace(gpus(), devices=(*gpus().devices, network))

    with pytest.raises(MachineError, match="stream 'compute' stands on 'network', which is a network"):
        simulate(kernel_on("network"), machine, RowCosts())


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("seconds", -1.0),
        ("seconds", float("nan")),
        ("launch_s", float("inf")),
        ("latency_s", -0.5),
        ("spread", -0.1),
        ("rate_cap_bytes_per_s", 0.0),
        ("sm_share", 1.5),
        ("bandwidth_share", float("nan")),
    ],
)
def test_a_senseless_cost_is_refused(name, value):
    with pytest.raises(CalibrationError, match=f"cost {name} must be .*, got {value}"):
        simulate(kernel_on("gpu0"), gpus(), RowCosts(**{name: value}))


def test_an_unknown_engine_and_an_unknown_sharing_are_refused():
    with pytest.raises(StepsimError, match="unknown engine 'fast'; known: auto, reference, compiled"):
        simulate(kernel_on("gpu0"), gpus(), RowCosts(), engine="fast")
    with pytest.raises(StepsimError, match="unknown sharing 'equal'; known: leftover, fair"):
        simulate(kernel_on("gpu0"), gpus(), RowCosts(), sharing="equal")


def long_problem(num_rows):
    builder = PlanBuilder()
    streams = [builder.stream(f"s{i}", builder.device(f"gpu{i}")) for i in range(2)]
    for row in range(num_rows):
        builder.compute(builder.work("F"), streams[row % 2])
    return problem_of(builder.build(), gpus(2), RowCosts(seconds=1.0))


@pytest.mark.parametrize("engine", ["reference", "compiled"])
def test_a_stopped_run_says_how_far_it_was(engine, monkeypatch):
    """Ctrl-C comes while progress is told."""
    from stepsim.simulator.compiled import engine as compiled_engine
    from stepsim.simulator.reference import run_reference

    def stop(done, total):
        raise KeyboardInterrupt

    monkeypatch.setattr(compiled_engine, "INSTANTS_A_CALL", 501)
    problem = long_problem(3000)
    run = (
        CompiledEngine(problem).run
        if engine == "compiled"
        else lambda progress: run_reference(problem, "leftover", progress)
    )

    with pytest.raises(StoppedError, match=r"^stopped after 1000 of 3000 tasks, at 500 s of simulated time$"):
        run(progress=stop)


@pytest.mark.parametrize("engine", ["reference", "compiled"])
def test_progress_rises_to_no_more_than_all_tasks(engine, monkeypatch):
    from stepsim.simulator.compiled import engine as compiled_engine
    from stepsim.simulator.reference import run_reference

    monkeypatch.setattr(compiled_engine, "INSTANTS_A_CALL", 100)
    problem, told = long_problem(3000), []

    def note(done, total):
        told.append((done, total))

    if engine == "compiled":
        CompiledEngine(problem).run(progress=note)
    else:
        run_reference(problem, "leftover", note)

    assert len(told) > 2
    assert told == sorted(told)
    assert all(0 < done <= total == 3000 for done, total in told)
