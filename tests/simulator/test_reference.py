"""What `simulate` promises as a whole: its errors, its marks, and the memory over time."""

import math

import pytest
from small_machines import RowCosts, gpus

from stepsim.errors import CalibrationError, MachineError, OutOfMemoryError, StoppedError
from stepsim.memory import memory_profile
from stepsim.plan.builder import PlanBuilder
from stepsim.simulator import simulate


def one_layer(size_bytes=10):
    builder = PlanBuilder()
    gpu = builder.device("gpu0")
    stream = builder.stream("compute", gpu)
    y = builder.buffer(size_bytes, gpu, owner=stream, name="y")
    builder.host(builder.work("begin"))
    builder.compute(builder.work("F"), stream, writes=[y], allocates=[y])
    builder.compute(builder.work("B"), stream, reads=[y], releases=[y])
    builder.mark("step", builder.host(builder.work("end"), after=[2]))
    return builder.build()


def test_the_timeline_says_that_it_was_simulated_and_of_which_plan():
    plan = one_layer()

    timeline = simulate(plan, gpus(), RowCosts(seconds=1.0))

    assert timeline.source == "simulated"
    assert timeline.plan_hash == plan.content_hash
    assert timeline.lanes == ("gpu0 compute", "main")


def test_a_mark_is_the_start_of_its_host_row():
    timeline = simulate(one_layer(), gpus(), RowCosts(seconds=[1.0, 2.0, 3.0, 9.0]))

    assert (timeline.marks.name, timeline.marks.time_s.tolist()) == (("step",), [6.0])


def test_memory_over_time_rises_when_a_row_starts_and_falls_when_it_ends():
    timeline = simulate(one_layer(), gpus(), RowCosts(seconds=[1.0, 2.0, 3.0, 9.0]))

    memory = timeline.memory
    assert list(zip(memory.time_s.tolist(), memory.resident_bytes.tolist(), strict=True)) == [(0, 0), (1, 10), (6, 0)]


def test_a_plan_that_needs_more_than_a_device_has_is_refused():
    plan = one_layer(size_bytes=10)

    with pytest.raises(OutOfMemoryError, match=r"out of memory on gpu0: row 1 \(F y\) allocates buffer 'y' of 10 B"):
        simulate(plan, gpus(memory_bytes=9), RowCosts())

    assert memory_profile(plan).peak_bytes("gpu0") == 10


def test_a_device_that_the_machine_lacks_is_named():
    builder = PlanBuilder()
    builder.compute(builder.work("F"), builder.stream("compute", builder.device("tpu0")))

    with pytest.raises(MachineError, match=r"has no device 'tpu0'; it has \['gpu0', 'host'\]"):
        simulate(builder.build(), gpus(), RowCosts())


def test_a_route_that_the_machine_lacks_is_named():
    builder = PlanBuilder()
    gpu, host = builder.device("gpu0"), builder.device("host")
    builder.copy(builder.buffer(1, gpu), builder.buffer(1, host), builder.stream("d2h", gpu))
    machine = gpus()
    isolated = type(machine)(name="island", devices=machine.devices)

    with pytest.raises(MachineError, match="machine 'island' has no route from 'gpu0' to 'host'"):
        simulate(builder.build(), isolated, RowCosts())


@pytest.mark.parametrize(
    ("costs", "message"),
    [
        (RowCosts(seconds=-1.0), "cost seconds must be finite and >= 0, got -1.0"),
        (RowCosts(seconds=math.inf), "cost seconds must be finite and >= 0, got inf"),
        (RowCosts(launch_s=math.nan), "cost launch_s must be finite and >= 0, got nan"),
        (RowCosts(latency_s=-0.5), "cost latency_s must be finite and >= 0, got -0.5"),
        (RowCosts(rate_cap_bytes_per_s=0.0), "cost rate_cap_bytes_per_s must be > 0, got 0.0"),
        (RowCosts(rate_cap_bytes_per_s=math.nan), "cost rate_cap_bytes_per_s must be > 0, got nan"),
    ],
)
def test_a_senseless_cost_is_refused(costs, message):
    with pytest.raises(CalibrationError, match=message):
        simulate(one_layer(), gpus(), costs)


def test_costs_of_another_plan_are_refused():
    class OfAnotherPlan:
        def task_costs(self, plan, machine):
            builder = PlanBuilder()
            builder.host(builder.work("begin"))
            return RowCosts().task_costs(builder.build(), machine)

    with pytest.raises(CalibrationError, match="costs are for 1 tasks, the plan has 4"):
        simulate(one_layer(), gpus(), OfAnotherPlan())


def many_kernels(num):
    builder = PlanBuilder()
    stream = builder.stream("compute", builder.device("gpu0"))
    for _ in range(num):
        builder.compute(builder.work("F"), stream)
    return builder.build()


def test_progress_is_told_how_many_tasks_have_ended_of_how_many():
    told = []

    simulate(
        many_kernels(2500),
        gpus(),
        RowCosts(seconds=1.0),
        engine="reference",
        progress=lambda num_ended, num_tasks: told.append((num_ended, num_tasks)),
    )

    assert told == [(1000, 2500), (2000, 2500)]


def test_a_run_that_is_stopped_says_how_far_it_was():
    def press_ctrl_c(num_ended, num_tasks):
        raise KeyboardInterrupt

    with pytest.raises(StoppedError, match="stopped after 1000 of 2500 tasks, at 1000 s of simulated time"):
        simulate(many_kernels(2500), gpus(), RowCosts(seconds=1.0), engine="reference", progress=press_ctrl_c)


def test_a_plan_of_host_work_alone_needs_no_device():
    builder = PlanBuilder()
    for _ in range(3):
        builder.host(builder.work("gap"))

    timeline = simulate(builder.build(), gpus(), RowCosts(seconds=2.0))

    assert timeline.makespan_s == 6.0
