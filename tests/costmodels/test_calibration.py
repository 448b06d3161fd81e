import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from recordings import (
    COPY_S,
    LAUNCH_S,
    MOVE_BYTES_PER_S,
    PEAK_FLOP_PER_S,
    WORK_S,
    copy_rows,
    launch_rows,
    recorded,
    swapped,
    work_rows,
)
from small_machines import cpu, gpus

from stepsim.costmodels import Calibration
from stepsim.errors import CalibrationError
from stepsim.plan import Origin, TaskKind
from stepsim.plan.builder import PlanBuilder
from stepsim.simulator import simulate

CALIBRATION = Calibration.fit([recorded()])

FAST_BYTES_PER_S = 1e9
"""A link that bounds no copy of these tests."""


def durations_s(timeline, kind):
    return [span.duration_s for span in timeline if span.kind is kind]


def test_a_small_plan_by_hand():
    """
    row    work                       origin          seconds
    F      timed                      measured        median 4
    out    40 bytes                   interpolated    2
    back   40 bytes                   interpolated    2
    B      timed                      measured        median 1/2
    """
    plan, machine = swapped([40]), gpus(bandwidth_bytes_per_s=FAST_BYTES_PER_S)

    costs = CALIBRATION.task_costs(plan, machine)

    seconds = costs.seconds_alone(plan, machine)
    origins = [Origin(code) for code in costs.table.origin[costs.index]]
    assert seconds == pytest.approx([WORK_S["matrix"], COPY_S[40], 0.0, COPY_S[40], WORK_S["small"]])
    assert [origins[row] for row in (0, 1, 3, 4)] == [
        Origin.MEASURED,
        Origin.INTERPOLATED,
        Origin.INTERPOLATED,
        Origin.MEASURED,
    ]
    assert costs.table.launch_s[costs.index].tolist() == [LAUNCH_S] * len(plan)


def test_work_that_was_never_timed_takes_its_roofline_and_says_so():
    builder = PlanBuilder()
    stream = builder.stream("compute", builder.device("gpu0"))
    builder.compute(builder.work("new", signature="?", flop=9000, bytes_read=10), stream)
    builder.compute(builder.work("new", signature="!", bytes_read=300, bytes_written=100), stream)
    plan = builder.build()

    costs = CALIBRATION.task_costs(plan, gpus())

    assert costs.seconds_alone(plan, gpus()) == pytest.approx([9000 / PEAK_FLOP_PER_S, 400 / MOVE_BYTES_PER_S])
    assert costs.table.origin[costs.index].tolist() == [Origin.ROOFLINE] * 2


@given(st.integers(0, 2000), st.floats(1.0, 1e9))
def test_a_transfer_alone_takes_what_the_model_predicts_or_what_the_links_need(size_bytes, bandwidth_bytes_per_s):
    machine = gpus(bandwidth_bytes_per_s=bandwidth_bytes_per_s)

    timeline = simulate(swapped([size_bytes]), machine, CALIBRATION)

    model = CALIBRATION.transfers["device to host"]
    predicted_s = model.predict(pd.DataFrame({"size_bytes": [size_bytes]})).seconds[0]
    expected_s = max(predicted_s, size_bytes / bandwidth_bytes_per_s)
    assert durations_s(timeline, TaskKind.SWAP_OUT) == pytest.approx([expected_s], rel=1e-12)
    assert durations_s(timeline, TaskKind.SWAP_IN) == pytest.approx([expected_s], rel=1e-12)


def test_each_direction_has_its_own_model():
    slower = [{**row, "duration_s": 3 * row["duration_s"]} for row in copy_rows(ways=[("host", "device")])]
    trace = recorded([*work_rows(), *copy_rows(ways=[("device", "host")]), *slower, *launch_rows()])

    timeline = simulate(swapped([160]), gpus(bandwidth_bytes_per_s=FAST_BYTES_PER_S), Calibration.fit([trace]))

    assert durations_s(timeline, TaskKind.SWAP_OUT) == pytest.approx([4.0])
    assert durations_s(timeline, TaskKind.SWAP_IN) == pytest.approx([12.0])


def test_what_occurs_many_times_is_priced_once():
    """Two works, two sizes in two directions, and nothing."""
    plan = swapped([10, 40, 10, 40, 10])

    costs = CALIBRATION.task_costs(plan, gpus())

    assert len(costs.table) == 2 + 2 * 2 + 1
    assert len(costs.index) == len(plan)


def test_another_machine_is_refused_by_both_names():
    calibration = Calibration.fit([recorded(machine="big")])

    with pytest.raises(CalibrationError, match=r"'big'.*'small'"):
        calibration.task_costs(swapped([10]), gpus())


def test_a_copy_that_was_never_timed_is_refused_by_its_direction():
    trace = recorded([*work_rows(), *copy_rows(ways=[("device", "host")]), *launch_rows()])

    with pytest.raises(CalibrationError, match="no copies host to device"):
        Calibration.fit([trace]).task_costs(swapped([10]), gpus())


def test_a_plan_without_copies_needs_none():
    builder = PlanBuilder()
    builder.compute(builder.work("F", signature="matrix"), builder.stream("compute", builder.device("cpu0")))
    calibration = Calibration.fit([recorded([*work_rows(), *launch_rows()])])

    timeline = simulate(builder.build(), cpu(), calibration)

    assert timeline.makespan_s == pytest.approx(LAUNCH_S + WORK_S["matrix"])


def test_a_collective_takes_what_the_links_of_its_team_need():
    builder = PlanBuilder()
    devices = [builder.device("cpu0"), builder.device("host")]
    group = builder.group()
    for device in devices:
        builder.collective("all_reduce", devices, builder.stream("reduce", device), group, size_bytes=8)
    plan = builder.build()

    alone_s = CALIBRATION.task_costs(plan, cpu()).seconds_alone(plan, cpu())

    assert alone_s.tolist() == [8.0, 8.0]  # 2 (n - 1) / n of 8 bytes at 1 byte a second, over links without latency


def test_several_traces_of_one_machine_make_one_calibration():
    work = recorded([*work_rows(), *launch_rows()], date="Monday")
    copies = recorded([*copy_rows(), *launch_rows()], date="Tuesday")

    both = Calibration.fit([work, copies])

    assert set(both.work.entries_) == set(WORK_S)
    assert set(both.transfers) == {"device to host", "host to device"}
    assert both.provenance == {"machine": "small", "source": "test", "date": "Monday; Tuesday"}


def one_copy_out(size_bytes, **facts):
    builder = PlanBuilder()
    gpu, host = builder.device("gpu0"), builder.device("host")
    stream = builder.stream("d2h", gpu)
    y = builder.buffer(size_bytes, gpu, owner=stream)
    builder.compute(builder.work("F", signature="matrix"), stream, writes=[y], allocates=[y])
    builder.copy(y, builder.buffer(size_bytes, host), stream, **facts)
    return builder.build()


def test_swaps_of_a_gpu_go_through_pinned_memory():
    pinned = copy_rows(ways=[("device", "pinned"), ("pinned", "device")])
    slower = [{**row, "duration_s": 9 * row["duration_s"]} for row in copy_rows(ways=[("device", "pageable")])]

    calibration = Calibration.fit([recorded([*work_rows(), *slower, *pinned, *launch_rows()])])

    assert {name: model.seconds_.tolist() for name, model in calibration.transfers.items()} == {
        "device to host": pytest.approx(list(COPY_S.values())),
        "host to device": pytest.approx(list(COPY_S.values())),
        "device to pageable": pytest.approx([9 * seconds for seconds in COPY_S.values()]),
    }


@pytest.mark.parametrize(("blocks", "seconds"), [(False, 4.0), (True, 36.0)])
def test_a_copy_that_holds_its_thread_costs_what_pageable_memory_does(blocks, seconds):
    pinned = copy_rows(ways=[("device", "pinned"), ("pinned", "device")])
    slower = [{**row, "duration_s": 9 * row["duration_s"]} for row in copy_rows(ways=[("device", "pageable")])]
    calibration = Calibration.fit([recorded([*work_rows(), *slower, *pinned, *launch_rows()])])

    plan = one_copy_out(160, blocks_thread=blocks)

    machine = gpus(bandwidth_bytes_per_s=FAST_BYTES_PER_S)

    assert calibration.task_costs(plan, machine).seconds_alone(plan, machine)[-1] == pytest.approx(seconds)


def test_a_pageable_copy_that_nobody_timed_costs_what_a_pinned_one_does():
    calibration = Calibration.fit([recorded()])
    plan = one_copy_out(160, blocks_thread=True)

    machine = gpus(bandwidth_bytes_per_s=FAST_BYTES_PER_S)

    assert calibration.task_costs(plan, machine).seconds_alone(plan, machine)[-1] == pytest.approx(COPY_S[160])


def test_copies_whose_repeats_scatter_carry_a_spread():
    """Repeats at 1 and 1.5 times the time: log 1.5 / sqrt 2. Sizes left out of the steady ones err too."""
    slower = [{**row, "duration_s": 1.5 * row["duration_s"]} for row in copy_rows()]
    plan = one_copy_out(160)

    steady, noisy = (
        calibration.task_costs(plan, gpus()).table.spread[-2]
        for calibration in (
            CALIBRATION,
            Calibration.fit([recorded([*work_rows(), *copy_rows(), *slower, *launch_rows()])]),
        )
    )

    assert noisy == pytest.approx(np.hypot(steady, np.log(1.5) / np.sqrt(2)))


def test_pageable_copies_of_one_size_tell_of_no_other():
    single = copy_rows(ways=[("device", "pageable")])[:1]

    calibration = Calibration.fit([recorded([*work_rows(), *copy_rows(), *single, *launch_rows()])])

    assert set(calibration.transfers) == {"device to host", "host to device"}


def test_kernels_that_stand_for_no_work_are_left_out():
    stray = {"kind": "kernel", "name": "gemm", "duration_s": 1e6, "flop": 1, "size_bytes": 1}

    calibration = Calibration.fit([recorded([*work_rows(), stray, *launch_rows()])])

    assert set(calibration.work.entries_) == set(WORK_S)
    assert calibration.roofline.flop_per_s_ == pytest.approx(PEAK_FLOP_PER_S)


@pytest.mark.parametrize(
    ("traces", "problem"),
    [
        ([recorded(machine="a"), recorded(machine="b")], r"agree on machine, they name \['a', 'b'\]"),
        ([recorded(threads="2"), recorded(threads="1")], r"agree on threads, they name \['1', '2'\]"),
        ([recorded(machine="")], "name no machine"),
        ([], "name no machine"),
        ([recorded([*work_rows(), *copy_rows()])], "no launches"),
        ([recorded([*copy_rows(), *launch_rows()])], "table of work needs samples"),
    ],
    ids=["two machines", "two numbers of threads", "unnamed machine", "no traces", "no launches", "no work"],
)
def test_traces_that_make_no_calibration_are_refused(traces, problem):
    with pytest.raises(CalibrationError, match=problem) as refused:
        Calibration.fit(traces)

    assert "\n" not in str(refused.value)


def test_the_errors_are_those_of_the_models():
    """A fifth of the way from 1 s to 4 s the guess for the middle size is 1.6 s, and it took 2 s."""
    errors = CALIBRATION.errors()

    assert errors["copy device to host, size left out"] == pytest.approx(0.2)
    assert errors["measured work, other repeats"] == CALIBRATION.work.repeat_error_
    assert errors["roofline, work left out"] == CALIBRATION.roofline.left_out_error_


def test_an_error_that_nothing_was_held_out_for_is_not_told():
    two_sizes = [row for row in copy_rows() if row["size_bytes"] != 40]
    calibration = Calibration.fit([recorded([*work_rows(repeats=(0.0,)), *two_sizes, *launch_rows()])])

    assert set(calibration.errors()) == {"roofline, work left out"}
