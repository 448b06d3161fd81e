"""What PlanBuilder refuses at once: numbers that a column cannot hold, and references to nothing."""

import numpy as np
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

    with pytest.raises(PlanError, match=rf"^row 0: buffer must be in 0\.\.0, got {buffer}$"):
        builder.compute(builder.work("F"), s0, **{role: [buffer]})


@pytest.mark.parametrize("number", [2, -1])
def test_the_short_forms_refuse_an_unknown_buffer_too(number):
    builder, gpu, (s0, _) = two_streams()
    known = [builder.buffer(8, gpu) for _ in range(2)]
    builder.compute(builder.work("F"), s0)

    for write in (
        lambda: builder.copy(number, known[0], s0),
        lambda: builder.swap_out(known[0], number, s0),
        lambda: builder.swap_in(number, known[0], s0),
        lambda: builder.send(number, gpu, s0, 0),
        lambda: builder.receive(number, gpu, s0, 0),
    ):
        with pytest.raises(PlanError, match=rf"^row 1: buffer must be in 0\.\.1, got {number}$"):
            write()


def test_an_index_that_is_no_whole_number_is_refused_with_the_row():
    builder, gpu, (s0, _) = two_streams()
    builder.buffer(8, gpu)

    with pytest.raises(PlanError, match=r"^row 0: stream must be in -1\.\.1, got 's0'$"):
        builder.compute(builder.work("F"), "s0")
    with pytest.raises(PlanError, match=r"^row 0: buffer must be in 0\.\.0, got 0\.5$"):
        builder.compute(builder.work("F"), s0, reads=[0.5])


@pytest.mark.parametrize("row", [0.5, 2**63])
def test_a_row_to_wait_for_that_is_no_64_bit_number_is_refused_and_not_cut(row):
    builder, _, (s0, s1) = two_streams()
    builder.compute(builder.work("F"), s0)
    builder.compute(builder.work("F"), s1, after=[row])

    with pytest.raises(PlanError, match=r"^TaskTable\.dependencies must be a whole number that fits int64, got "):
        builder.build()


@pytest.mark.parametrize(("field", "value"), [("ops", [1.5]), ("flop", 10.7), ("batch", "8")])
def test_what_a_column_of_work_cannot_hold_is_refused(field, value):
    builder, _, _ = two_streams()
    builder.work("F", **{field: value})

    with pytest.raises(PlanError, match=rf"^WorkTable\.{field} must be a whole number"):
        builder.build()


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


@pytest.mark.parametrize("wrong", [2, "yes"])
def test_what_is_no_truth_value_is_refused(wrong):
    builder, _, (s0, _) = two_streams()
    builder.compute(builder.work("F"), s0, blocks_thread=wrong)

    with pytest.raises(PlanError, match=r"^TaskTable\.blocks_thread must be .* bool, got "):
        builder.build()


def test_whole_numbers_of_numpys_types_are_taken_as_they_are():
    builder, gpu, _ = two_streams()
    for size_bytes in (np.uint64(2**60), 0, np.int8(3)):
        builder.buffer(size_bytes, gpu)

    assert builder.build().buffers.size_bytes.tolist() == [2**60, 0, 3]


def test_an_index_into_an_empty_table_is_told_so():
    builder, _, (s0, _) = two_streams()
    builder.compute(5, s0)

    with pytest.raises(PlanError, match=r"^row 0: work is 5: the plan has no work$"):
        builder.build()


def test_a_stream_of_a_plan_that_has_none_is_told_so():
    builder = PlanBuilder()

    with pytest.raises(PlanError, match=r"^row 0: stream is 0: the plan has none$"):
        builder.compute(builder.work("F"), 0)


def test_more_bytes_than_can_be_added_up_are_refused():
    builder, gpu, _ = two_streams()
    for _ in range(4):
        builder.buffer(2**61, gpu)

    with pytest.raises(PlanError, match=r"at most 2\*\*62 bytes, they have 9\.22e\+18"):
        builder.build()
