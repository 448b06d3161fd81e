"""One stream waits for another: cudaEventRecord and cudaStreamWaitEvent."""

import numpy as np
import pytest
from kineto_files import KinetoFile
from replayed import replay

from stepsim.plan import NONE
from stepsim.traces import read_kineto

RECORD, WAIT = "cudaEventRecord", "cudaStreamWaitEvent"


def note(file, at, correlation, **args):
    """What newer traces tell of the call ``correlation``."""
    file.add("cuda_sync", "Stream Wait Event", at, 0, 0, correlation=correlation, **args)


def behind(*waits, starts=34):
    """
    thread     LLLLWLL              one launch on stream 7, a wait, one on stream 8
    stream 7       1111111          4..34
    stream 8              2222      starts..starts + 10
    """
    file = KinetoFile()
    file.launched(0, 4, 4, 30, correlation=1)
    for at in waits:
        file.call(at, 1, name=WAIT, correlation=50)
    file.launched(8, 2, starts, 10, correlation=2, stream=8)
    return file


@pytest.mark.parametrize("name", [WAIT, "hipStreamWaitEvent"])
def test_a_stream_that_is_told_to_wait_goes_on_behind_the_other(tmp_path, name):
    file = behind()
    file.call(5, 1, name=name)

    assert replay(file.write(tmp_path / "t.json"), slower=2).kernels_us() == [(4, 64), (64, 84)]


def test_streams_that_nobody_tells_to_wait_run_beside_each_other(tmp_path):
    assert replay(behind().write(tmp_path / "t.json"), slower=2).kernels_us() == [(4, 64), (10, 30)]


def test_a_row_that_began_before_the_other_ended_cannot_have_waited_for_it(tmp_path):
    assert replay(behind(5, starts=20).write(tmp_path / "t.json"), slower=2).kernels_us() == [(4, 64), (10, 30)]


def test_a_wait_of_a_thread_beside_holds_nothing_back(tmp_path):
    """An op of the main thread ends within the call, so that it cannot have waited for that thread."""
    file = behind()
    file.op(4, 2)
    file.call(5, 2, name=WAIT, thread=2)
    file.launched(11, 1, 50, 1, correlation=3, thread=2, stream=9)

    assert replay(file.write(tmp_path / "t.json"), slower=2).kernels_us()[1] == (10, 30)


@pytest.mark.parametrize("slower", [1, 2])
def test_what_a_thread_told_a_stream_before_its_turn_ended_holds_back_the_next_launch_of_the_main_thread(
    tmp_path, slower
):
    """
    autograd   op LLL RW op              a collective on stream 9, and stream 7 told to wait for it; its turn ends
    main                    op LLL       the optimizer
    stream 9         cccccccccc          10..60
    stream 7                    222      60..70
    """
    file = KinetoFile()
    file.step(1, 0, 100, thread=1)
    file.op(5, 15, thread=2)
    file.launched(6, 4, 10, 50, correlation=1, thread=2, stream=9)
    file.call(12, 1, name=WAIT, thread=2, correlation=0)
    file.op(30, 20, thread=1)
    file.launched(32, 4, 60, 10, correlation=2, thread=1, stream=7)

    collective_ends = 10 + 50 * slower
    assert replay(file.write(tmp_path / "t.json"), slower=slower).kernels_us() == [
        (10, collective_ends),
        (collective_ends, collective_ends + 10 * slower),
    ]


def test_a_wait_is_for_the_next_launch_alone(tmp_path):
    file = behind(5)
    file.launched(11, 2, 50, 10, correlation=3, stream=9)

    kernels_us = replay(file.write(tmp_path / "t.json"), slower=2).kernels_us()

    assert kernels_us == [(4, 64), (64, 84), (13, 33)]


def awaited(path):
    """Which of the kernels the last one depends on, by their number."""
    plan = replay(path).rebuilt.plan
    kernels = np.flatnonzero(plan.tasks.stream != NONE).tolist()
    return [kernels.index(row) for row in plan.tasks.dependencies[kernels[-1]].tolist() if row in kernels]


@pytest.mark.parametrize(("waits", "behind_kernels"), [((6,), [0]), ((6, 7), [0, 1])])
def test_each_wait_stands_for_one_row_of_another_stream_the_last_to_end_first(tmp_path, waits, behind_kernels):
    """Kernel 0 ends at 33, kernel 1 at 32."""
    file = KinetoFile()
    file.launched(0, 2, 4, 29, correlation=1)
    file.launched(2, 1, 3, 29, correlation=2, stream=9)
    for at in waits:
        file.call(at, 1, name=WAIT)
    file.launched(8, 2, 34, 10, correlation=3, stream=8)

    assert awaited(file.write(tmp_path / "t.json")) == behind_kernels


def recorded_between(tmp_path, *, told):
    """
    thread     LLLRLLLWLLL          the event is recorded between two launches on stream 7
    stream 7       1111122222       4..14, 14..34
    stream 8                  333   36..46
    """
    file = KinetoFile()
    file.launched(0, 3, 4, 10, correlation=1)
    file.call(3, 1, name=RECORD, correlation=5)
    file.launched(4, 3, 14, 20, correlation=2)
    file.call(7, 1, name=WAIT, correlation=6)
    if told:
        note(file, 7, 6, stream=8, wait_on_stream=7, wait_on_cuda_event_record_corr_id=5)
    file.launched(33, 3, 36, 10, correlation=3, stream=8)
    return file.write(tmp_path / "t.json")


def test_where_the_trace_tells_what_was_recorded_that_is_waited_for(tmp_path):
    assert awaited(recorded_between(tmp_path, told=True)) == [0]


def test_where_it_does_not_what_ended_last_is_taken_for_it(tmp_path):
    assert awaited(recorded_between(tmp_path, told=False)) == [1]


def test_a_wait_that_names_its_stream_holds_no_other_stream_back(tmp_path):
    file = behind(5)
    note(file, 5, 50, stream=9, wait_on_stream=7, wait_on_cuda_event_record_corr_id=77)

    assert replay(file.write(tmp_path / "t.json"), slower=2).kernels_us()[1] == (10, 30)


def test_the_events_of_a_trace_tell_stream_and_record_of_a_wait(tmp_path):
    events = read_kineto(recorded_between(tmp_path, told=True)).events

    assert events[events["kind"] == "record"][["stream", "correlation"]].values.tolist() == [[7, 5]]
    assert events[events["kind"] == "wait"][["stream", "awaits"]].values.tolist() == [[8, 5]]


@pytest.mark.parametrize("value", [True, -1, 0, "5", None, 2.5, 2**60])
def test_an_id_that_is_none_is_taken_as_not_recorded(tmp_path, value):
    file = behind(5)
    note(file, 5, 50, stream=value if value != 0 else -1, wait_on_cuda_event_record_corr_id=value)

    waits = read_kineto(file.write(tmp_path / "t.json")).of("wait")

    assert waits[["stream", "awaits"]].values.tolist() == [[-1, -1]]


def test_a_note_without_a_correlation_belongs_to_no_call(tmp_path):
    file = behind()
    file.call(5, 1, name=WAIT)
    note(file, 5, 0, stream=9, wait_on_cuda_event_record_corr_id=77)

    waits = read_kineto(file.write(tmp_path / "t.json")).of("wait")

    assert waits[["stream", "awaits"]].values.tolist() == [[-1, -1]]


MULTI_STREAM = [
    "hta/trace_diff/control/control.json.gz",
    "hta/negative_queue_length_values_check/rank0.json.gz",
    "param/dlrm_kineto/worker1_step_12.1694128201556.pt.trace.json.gz",
    "tracelens/mi300/resnet_act_checkpoint.json.gz",
]


@pytest.mark.parametrize("name", MULTI_STREAM)
def test_steps_of_several_streams_are_rebuilt(data_dir, name):
    errors = [abs(step.relative) for step in replay(data_dir / name).steps]

    assert float(np.median(errors)) <= 0.01
