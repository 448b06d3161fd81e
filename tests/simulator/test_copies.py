"""Closed forms: copy engines and links. On `gpus` a link moves 1 byte per second, so that bytes are seconds."""

from itertools import pairwise

import pytest
from small_machines import RowCosts, device, gpus, link, spans_of

from stepsim.machines import DeviceKind, Machine, Route
from stepsim.plan import TaskKind
from stepsim.plan_builder import PlanBuilder
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
def test_double_buffering_hides_all_but_the_first_swap(num_layers, compute_s, swap_s):
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

    timeline = simulate(builder.build(), gpus(), RowCosts(seconds=compute_s))

    expected_s = swap_s + (num_layers - 1) * max(swap_s, compute_s) + compute_s
    assert timeline.makespan_s == pytest.approx(expected_s, rel=1e-12)


@pytest.mark.parametrize("num_layers", [1, 2, 8])
@pytest.mark.parametrize(("compute_s", "swap_s"), [(2.0, 3.0), (3.0, 2.0)], ids=["swap-bound", "compute-bound"])
def test_swapping_out_overlaps_with_the_computation_that_follows(num_layers, compute_s, swap_s):
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

    timeline = simulate(builder.build(), gpus(), RowCosts(seconds=compute_s))

    expected_s = compute_s + (num_layers - 1) * max(compute_s, swap_s) + swap_s
    assert timeline.makespan_s == pytest.approx(expected_s, rel=1e-12)


@pytest.mark.parametrize("size_bytes", [0, 1, 4096, 10**9])
def test_a_copy_takes_latency_and_its_bytes_over_the_bandwidth(size_bytes):
    """l + n / b"""
    latency_s, bandwidth_bytes_per_s = 1e-5, 12.4e9

    timeline = simulate(
        copies([size_bytes], inward=[True]),
        gpus(bandwidth_bytes_per_s=bandwidth_bytes_per_s),
        RowCosts(latency_s=latency_s),
    )

    assert timeline.makespan_s == pytest.approx(latency_s + size_bytes / bandwidth_bytes_per_s, rel=1e-12)


@pytest.mark.parametrize("rate_cap_bytes_per_s", [0.5, 1.0, 4.0])
def test_a_copy_is_no_faster_than_its_own_rate_cap(rate_cap_bytes_per_s):
    """n / min(cap, b)"""
    size_bytes, bandwidth_bytes_per_s = 8, 2.0

    timeline = simulate(
        copies([size_bytes], inward=[False]),
        gpus(bandwidth_bytes_per_s=bandwidth_bytes_per_s),
        RowCosts(rate_cap_bytes_per_s=rate_cap_bytes_per_s),
    )

    expected_s = size_bytes / min(rate_cap_bytes_per_s, bandwidth_bytes_per_s)
    assert timeline.makespan_s == pytest.approx(expected_s, rel=1e-12)


def test_a_copy_with_a_recorded_time_takes_that_time_whatever_the_link():
    timeline = simulate(copies([1000], inward=[True]), gpus(), RowCosts(seconds=0.25, latency_s=7.0, fixed=True))

    assert timeline.makespan_s == 0.25


def test_copies_in_one_direction_take_turns_at_the_engine():
    """Three copies of 2, 3 and 4: 2 + 3 + 4.

    s0       00
    s1       ..111
    s2       .....2222
    """
    timeline = simulate(copies([2, 3, 4], inward=[True] * 3), gpus(), RowCosts())

    assert spans_of(timeline) == [(0.0, 2.0), (2.0, 5.0), (5.0, 9.0)]


def test_copies_in_opposite_directions_overlap():
    """max(3, 5).

    d2h      000
    h2d      11111
    """
    timeline = simulate(copies([3, 5], inward=[False, True]), gpus(), RowCosts())

    assert spans_of(timeline) == [(0.0, 3.0), (0.0, 5.0)]


def test_each_gpu_has_engines_of_its_own():
    builder = PlanBuilder()
    host = builder.device("host")
    for name in ("gpu0", "gpu1"):
        gpu = builder.device(name)
        builder.copy(builder.buffer(4, host), builder.buffer(4, gpu), builder.stream("h2d", gpu, role="h2d"))

    timeline = simulate(builder.build(), gpus(2), RowCosts())

    assert spans_of(timeline) == [(0.0, 4.0), (0.0, 4.0)]


@pytest.mark.parametrize(("copy_engines", "makespan_s"), [(1, 2 * (1 + 3)), (2, 1 + 2 * 3)])
def test_a_second_engine_hides_a_latency_but_not_the_link(copy_engines, makespan_s):
    """With latency l and bytes n: 2 * (l + n) over one engine, l + 2 * n over two, as the link takes turns.

    engine 0   l000
    engine 1   l...111
    """
    timeline = simulate(copies([3, 3], inward=[True, True]), gpus(copy_engines=copy_engines), RowCosts(latency_s=1.0))

    assert timeline.makespan_s == makespan_s


def test_a_copy_within_a_device_takes_no_engine_and_no_link():
    """Two copies of 4 bytes at 2 bytes per second, at once: 2.

    s0       00
    s1       11
    """
    builder = PlanBuilder()
    gpu = builder.device("gpu0")
    for number in range(2):
        stream = builder.stream(f"s{number}", gpu)
        builder.copy(builder.buffer(4, gpu), builder.buffer(4, gpu), stream)

    timeline = simulate(builder.build(), gpus(), RowCosts(rate_cap_bytes_per_s=2.0))

    assert spans_of(timeline) == [(0.0, 2.0), (0.0, 2.0)]


def test_the_engine_serves_the_earliest_ready_first_though_the_plan_has_it_later():
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

    timeline = simulate(builder.build(), gpus(), RowCosts(seconds=1.0))

    assert timeline.span(early).start_s == 4.0
    assert timeline.span(late).start_s == 5.0


@pytest.mark.parametrize("num_hops", [1, 2, 5])
def test_at_one_instant_the_engine_serves_in_plan_order_whoever_heard_first(num_hops):
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

    timeline = simulate(builder.build(), gpus(), RowCosts(seconds=[2.0, *[0.0] * (num_hops + 2)]))

    assert spans_of(timeline)[-2:] == [(2.0, 3.0), (3.0, 4.0)]


def test_an_end_serves_a_start_at_the_same_instant_in_plan_order():
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

    timeline = simulate(builder.build(), gpus(), RowCosts(seconds=2.0))

    assert timeline.span(first).start_s == 2.0
    assert timeline.span(last).start_s == 3.0


def test_all_who_can_start_do_so_before_an_empty_copy_ends():
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

    timeline = simulate(builder.build(), gpus(2), RowCosts())

    assert spans_of(timeline) == [(0.0, 0.0), (4.0, 5.0), (0.0, 4.0)]


def test_empty_copies_pass_through_a_busy_queue_in_turn():
    timeline = simulate(copies([0, 3, 0], inward=[True] * 3), gpus(), RowCosts())

    assert spans_of(timeline) == [(0.0, 0.0), (0.0, 3.0), (3.0, 3.0)]


def rail(names, copy_engines=1):
    """Devices in a row with a link between neighbours, each half as fast as the one before. A route takes all between.

    a --1-- b --1/2-- c
    """
    hops = [f"{one}-{two}" for one, two in pairwise(names)]
    ends = [(a, b) for a in range(len(names)) for b in range(a + 1, len(names))]
    return Machine(
        name="rail",
        devices=tuple(device(name, DeviceKind.GPU, copy_engines=copy_engines) for name in names),
        links=tuple(link(hop, bandwidth_bytes_per_s=2.0**-number) for number, hop in enumerate(hops)),
        routes=tuple(Route(source=names[a], destination=names[b], links=tuple(hops[a:b])) for a, b in ends),
    )


def peer_copies(names, ends, size_bytes):
    builder = PlanBuilder()
    devices = {name: builder.device(name) for name in names}
    for number, (source, destination) in enumerate(ends):
        stream = builder.stream(f"s{number}", devices[source])
        buffers = builder.buffer(size_bytes, devices[source]), builder.buffer(size_bytes, devices[destination])
        builder.copy(*buffers, stream)
    return builder.build()


def test_a_transfer_moves_at_the_speed_of_its_slowest_link():
    """Links of 1 and 1/2 bytes per second: 4 bytes take 8."""
    timeline = simulate(peer_copies("abc", ["ac"], 4), rail("abc"), RowCosts())

    assert timeline.makespan_s == 8.0


def test_a_transfer_holds_all_links_of_its_route():
    """The copy from a to c holds a-b and b-c for 8; the one from b to c waits for it.

    a to c   00000000
    b to c   ........11111111
    """
    timeline = simulate(peer_copies("abc", ["ac", "bc"], 4), rail("abc"), RowCosts())

    assert spans_of(timeline) == [(0.0, 8.0), (0.0, 16.0)]


def test_a_transfer_that_waits_for_one_link_does_not_hold_the_other():
    """b-c is taken for 8, so a to c waits; a-b stays free, and a to b goes first.

    b to c   00000000
    a to c   ........11111111
    a to b   2222             on an engine of its own
    """
    timeline = simulate(peer_copies("abc", ["bc", "ac", "ab"], 4), rail("abc", copy_engines=2), RowCosts())

    assert timeline.spans.end_s.tolist() == [8.0, 16.0, 4.0]


def test_copies_between_two_gpus_overlap_in_opposite_directions():
    """
    0 to 1   0000
    1 to 0   1111
    """
    ends = [("gpu0", "gpu1"), ("gpu1", "gpu0")]

    timeline = simulate(peer_copies(["gpu0", "gpu1"], ends, 4), gpus(2), RowCosts())

    assert spans_of(timeline) == [(0.0, 4.0), (0.0, 4.0)]


def test_swaps_and_copies_share_the_engine_of_their_direction():
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

    timeline = simulate(plan, gpus(), RowCosts())

    assert plan.tasks.kind.tolist() == [TaskKind.SWAP_OUT, TaskKind.COPY]
    assert spans_of(timeline) == [(0.0, 2.0), (2.0, 4.0)]
