"""What each stage of a pipeline holds, against closed forms."""

import pytest
from parallel_steps import WIDTH, tower
from small_machines import gpus

from stepsim.memory import memory_profile
from stepsim.strategies.parallel import Layout, lay_out
from stepsim.strategies.parallel.schedule import SCHEDULES, gpipe, one_forward_one_backward
from stepsim.workloads import Phase
from stepsim.workloads.shapes import transformer

STATE_BYTES, GRADIENT_BYTES = (2 + 12) * WIDTH * WIDTH, 2 * WIDTH * WIDTH
"""A weight and Adam's state of it; its gradient, which the first backward pass makes."""


def peaks(batch, layout):
    plan = lay_out(tower(layout.pipeline, batch), gpus(layout.num_devices), layout)
    return list(memory_profile(plan).peaks().values())


def test_a_stage_of_1f1b_holds_as_many_microbatches_as_stages_are_left():
    """Stage s of p runs one layer, whose backward needs its input: p - s of them, and while a backward pass runs

    - the input of the next microbatch, which is received ahead,
    - the gradient that came (not on the last stage) and the one that it makes.

    The first stage keeps no input: all tokens are there from the start, and nobody sends it any. When the pipeline
    drains, one backward pass follows the other there, and the next gradient is received ahead.
    """
    p, m, batch = 4, 8, 24
    unit = batch // m * WIDTH * 2
    tokens = batch * WIDTH * 8

    found = peaks(batch, Layout(pipeline=p, microbatches=m))

    fixed = STATE_BYTES + GRADIENT_BYTES
    middle = [fixed + (p - s + 1 + 2) * unit for s in (1, 2)]
    assert found == [fixed + tokens + (2 + 1) * unit, *middle, fixed + (1 + 1 + 1) * unit]


@pytest.mark.parametrize("m", [4, 8])
def test_a_stage_of_gpipe_holds_all_microbatches(m):
    """All m inputs, two gradients that came and the one that is made, in the first backward pass; or in the second,

    which has one input less, and the weight's gradient that the first one made.
    """
    p, batch = 4, 24
    unit = batch // m * WIDTH * 2

    found = peaks(batch, Layout(pipeline=p, microbatches=m, schedule="gpipe"))

    first, second = STATE_BYTES + (m + 2 + 1) * unit, STATE_BYTES + GRADIENT_BYTES + (m - 1 + 2 + 1) * unit
    assert found[1:3] == [max(first, second)] * 2


@pytest.mark.parametrize("tensor", [2, 4])
def test_tensor_ranks_divide_all_but_the_inputs(tensor):
    workload = transformer(layers=2, hidden=16, sequence=8, batch=4, vocabulary=32)
    inputs = 2 * 4 * 8 * 8

    alone, divided = (
        memory_profile(lay_out(workload, gpus(num), Layout(tensor=num))).peak_bytes("gpu0") for num in (1, tensor)
    )

    assert divided - inputs == pytest.approx((alone - inputs) / tensor, abs=4)  # the loss, one number, is not divided


def test_data_ranks_divide_inputs_and_activations_but_no_weights():
    one, two = (peaks(24, Layout(data=num))[0] for num in (1, 2))

    assert two - STATE_BYTES == (one - STATE_BYTES) / 2


def test_nothing_that_a_step_makes_is_left():
    plan = lay_out(tower(4), gpus(8), Layout(data=2, pipeline=4, microbatches=4))

    assert sorted(plan.tasks.allocates.values.tolist()) == sorted(plan.tasks.releases.values.tolist())


@pytest.mark.parametrize("stage", range(4))
def test_1f1b_has_at_most_as_many_microbatches_in_flight_as_stages_are_left(stage):
    in_flight, most = 0, 0
    for phase, _ in one_forward_one_backward(stage, 4, 8):
        in_flight += 1 if phase is Phase.FORWARD else -1
        most = max(most, in_flight)

    assert (most, in_flight) == (4 - stage, 0)


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("microbatches", [1, 2, 5])
def test_a_schedule_runs_every_microbatch_forward_and_then_backward(schedule, microbatches):
    for stage in range(3):
        slots = SCHEDULES[schedule](stage, 3, microbatches)

        passes = [(phase, i) for phase in (Phase.BACKWARD, Phase.FORWARD) for i in range(microbatches)]
        assert sorted(slots) == passes
        assert all(slots.index((Phase.FORWARD, i)) < slots.index((Phase.BACKWARD, i)) for i in range(microbatches))


def test_the_schedules_are_those_of_the_pictures():
    def text(slots):
        return " ".join(f"{phase[0].upper()}{number}" for phase, number in slots)

    assert text(gpipe(0, 2, 3)) == "F0 F1 F2 B0 B1 B2"
    assert text(one_forward_one_backward(0, 2, 4)) == "F0 F1 B0 F2 B1 F3 B2 B3"
    assert text(one_forward_one_backward(1, 2, 4)) == "F0 B0 F1 B1 F2 B2 F3 B3"
