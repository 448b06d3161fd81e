"""What passes on a stream between two rows: turning to the next one, and what a graph did that was not recorded."""

import pytest
from kineto_files import KinetoFile
from replayed import US, replay

from stepsim.traces.rows import NOT_RECORDED, TURNAROUND_S

LONGEST_US = round(TURNAROUND_S / US)


def queued(tmp_path, idle):
    """
    thread   LLLLLLLL                both issued by 8
    stream       11111111..2222      4..34, then ``idle``, then 10
    """
    file = KinetoFile()
    file.launched(0, 4, 4, 30, correlation=1)
    file.launched(4, 4, 34 + idle, 10, correlation=2)
    return file.write(tmp_path / "t.json")


@pytest.mark.parametrize("idle", [1, LONGEST_US])
def test_a_stream_that_takes_its_time_to_turn_to_the_next_row_takes_it_again(tmp_path, idle):
    assert replay(queued(tmp_path, idle)).kernels_us() == [(4, 34), (34, 44 + idle)]


def test_a_longer_wait_is_for_something_and_not_the_streams_own(tmp_path):
    assert replay(queued(tmp_path, LONGEST_US + 1)).kernels_us() == [(4, 34), (34, 44)]


def test_a_row_that_was_issued_late_pays_its_launch_alone(tmp_path):
    file = KinetoFile()
    file.launched(0, 4, 4, 5, correlation=1)
    file.launched(20, 4, 27, 10, correlation=2)

    assert replay(file.write(tmp_path / "t.json")).kernels_us() == [(4, 9), (24, 34)]


def graph(tmp_path, *, call):
    """
    thread   LLLL
    stream       11111.........22222      4..14, and from 64 to 74
    """
    file = KinetoFile()
    file.step(1, 0, 80)
    file.call(0, 4, correlation=1, name=call)
    for starts in (4, 64):
        file.kernel(starts, 10, correlation=1)
    file.sync(4, 70)
    return file.write(tmp_path / "t.json")


def test_what_a_graph_did_between_two_kernels_and_nobody_recorded_is_a_row(tmp_path):
    replayed = replay(graph(tmp_path, call="cudaGraphLaunch"), slower=2)

    assert replayed.kernels_us() == [(4, 24), (24, 124), (124, 144)]
    assert NOT_RECORDED in replayed.rebuilt.plan.work.kind
    assert replayed.steps_us == pytest.approx([144 + 6])


def test_other_launches_leave_nothing_unrecorded(tmp_path):
    replayed = replay(graph(tmp_path, call="cudaLaunchKernel"))

    assert replayed.kernels_us() == [(4, 14), (14, 24)]


def test_a_graph_that_began_unrecorded_waits_first(tmp_path):
    """
    thread     LLLLWLL               a wait for the row on stream 7, then a graph on stream 8
    stream 7       1111111           4..34
    stream 8              ....2222   begins at 84
    """
    file = KinetoFile()
    file.launched(0, 4, 4, 30, correlation=1)
    file.call(5, 1, name="cudaStreamWaitEvent")
    file.call(8, 2, correlation=2, name="cudaGraphLaunch")
    file.kernel(84, 10, 2, stream=8)

    assert replay(file.write(tmp_path / "t.json")).kernels_us() == [(4, 34), (34, 84), (84, 94)]
    assert replay(file.write(tmp_path / "t.json"), slower=2).kernels_us() == [(4, 64), (64, 164), (164, 184)]
