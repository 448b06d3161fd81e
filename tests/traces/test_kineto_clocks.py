"""A clock is doubted where what it says contradicts the order of launches, and nowhere else."""

import warnings

import pytest
from kineto_files import KinetoFile

from stepsim.errors import FileError
from stepsim.traces import read_kineto


def warned(file, tmp_path):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        read_kineto(file.write(tmp_path / "t.json"))
    return [str(warning.message).partition("t.json: ")[2] for warning in caught]


def launches(*pairs, first=1):
    """Launches of 2 us and kernels of 10 us; a pair is when each of the two starts."""
    file = KinetoFile()
    for correlation, (at, starts) in enumerate(pairs, first):
        file.launched(at, 2, starts, 10, correlation=correlation)
    return file


def test_events_need_not_stand_in_the_order_of_their_times(tmp_path):
    file = launches((0, 5), (10, 20), (20, 40))
    file.events.reverse()

    assert warned(file, tmp_path) == []


def test_calls_that_launch_nothing_may_be_numbered_in_any_order(tmp_path):
    file = launches((0, 5), (30, 40))
    file.call(10, 1, name="cudaEventRecord", correlation=900)
    file.call(12, 1, name="cudaStreamWaitEvent", correlation=50)

    assert warned(file, tmp_path) == []


def test_threads_may_number_their_launches_on_one_stream_as_they_please(tmp_path):
    file = launches((0, 15), (10, 40))
    file.launched(5, 2, 25, 10, correlation=77, thread=2)

    assert warned(file, tmp_path) == []


def test_launches_that_go_back_are_told_once_though_their_kernels_go_back_too(tmp_path):
    (warning,) = warned(launches((0, 1000), (500, 1020), (460, 1040), (480, 1060)), tmp_path)

    assert warning == (
        "traceEvents[4].ts: 1 of 3 calls of a runtime start before an earlier call of their thread, by up to 40.0 us:"
        " clocks jumped or disagree"
    )


def test_kernels_that_go_back_on_their_stream_are_told(tmp_path):
    """The third was launched last and runs first."""
    (warning,) = warned(launches((0, 100), (10, 120), (20, 60)), tmp_path)

    assert warning == (
        "traceEvents[5].ts: 1 of 2 kernels and copies start before what was launched earlier on their stream,"
        " by up to 60.0 us: clocks jumped or disagree"
    )


def test_streams_may_overtake_each_other(tmp_path):
    file = launches((0, 100), (10, 120))
    file.launched(20, 2, 60, 10, correlation=3, stream=8)
    file.launched(30, 2, 70, 10, correlation=4, device=1)

    assert warned(file, tmp_path) == []


def test_what_is_rounded_to_a_microsecond_is_no_jump(tmp_path):
    assert warned(launches((0, 5), (16, 15)), tmp_path) == []


def test_a_kernel_without_a_launch_has_no_order(tmp_path):
    file = launches((50, 60), (70, 80), first=5)
    file.kernel(0, 10, correlation=90)
    file.kernel(100, 10, correlation=1)

    assert warned(file, tmp_path) == []


@pytest.mark.parametrize("back_us", [15, 25])
def test_kernels_that_a_jump_lays_over_others_are_refused(tmp_path, back_us):
    file = KinetoFile()
    for number in range(2):
        file.launched(number, 1, 100 + (40 - back_us) * number, 40, correlation=number + 1)

    with pytest.raises(FileError, match="overlaps an earlier row by more than 10 us"):
        read_kineto(file.write(tmp_path / "t.json"))
