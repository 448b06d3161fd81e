"""Changes of a recorded run: closed forms on tiny traces, and bounds on random ones."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kineto_files import KinetoFile
from replayed import US

from stepsim.replay import run_again
from stepsim.traces import machine_of, read_kineto, rebuild, step_errors
from stepsim.traces.changes import on_one_stream, provable, without_copies, without_host_work, without_launch_costs


def changed(file, tmp_path, change):
    """The first step in microseconds before and after."""
    trace = read_kineto(file.write(tmp_path / "t.json"))
    before = rebuild(trace)
    runs = [run_again(run, machine_of(trace)) for run in (before, change(before))]
    return [step_errors(before, timeline)[0].predicted_s / US for timeline in runs]


def test_without_launch_costs_a_launch_bound_step_takes_its_gaps(tmp_path):
    """
    thread   .LLLL.LLLL.LLLL.      each launch 4, each gap 1
    stream       1    1    1       each kernel 1
    """
    file = KinetoFile()
    file.step(1, 0, 16)
    for number in range(3):
        file.launched(1 + 5 * number, 4, 5 + 5 * number, 1, correlation=number + 1)

    assert changed(file, tmp_path, without_launch_costs) == pytest.approx([16, 4])


def copy_and_kernel():
    """
    thread   CCCCCCCCCCCCLLSSSSSSSSSS..      a pageable copy of 10 after 2 to start it, a kernel of 10, 2 of host work
    stream     ccccccccccc kkkkkkkkkk
    """
    file = KinetoFile()
    file.step(1, 0, 26)
    file.call(0, 12, correlation=1, name="cudaMemcpyAsync")
    file.copy(2, 10, correlation=1, size_bytes=10**6)
    file.launched(12, 2, 14, 10, correlation=2)
    file.sync(14, 10)
    return file


def test_without_copies_a_step_takes_the_rest(tmp_path):
    assert changed(copy_and_kernel(), tmp_path, without_copies) == pytest.approx([26, 26 - 12])


def test_on_one_stream_what_ran_side_by_side_runs_one_after_the_other(tmp_path):
    """
    stream 7   kkkkkkkkkkkkkkkkkkkkkkkkkkkkkk        4..34, then 8 runs behind it until 54
    stream 8       kkkkkkkkkkkkkkkkkkkk              8..28
    """
    file = KinetoFile()
    file.step(1, 0, 36)
    file.launched(0, 4, 4, 30, correlation=1, stream=7)
    file.launched(4, 4, 8, 20, correlation=2, stream=8)
    file.sync(8, 26, name="cudaDeviceSynchronize")

    assert changed(file, tmp_path, on_one_stream) == pytest.approx([36, 56])


@pytest.mark.parametrize(("interval", "left"), [((0, 10), 0), ((2, 5), 7), ((8, 14), 8), ((11, 13), 10), ((-5, 30), 0)])
def test_host_work_loses_what_of_it_lies_in_an_interval_and_calls_nothing(tmp_path, interval, left):
    """
    thread   ..........LLLL      10 of host work, a launch of 4
    """
    file = KinetoFile()
    file.step(1, 0, 14)
    file.launched(10, 4, 14, 5, correlation=1)
    begin_s, end_s = (np.array([time * US]) for time in interval)

    after = changed(file, tmp_path, lambda run: without_host_work(run, begin_s, end_s))[1]

    assert after == pytest.approx(left + 4)


ROWS = st.lists(
    st.tuples(
        st.integers(0, 9),  # host work before the launch
        st.integers(1, 9),  # launch
        st.integers(7, 9),  # stream
        st.integers(0, 30),  # how long it waits beyond issue and stream
        st.integers(1, 30),  # how long it runs
        st.sampled_from(["kernel", "copy", "wait", "sync"]),
    ),
    min_size=1,
    max_size=10,
)


def random_run(rows):
    """Copies on stream 7 alone; before a row its stream is told to wait, or behind it the thread waits for all."""
    file, now, free = KinetoFile(), 2, {7: 4, 8: 0, 9: 0}
    file.launched(0, 2, 2, 2, correlation=1)
    for correlation, (gap, launch, stream, waits, runs, what) in enumerate(rows, start=2):
        begins = now + gap
        if what == "wait":
            file.call(begins, 0, name="cudaStreamWaitEvent")
        issued = begins + launch
        lane = 7 if what == "copy" else stream
        starts = max(issued, free[lane]) + waits
        if what == "copy":
            file.call(begins, launch, correlation=correlation, name="cudaMemcpyAsync")
            file.copy(starts, runs, correlation, size_bytes=8, ends="HtoD (Pinned -> Device)", stream=lane)
        else:
            file.launched(begins, launch, starts, runs, correlation, stream=lane)
        now, free[lane] = issued, starts + runs
        if what == "sync":
            file.sync(now, max(0, max(free.values()) - now), name="cudaDeviceSynchronize")
            now = max(now, *free.values())
    return file


@pytest.mark.parametrize(("change", "sign"), [(without_launch_costs, 1), (without_copies, 1), (on_one_stream, -1)])
@settings(max_examples=40)
@given(rows=ROWS)
def test_no_row_goes_beyond_the_bound_of_a_change_not_by_a_bit(tmp_path_factory, change, sign, rows):
    trace = read_kineto(random_run(rows).write(tmp_path_factory.mktemp("run") / "t.json"))
    run = rebuild(trace)

    before, after = (run_again(each, machine_of(trace)).spans for each in (run, change(run)))

    assert provable(run)
    assert (sign * (before.start_s - after.start_s) >= 0).all()
    assert (sign * (before.end_s - after.end_s) >= 0).all()


@pytest.mark.parametrize(("ends", "certain"), [("HtoD (Pinned -> Device)", False), ("DtoH (Device -> Pinned)", True)])
def test_two_streams_that_copy_the_same_way_leave_nothing_certain(tmp_path, ends, certain):
    file = KinetoFile()
    file.launched(0, 2, 2, 2, correlation=1)
    copies = [(7, "HtoD (Pinned -> Device)"), (8, ends)]
    for correlation, (stream, way) in enumerate(copies, start=2):
        file.call(4 * correlation, 2, correlation=correlation, name="cudaMemcpyAsync")
        file.copy(20 * correlation, 5, correlation, size_bytes=8, ends=way, stream=stream)

    assert provable(rebuild(read_kineto(file.write(tmp_path / "t.json")))) is certain
