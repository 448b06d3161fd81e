"""Closed forms: kernels on streams, with launch cost 0."""

import pytest
from small_machines import RowCosts, cpu, gpus, spans_of

from stepsim.plan.builder import PlanBuilder
from stepsim.simulator import simulate


@pytest.mark.parametrize("seconds", [[1.0], [3.0, 2.0, 4.0], [0.1] * 10], ids=["one", "three", "ten"])
def test_one_stream_takes_the_sum_of_its_kernels(seconds, engine):
    """Makespan is the sum.

    stream   000 11 2222
    """
    builder = PlanBuilder()
    stream = builder.stream("compute", builder.device("gpu0"))
    for _ in seconds:
        builder.compute(builder.work("F"), stream)

    timeline = simulate(builder.build(), gpus(), RowCosts(seconds=seconds), engine=engine)

    assert timeline.makespan_s == pytest.approx(sum(seconds), rel=1e-12)


@pytest.mark.parametrize(("num_left", "num_right"), [(3, 1), (2, 5), (4, 4)])
def test_two_streams_take_as_long_as_the_longer(num_left, num_right, engine):
    """With kernels of a and b seconds makespan is max(m * a, n * b).

    left     00 11 22
    right    33333 44444
    """
    a_s, b_s = 2.0, 5.0
    builder = PlanBuilder()
    gpu = builder.device("gpu0")
    left, right = builder.stream("left", gpu), builder.stream("right", gpu)
    for stream, count in ((left, num_left), (right, num_right)):
        for _ in range(count):
            builder.compute(builder.work("F"), stream)
    costs = RowCosts(seconds=[a_s] * num_left + [b_s] * num_right)

    timeline = simulate(builder.build(), gpus(), costs, engine=engine)

    assert timeline.makespan_s == pytest.approx(max(num_left * a_s, num_right * b_s), rel=1e-12)


def test_a_stream_keeps_its_order_even_when_a_later_row_is_ready_first(engine):
    """
    left     000
    right    ...1 22          row 2 waits for nothing but its turn
    """
    builder = PlanBuilder()
    gpu = builder.device("gpu0")
    left, right = builder.stream("left", gpu), builder.stream("right", gpu)
    first = builder.compute(builder.work("F"), left)
    builder.compute(builder.work("F"), right, after=[first])
    builder.compute(builder.work("F"), right)

    timeline = simulate(builder.build(), gpus(), RowCosts(seconds=[3.0, 1.0, 2.0]), engine=engine)

    assert spans_of(timeline) == [(0.0, 3.0), (3.0, 4.0), (4.0, 6.0)]


def test_a_row_starts_when_the_last_of_its_dependencies_ends(engine):
    """
    s0       0
    s1       11111
    s2       .....2
    """
    builder = PlanBuilder()
    gpu = builder.device("gpu0")
    s0, s1, s2 = (builder.stream(f"s{i}", gpu) for i in range(3))
    rows = [builder.compute(builder.work("F"), stream) for stream in (s0, s1)]
    last = builder.compute(builder.work("F"), s2, after=rows)

    timeline = simulate(builder.build(), gpus(), RowCosts(seconds=[1.0, 5.0, 1.0]), engine=engine)

    assert timeline.span(last).start_s == 5.0


def test_rows_of_no_length_pass_within_one_instant(engine):
    """A chain of empty rows over two streams, behind a kernel of 2: all at 2.

    s0       00 1 3
    s1       .. 2 4
    """
    builder = PlanBuilder()
    gpu = builder.device("gpu0")
    s0, s1 = builder.stream("s0", gpu), builder.stream("s1", gpu)
    row = builder.compute(builder.work("F"), s0)
    for stream in (s0, s1, s0, s1):
        row = builder.compute(builder.work("nothing"), stream, after=[row])

    timeline = simulate(builder.build(), gpus(), RowCosts(seconds=[2.0, 0.0, 0.0, 0.0, 0.0]), engine=engine)

    assert spans_of(timeline) == [(0.0, 2.0)] + [(2.0, 2.0)] * 4


def test_a_release_takes_no_time_but_holds_its_stream_until_the_users_are_done(engine):
    """
    s0       00 ...r2         the release waits for the reader on s1
    s1       .. 111
    """
    builder = PlanBuilder()
    gpu = builder.device("gpu0")
    s0, s1 = builder.stream("s0", gpu), builder.stream("s1", gpu)
    x = builder.buffer(1, gpu, owner=s0)
    builder.compute(builder.work("F"), s0, writes=[x], allocates=[x])
    builder.compute(builder.work("G"), s1, reads=[x])
    builder.release([x], s0)
    builder.compute(builder.work("F"), s0)
    costs = RowCosts(seconds=[2.0, 3.0, 9.0, 1.0])  # 9: a price that a release never pays

    timeline = simulate(builder.build(), gpus(), costs, engine=engine)

    assert spans_of(timeline) == [(0.0, 2.0), (2.0, 5.0), (5.0, 5.0), (5.0, 6.0)]


@pytest.mark.parametrize("num_streams", [1, 2, 3])
def test_rows_on_a_cpu_run_one_after_another_whatever_their_stream(num_streams, engine):
    """A CPU has no queue: makespan is the sum of all rows.

    s0       00  .   22
    s1       ..  1   ..
    """
    seconds = [2.0, 1.0, 2.0, 4.0, 0.5]
    builder = PlanBuilder()
    device = builder.device("cpu0")
    streams = [builder.stream(f"s{i}", device) for i in range(num_streams)]
    for row in range(len(seconds)):
        builder.compute(builder.work("F"), streams[row % num_streams])

    timeline = simulate(builder.build(), cpu(), RowCosts(seconds=seconds), engine=engine)

    assert timeline.makespan_s == pytest.approx(sum(seconds), rel=1e-12)
    assert timeline.spans.start_s.tolist() == [0.0, *timeline.spans.end_s.tolist()[:-1]]


def test_a_copy_on_a_cpu_holds_its_thread_too(engine):
    """
    compute  0      2         the kernel does not overlap with the copy
    d2h      .11111
    """
    builder = PlanBuilder()
    device, host = builder.device("cpu0"), builder.device("host")
    compute, d2h = builder.stream("compute", device), builder.stream("d2h", device, role="d2h")
    y, y_on_host = builder.buffer(5, device, owner=compute), builder.buffer(5, host)
    builder.compute(builder.work("F"), compute, writes=[y], allocates=[y])
    builder.swap_out(y, y_on_host, d2h)
    builder.compute(builder.work("F"), compute)

    timeline = simulate(builder.build(), cpu(), RowCosts(seconds=1.0), engine=engine)

    assert spans_of(timeline) == [(0.0, 1.0), (1.0, 6.0), (6.0, 7.0)]


def test_a_plan_without_rows_takes_no_time(engine):
    builder = PlanBuilder()
    builder.device("gpu0")

    timeline = simulate(builder.build(), gpus(), RowCosts(), engine=engine)

    assert timeline.makespan_s == 0.0
