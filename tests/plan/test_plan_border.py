"""What PlanBuilder refuses at once: numbers that a column cannot hold, and references to nothing."""

import pytest

from stepsim.errors import PlanError
from stepsim.plan.builder import PlanBuilder


def two_streams():
    builder = PlanBuilder()
    gpu = builder.device("gpu0")
    return builder, gpu, [builder.stream(name, gpu) for name in ("s0", "s1")]


@pytest.mark.parametrize("stream", [2, 7, -5])
def test_an_unknown_stream_is_refused_with_the_row(stream):
    builder, _, (s0, _) = two_streams()
    builder.compute(builder.work("F"), s0)

    with pytest.raises(PlanError, match=rf"^row 1: stream must be in -1\.\.1, got {stream}$"):
        builder.compute(builder.work("F"), stream)


def test_an_unknown_thread_is_refused_with_the_row():
    builder, _, (s0, _) = two_streams()

    with pytest.raises(PlanError, match=r"^row 0: thread must be in 0\.\.0, got 3$"):
        builder.compute(builder.work("F"), s0, thread=3)


@pytest.mark.parametrize("role", ["reads", "writes", "allocates", "releases"])
@pytest.mark.parametrize("buffer", [1, -1])
def test_an_unknown_buffer_is_refused_with_the_row_and_none_is_counted_from_the_end(role, buffer):
    builder, gpu, (s0, _) = two_streams()
    builder.buffer(8, gpu)

    with pytest.raises(PlanError, match=rf"^row 0: a buffer must be in 0\.\.0, got {buffer}$"):
        builder.compute(builder.work("F"), s0, **{role: [buffer]})


@pytest.mark.parametrize("size_bytes", [10.7, 2**63, "8", None])
def test_a_size_that_is_no_64_bit_number_is_refused_and_not_cut(size_bytes):
    builder, gpu, _ = two_streams()
    builder.buffer(size_bytes, gpu)

    with pytest.raises(PlanError, match=r"^BufferTable\.size_bytes must be a whole number that fits int64, got "):
        builder.build()


def test_a_priority_that_does_not_fit_its_column_is_refused():
    builder = PlanBuilder()
    builder.stream("s", builder.device("gpu0"), priority=2**31)

    with pytest.raises(PlanError, match=r"^StreamTable\.priority must be .* int32, got 2147483648$"):
        builder.build()


def test_flop_beyond_64_bits_are_refused():
    builder, _, (s0, _) = two_streams()
    builder.compute(builder.work("F", flop=2**64), s0)

    with pytest.raises(PlanError, match=r"^WorkTable\.flop must be .* int64, got 18446744073709551616$"):
        builder.build()


def test_a_device_that_is_there_twice_would_have_twice_its_memory():
    builder = PlanBuilder()
    for number in range(2):
        builder.stream(f"s{number}", builder.device("gpu0"))

    with pytest.raises(PlanError, match=r"^two devices are called 'gpu0'$"):
        builder.build()


def test_a_group_of_no_number_is_refused():
    builder, gpu, (s0, _) = two_streams()
    builder.collective("all_reduce", [gpu], s0, -5, size_bytes=8)

    with pytest.raises(PlanError, match=r"^row 0: group must be in -1\.\..*, got -5$"):
        builder.build()


def test_more_bytes_than_can_be_added_up_are_refused():
    builder, gpu, _ = two_streams()
    for _ in range(4):
        builder.buffer(2**61, gpu)

    with pytest.raises(PlanError, match=r"at most 2\*\*62 bytes, they have 9\.22e\+18"):
        builder.build()
