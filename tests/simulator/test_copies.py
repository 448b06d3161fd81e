"""Closed forms: copy engines. On `gpus` a link moves 1 byte per second, so that bytes are seconds."""

import pytest
from small_machines import RowCosts, gpus, spans_of

from stepsim.plan import TaskKind
from stepsim.plan.builder import PlanBuilder
from stepsim.simulator import simulate


def copies(sizes_bytes, *, inward):
    """A plan of copies between ``gpu0`` and ``host``, each on a stream of its own, all ready at 0."""
    builder = PlanBuilder()
    gpu, host = builder.device("gpu0"), builder.device("host")
    for number, (size_bytes, into_gpu) in enumerate(zip(sizes_bytes, inward, strict=True)):
        stream = builder.stream(f"s{number}", gpu)
        ends = builder.buffer(size_bytes, host), builder.buffer(size_bytes, gpu)
        builder.copy(*(ends if into_gpu else ends[::-1]), stream)
    return builder.build()


@pytest.mark.parametrize("num_layers", [1, 2, 8])
@pytest.mark.parametrize(
    ("compute_s", "swap_s"), [(2.0, 3.0), (3.0, 2.0), (1.0, 1.0)], ids=["swap-bound", "compute-bound", "balanced"]
)
def test_double_buffering_hides_all_but_the_first_swap(num_layers, compute_s, swap_s, engine):
    """Makespan is swap + (n - 1) * max(swap, compute) + compute, whichever is the bottleneck.

    h2d      0000 1111 2222   into two buffers in turn
    compute       00   11   22
    """
    builder = PlanBuilder()
    gpu, host = builder.device("gpu0"), builder.device("host")
    compute, h2d = builder.stream("compute", gpu), builder.stream("h2d", gpu, role="h2d")
    buffers = [builder.buffer(int(swap_s), gpu, role="parameter") for _ in range(2)]
    for layer in range(num_layers):
        weights = builder.buffer(int(swap_s), host, role="parameter")
        builder.copy(weights, buffers[layer % 2], h2d)
        builder.compute(builder.work("F"), compute, reads=[buffers[layer % 2]])

    timeline = simulate(builder.build(), gpus(), RowCosts(seconds=compute_s), engine=engine)

    expected_s = swap_s + (num_layers - 1) * max(swap_s, compute_s) + compute_s
    assert timeline.makespan_s == pytest.approx(expected_s, rel=1e-12)


@pytest.mark.parametrize("num_layers", [1, 2, 8])
@pytest.mark.parametrize(("compute_s", "swap_s"), [(2.0, 3.0), (3.0, 2.0)], ids=["swap-bound", "compute-bound"])
def test_swapping_out_overlaps_with_the_computation_that_follows(num_layers, compute_s, swap_s, engine):
    """Makespan is compute + (n - 1) * max(compute, swap) + swap.

    compute  00 11 22
    d2h         0000 1111 2222
    """
    builder = PlanBuilder()
    gpu, host = builder.device("gpu0"), builder.device("host")
    compute, d2h = builder.stream("compute", gpu), builder.stream("d2h", gpu, role="d2h")
    for _ in range(num_layers):
        y, y_on_host = builder.buffer(int(swap_s), gpu, owner=compute), builder.buffer(int(swap_s), host)
        builder.compute(builder.work("F"), compute, writes=[y], allocates=[y])
        builder.swap_out(y, y_on_host, d2h)

    timeline = simulate(builder.build(), gpus(), RowCosts(seconds=compute_s), engine=engine)

    expected_s = compute_s + (num_layers - 1) * max(compute_s, swap_s) + swap_s
    assert timeline.makespan_s == pytest.approx(expected_s, rel=1e-12)


@pytest.mark.parametrize("size_bytes", [0, 1, 4096, 10**9])
def test_a_copy_takes_latency_and_its_bytes_over_the_bandwidth(size_bytes, engine):
    """l + n / b"""
    latency_s, bandwidth_bytes_per_s = 1e-5, 12.4e9

    timeline = simulate(
        copies([size_bytes], inward=[True]),
        gpus(bandwidth_bytes_per_s=bandwidth_bytes_per_s),
        RowCosts(latency_s=latency_s),
        engine=engine,
    )

    assert timeline.makespan_s == pytest.approx(latency_s + size_bytes / bandwidth_bytes_per_s, rel=1e-12)


@pytest.mark.parametrize("rate_cap_bytes_per_s", [0.5, 1.0, 4.0])
def test_a_copy_is_no_faster_than_its_own_rate_cap(rate_cap_bytes_per_s, engine):
    """n / min(cap, b)"""
    size_bytes, bandwidth_bytes_per_s = 8, 2.0

    timeline = simulate(
        copies([size_bytes], inward=[False]),
        gpus(bandwidth_bytes_per_s=bandwidth_bytes_per_s),
        RowCosts(rate_cap_bytes_per_s=rate_cap_bytes_per_s),
        engine=engine,
    )

    expected_s = size_bytes / min(rate_cap_bytes_per_s, bandwidth_bytes_per_s)
    assert timeline.makespan_s == pytest.approx(expected_s, rel=1e-12)


def test_a_copy_with_a_recorded_time_takes_that_time_whatever_the_link(engine):
    timeline = simulate(
        copies([1000], inward=[True]), gpus(), RowCosts(seconds=0.25, latency_s=7.0, fixed=True), engine=engine
    )

    assert timeline.makespan_s == 0.25


def test_copies_in_one_direction_take_turns_at_the_engine(engine):
    """Three copies of 2, 3 and 4: 2 + 3 + 4.

    s0       00
    s1       ..111
    s2       .....2222
    """
    timeline = simulate(copies([2, 3, 4], inward=[True] * 3), gpus(), RowCosts(), engine=engine)

    assert spans_of(timeline) == [(0.0, 2.0), (2.0, 5.0), (5.0, 9.0)]


def test_copies_in_opposite_directions_overlap(engine):
    """max(3, 5).

    d2h      000
    h2d      11111
    """
    timeline = simulate(copies([3, 5], inward=[False, True]), gpus(), RowCosts(), engine=engine)

    assert spans_of(timeline) == [(0.0, 3.0), (0.0, 5.0)]


def test_each_gpu_has_engines_of_its_own(engine):
    builder = PlanBuilder()
    host = builder.device("host")
    for name in ("gpu0", "gpu1"):
        gpu = builder.device(name)
        builder.copy(builder.buffer(4, host), builder.buffer(4, gpu), builder.stream("h2d", gpu, role="h2d"))

    timeline = simulate(builder.build(), gpus(2), RowCosts(), engine=engine)

    assert spans_of(timeline) == [(0.0, 4.0), (0.0, 4.0)]


@pytest.mark.parametrize(("copy_engines", "makespan_s"), [(1, 2 * (1 + 3)), (2, 1 + 2 * 3)])
def test_a_second_engine_hides_a_latency_but_not_the_link(copy_engines, makespan_s, engine):
    """With latency l and bytes n: 2 * (l + n) over one engine, l + 2 * n over two, which share the link.

    engine 0   l000000
    engine 1   l111111
    """
    costs = RowCosts(latency_s=1.0)

    timeline = simulate(copies([3, 3], inward=[True, True]), gpus(copy_engines=copy_engines), costs, engine=engine)

    assert timeline.makespan_s == makespan_s


def test_two_engines_serve_three_copies_two_at_a_time(engine):
    """Caps of 1/2 leave the link free: 2, 4 and 2 bytes, the third when the first is done.

    engine 0   00002222
    engine 1   11111111
    """
    plan, costs = copies([2, 4, 2], inward=[True] * 3), RowCosts(rate_cap_bytes_per_s=0.5)

    timeline = simulate(plan, gpus(copy_engines=2), costs, engine=engine)

    assert spans_of(timeline) == [(0.0, 4.0), (0.0, 8.0), (4.0, 8.0)]


def test_a_copy_within_a_device_takes_no_engine_and_no_link(engine):
    """Two copies of 4 bytes at 2 bytes per second, at once: 2.

    s0       00
    s1       11
    """
    builder = PlanBuilder()
    gpu = builder.device("gpu0")
    for number in range(2):
        stream = builder.stream(f"s{number}", gpu)
        builder.copy(builder.buffer(4, gpu), builder.buffer(4, gpu), stream)

    timeline = simulate(builder.build(), gpus(), RowCosts(rate_cap_bytes_per_s=2.0), engine=engine)

    assert spans_of(timeline) == [(0.0, 2.0), (0.0, 2.0)]


def test_the_engine_serves_the_earliest_ready_first_though_the_plan_has_it_later(engine):
    """Copies of 4, 1 and 1; row 3 is ready at 1, row 2 at 2, and both wait for row 0.

    s0       0000
    compute  112..            kernels of 1 and 1
    s1       .....3           behind the second kernel
    s2       ....4            behind the first kernel
    """
    builder = PlanBuilder()
    gpu, host = builder.device("gpu0"), builder.device("host")
    compute, *streams = (builder.stream(name, gpu) for name in ("compute", "s0", "s1", "s2"))

    def copy_in(size_bytes, stream, after=()):
        return builder.copy(builder.buffer(size_bytes, host), builder.buffer(size_bytes, gpu), stream, after=after)

    copy_in(4, streams[0])
    first = builder.compute(builder.work("F"), compute)
    second = builder.compute(builder.work("F"), compute)
    late = copy_in(1, streams[1], after=[second])
    early = copy_in(1, streams[2], after=[first])

    timeline = simulate(builder.build(), gpus(), RowCosts(seconds=1.0), engine=engine)

    assert timeline.span(early).start_s == 4.0
    assert timeline.span(late).start_s == 5.0


@pytest.mark.parametrize("num_hops", [1, 2, 5])
def test_at_one_instant_the_engine_serves_in_plan_order_whoever_heard_first(num_hops, engine):
    """Both copies are ready at 2. The last hears of it at once, the other through empty kernels; yet it goes first.

    s0       00
    hops     ..1 2 3 ...      empty, one behind the other
    s1       ..4              behind the last of them
    s2       ...5             behind row 0
    """
    builder = PlanBuilder()
    gpu, host = builder.device("gpu0"), builder.device("host")
    s0, s1, s2 = (builder.stream(f"s{i}", gpu) for i in range(3))
    kernel = row = builder.compute(builder.work("F"), s0)
    for hop in range(num_hops):
        row = builder.compute(builder.work("nothing"), builder.stream(f"hop {hop}", gpu), after=[row])
    builder.copy(builder.buffer(1, host), builder.buffer(1, gpu), s1, after=[row])
    builder.copy(builder.buffer(1, host), builder.buffer(1, gpu), s2, after=[kernel])

    timeline = simulate(builder.build(), gpus(), RowCosts(seconds=[2.0, *[0.0] * (num_hops + 2)]), engine=engine)

    assert spans_of(timeline)[-2:] == [(2.0, 3.0), (3.0, 4.0)]


def test_an_end_serves_a_start_at_the_same_instant_in_plan_order(engine):
    """The engine is free again at 2, when rows 1 and 3 are both ready: row 1 goes first.

    s0       00
    s1       ..1              behind row 2
    s2       22
    s3       ...3             behind row 2
    """
    builder = PlanBuilder()
    gpu, host = builder.device("gpu0"), builder.device("host")
    s0, s1, s2, s3 = (builder.stream(f"s{i}", gpu) for i in range(4))
    kernel = builder.compute(builder.work("F"), s2)
    builder.copy(builder.buffer(2, host), builder.buffer(2, gpu), s0)
    first = builder.copy(builder.buffer(1, host), builder.buffer(1, gpu), s1, after=[kernel])
    last = builder.copy(builder.buffer(1, host), builder.buffer(1, gpu), s3, after=[kernel])

    timeline = simulate(builder.build(), gpus(), RowCosts(seconds=2.0), engine=engine)

    assert timeline.span(first).start_s == 2.0
    assert timeline.span(last).start_s == 3.0


def test_all_who_can_start_do_so_before_an_empty_copy_ends(engine):
    """At 0 the empty row 0 and row 2 start together; row 1, ready when row 0 has ended, comes too late for the engine.

    gpu1     0
    gpu0     22221
    """
    builder = PlanBuilder()
    gpu, other, host = builder.device("gpu0"), builder.device("gpu1"), builder.device("host")
    streams = [builder.stream(f"s{i}", device) for i, device in enumerate((other, gpu, gpu))]
    empty = builder.copy(builder.buffer(0, host), builder.buffer(0, other), streams[0])
    builder.copy(builder.buffer(1, host), builder.buffer(1, gpu), streams[1], after=[empty])
    builder.copy(builder.buffer(4, host), builder.buffer(4, gpu), streams[2])

    timeline = simulate(builder.build(), gpus(2), RowCosts(), engine=engine)

    assert spans_of(timeline) == [(0.0, 0.0), (4.0, 5.0), (0.0, 4.0)]


def test_empty_copies_pass_through_a_busy_queue_in_turn(engine):
    timeline = simulate(copies([0, 3, 0], inward=[True] * 3), gpus(), RowCosts(), engine=engine)

    assert spans_of(timeline) == [(0.0, 0.0), (0.0, 3.0), (3.0, 3.0)]


def test_a_peer_copy_takes_the_engine_out_of_its_source_and_none_of_its_destination(engine):
    """gpu0 copies to gpu1 and to the host: one engine out. What goes into gpu1 from the host does not wait.

    to gpu1    0000
    to host    ....1111
    into gpu1  2222
    """
    builder = PlanBuilder()
    one, two, host = (builder.device(name) for name in ("gpu0", "gpu1", "host"))
    for number, (source, target) in enumerate([(one, two), (one, host), (host, two)]):
        stream = builder.stream(f"s{number}", one if source == one else two)
        builder.copy(builder.buffer(4, source), builder.buffer(4, target), stream)

    timeline = simulate(builder.build(), gpus(2), RowCosts(), engine=engine)

    assert spans_of(timeline) == [(0.0, 4.0), (4.0, 8.0), (0.0, 4.0)]


def test_swaps_and_copies_share_the_engine_of_their_direction(engine):
    """
    s0       00               a swap out
    s1       ..11             a copy to the host
    """
    builder = PlanBuilder()
    gpu, host = builder.device("gpu0"), builder.device("host")
    s0, s1 = builder.stream("s0", gpu), builder.stream("s1", gpu)
    builder.swap_out(builder.buffer(2, gpu), builder.buffer(2, host), s0)
    builder.copy(builder.buffer(2, gpu), builder.buffer(2, host), s1)
    plan = builder.build()

    timeline = simulate(plan, gpus(), RowCosts(), engine=engine)

    assert plan.tasks.kind.tolist() == [TaskKind.SWAP_OUT, TaskKind.COPY]
    assert spans_of(timeline) == [(0.0, 2.0), (2.0, 4.0)]
