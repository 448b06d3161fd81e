"""Closed forms: links. Bytes that flow at the same time share them max-min fairly."""

import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_machines import RowCosts, device, gpus, link, spans_of

from stepsim.machines import DeviceKind, Machine, Route
from stepsim.plan.builder import PlanBuilder
from stepsim.simulator import simulate
from stepsim.simulator.reference.flows import Flow, max_min_rates


def peer_copies(names, transfers):
    """Copies, all ready at 0: for each the names of its ends (a letter each) and its bytes."""
    builder = PlanBuilder()
    devices = {name: builder.device(name) for name in names}
    for number, (ends, size_bytes) in enumerate(transfers):
        source, destination = devices[ends[0]], devices[ends[1]]
        buffers = builder.buffer(size_bytes, source), builder.buffer(size_bytes, destination)
        builder.copy(*buffers, builder.stream(f"s{number}", source))
    return builder.build()


def rail(bandwidths_bytes_per_s):
    """Devices in a row, with a link between neighbours. A route takes all between.

    a --1-- b --2-- c
    """
    names = "abcdef"[: len(bandwidths_bytes_per_s) + 1]
    hops = [f"{one}-{two}" for one, two in pairwise(names)]
    ends = [(a, b) for a in range(len(names)) for b in range(a + 1, len(names))]
    return Machine(
        name="rail",
        devices=tuple(device(name, DeviceKind.GPU, copy_engines=4) for name in names),
        links=tuple(link(*hop) for hop in zip(hops, bandwidths_bytes_per_s, strict=True)),
        routes=tuple(Route(source=names[a], destination=names[b], links=tuple(hops[a:b])) for a, b in ends),
    )


def behind_switch(num_gpus, *, lane, uplink, duplex):
    """Each gpu has lanes to a switch, and one uplink leads to the host; letters for gpus, h for the host.

    a --lane--+--uplink-- h
    b --lane--+
    """
    names = "abcdefg"[:num_gpus]
    up, down = ("uplink up", "uplink down") if duplex == "full" else ("uplink", "uplink")
    lanes = [link(f"{name} {way}", lane) for name in names for way in ("up", "down")]
    outward = [Route(source=name, destination="h", links=(f"{name} up", up)) for name in names]
    inward = [Route(source="h", destination=name, links=(down, f"{name} down")) for name in names]
    return Machine(
        name="switch",
        devices=(*(device(name, DeviceKind.GPU) for name in names), device("h", DeviceKind.HOST)),
        links=(*lanes, *(link(name, uplink) for name in dict.fromkeys([up, down]))),
        routes=(*outward, *inward),
    )


def test_a_transfer_moves_at_the_speed_of_its_slowest_link(engine):
    """Links of 1 and 1/2 bytes per second: 4 bytes take 8."""
    timeline = simulate(peer_copies("abc", [("ac", 4)]), rail([1.0, 0.5]), RowCosts(), engine=engine)

    assert timeline.makespan_s == 8.0


def test_three_flows_over_two_links_share_them_max_min_fairly(engine):
    """Links of 1 and 2: a-b is full at 1/2 each, and b to c gets the 3/2 that a to c leaves.

    a to b   00000000         4 bytes at 1/2
    a to c   11111111         4 bytes at 1/2
    b to c   22222222         12 bytes at 3/2
    """
    plan = peer_copies("abc", [("ab", 4), ("ac", 4), ("bc", 12)])

    timeline = simulate(plan, rail([1.0, 2.0]), RowCosts(), engine=engine)

    assert timeline.spans.end_s.tolist() == [8.0, 8.0, 8.0]


def test_what_a_capped_flow_leaves_goes_to_the_others_of_its_links(engine):
    """As above, but a to c can do no more than 1/4: the others get 3/4 and 7/4."""
    plan = peer_copies("abc", [("ab", 6), ("ac", 2), ("bc", 14)])
    costs = RowCosts(rate_cap_bytes_per_s=[math.inf, 0.25, math.inf])

    timeline = simulate(plan, rail([1.0, 2.0]), costs, engine=engine)

    assert timeline.spans.end_s.tolist() == [8.0, 8.0, 8.0]


def test_a_link_that_fills_later_gives_its_flows_more_than_one_that_filled_before(engine):
    """Links of 1, 3 and 1: a to d is held to 1/2 at both ends, so that b to c gets 5/2.

    a to b   00000000         4 bytes at 1/2
    a to d   11111111         4 bytes at 1/2
    b to c   22222222         20 bytes at 5/2
    c to d   33333333         4 bytes at 1/2
    """
    plan = peer_copies("abcd", [("ab", 4), ("ad", 4), ("bc", 20), ("cd", 4)])

    timeline = simulate(plan, rail([1.0, 3.0, 1.0]), RowCosts(), engine=engine)

    assert timeline.spans.end_s.tolist() == [8.0] * 4


@pytest.mark.parametrize("head_start_s", [0.0, 1.0, 2.5])
def test_a_transfer_that_comes_later_delays_the_first_by_what_it_takes_of_the_link(head_start_s, engine):
    """Of length T alone, the second d later: the first ends at d + 2 * (T - d), the second at 2 * T.

    first    000000000
    second   .. 111111111     behind a kernel of d
    """
    alone_s, builder = 4.0, PlanBuilder()
    gpu, host = builder.device("gpu0"), builder.device("host")
    first, second = builder.stream("first", gpu), builder.stream("second", gpu)
    builder.compute(builder.work("wait"), second)
    for stream in (first, second):
        builder.copy(builder.buffer(4, gpu), builder.buffer(4, host), stream)
    costs = RowCosts(seconds=head_start_s)

    timeline = simulate(builder.build(), gpus(copy_engines=2), costs, engine=engine)

    assert timeline.spans.end_s.tolist()[1:] == [head_start_s + 2 * (alone_s - head_start_s), 2 * alone_s]


@pytest.mark.parametrize("sizes_bytes", [[5], [1, 2, 3], [7, 7, 7, 7]])
def test_any_number_of_transfers_over_one_link_end_last_of_all_at_latency_and_all_bytes(sizes_bytes, engine):
    """l + sum of n / b: work is conserved."""
    plan = peer_copies("ab", [("ab", size_bytes) for size_bytes in sizes_bytes])

    timeline = simulate(plan, rail([2.0]), RowCosts(latency_s=0.5), engine=engine)

    assert timeline.makespan_s == pytest.approx(0.5 + sum(sizes_bytes) / 2.0, rel=1e-12)


def test_caps_that_fill_a_link_exactly_fit(engine):
    """0.4 + 0.45 + 0.05 + 0.1, which is a last place more than 1 in this order."""
    caps = [0.4, 0.45, 0.05, 0.1]
    assert caps[0] + caps[1] + caps[2] + caps[3] > 1
    plan = peer_copies("ab", [("ab", 7)] * 4)

    timeline = simulate(plan, rail([1.0]), RowCosts(rate_cap_bytes_per_s=caps), engine=engine)

    assert timeline.spans.end_s.tolist() == [7 / cap for cap in caps]


@pytest.mark.parametrize(("num_gpus", "end_s"), [(1, 12 / 3), (2, 12 / 2), (4, 12 / 1)])
def test_copies_behind_a_shared_uplink_divide_it(num_gpus, end_s, engine):
    """Lanes of 3, an uplink of 4: one copy of 12 moves at 3, two at 2 each, four at 1 each.

    a  000000
    b  111111
    """
    gpus_ = "abcdefg"[:num_gpus]
    plan = peer_copies(gpus_ + "h", [(name + "h", 12) for name in gpus_])
    machine = behind_switch(num_gpus, lane=3.0, uplink=4.0, duplex="full")

    timeline = simulate(plan, machine, RowCosts(), engine=engine)

    assert timeline.spans.end_s.tolist() == [end_s] * num_gpus


@pytest.mark.parametrize(("duplex", "end_s"), [("full", 6.0), ("half", 12.0)])
def test_both_directions_share_a_half_duplex_link_and_have_a_full_one_each(duplex, end_s, engine):
    """6 bytes each way at 1: T over full, 2 * T over half.

    out      000000000000
    in       111111111111
    """
    builder = PlanBuilder()
    gpu, host = builder.device("a"), builder.device("h")
    for number, ends in enumerate([(gpu, host), (host, gpu)]):
        buffers = (builder.buffer(6, end) for end in ends)
        builder.copy(*buffers, builder.stream(f"s{number}", gpu))
    machine = behind_switch(1, lane=3.0, uplink=1.0, duplex=duplex)

    timeline = simulate(builder.build(), machine, RowCosts(), engine=engine)

    assert timeline.spans.end_s.tolist() == [end_s, end_s]


def test_latency_does_not_hold_the_link(engine):
    """The second waits 3 of latency while the first flows alone.

    first    0000
    second   lll 1111
    """
    plan, costs = peer_copies("ab", [("ab", 3), ("ab", 3)]), RowCosts(latency_s=[0.0, 3.0])

    timeline = simulate(plan, rail([1.0]), costs, engine=engine)

    assert spans_of(timeline) == [(0.0, 3.0), (0.0, 6.0)]


def test_a_transfer_of_a_fixed_time_holds_no_link(engine):
    plan = peer_copies("ab", [("ab", 3), ("ab", 100)])

    timeline = simulate(plan, rail([1.0]), RowCosts(seconds=2.0, fixed=[False, True]), engine=engine)

    assert timeline.spans.end_s.tolist() == [3.0, 2.0]


def test_empty_transfers_share_with_nobody(engine):
    plan = peer_copies("ab", [("ab", 0), ("ab", 3), ("ab", 0)])

    timeline = simulate(plan, rail([1.0]), RowCosts(), engine=engine)

    assert timeline.spans.end_s.tolist() == [0.0, 3.0, 0.0]


@given(st.data())
def test_no_flow_can_get_more_but_at_the_cost_of_one_that_has_no_more(data):
    """That is what max-min means: each is at its cap, or crosses a full link on which nobody has more than it has."""
    bandwidths = data.draw(st.lists(st.floats(0.1, 10), min_size=1, max_size=4))
    weights = st.dictionaries(st.integers(0, len(bandwidths) - 1), st.floats(0.1, 1), max_size=3)
    drawn = data.draw(st.lists(st.tuples(st.floats(0.1, 10), weights), max_size=6))
    flows = [Flow(row, cap, crossed) for row, (cap, crossed) in enumerate(drawn)]

    rates = max_min_rates(flows, bandwidths)

    used = [sum(flow.weights.get(at, 0) * rate for flow, rate in zip(flows, rates, strict=True)) for at in range(4)]
    full = {at for at, bandwidth in enumerate(bandwidths) if used[at] > bandwidth * (1 - 1e-9)}
    assert all(used[at] <= bandwidth * (1 + 1e-9) for at, bandwidth in enumerate(bandwidths))
    for flow, rate in zip(flows, rates, strict=True):
        most = [max(r for f, r in zip(flows, rates, strict=True) if at in f.weights) for at in full & set(flow.weights)]
        assert rate == flow.cap_bytes_per_s or rate >= min(most) * (1 - 1e-9)
