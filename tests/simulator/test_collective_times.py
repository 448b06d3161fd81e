"""Closed forms: what collectives take, from their algorithm and the links of their team.

n members, S bytes that each contributes, links of B bytes per second and latency a step of l.
"""

from dataclasses import replace

import pytest
from small_machines import RowCosts, device, gpus, link, spans_of

from stepsim.costmodels.given import GivenCosts
from stepsim.machines import DeviceKind, Machine, Route
from stepsim.plan.builder import PlanBuilder
from stepsim.simulator import simulate

SIZE_BYTES, BYTES_PER_S, LATENCY_S = 24, 2.0, 0.25


def collective(builder, kind, team, *, algorithm="ring", size_bytes=SIZE_BYTES):
    """A member on a stream of its own on each device of ``team``."""
    group, columns = builder.group(), {"size_bytes": size_bytes, "algorithm": algorithm}
    return [builder.collective(kind, team, builder.stream(f"{kind} {group}", at), group, **columns) for at in team]


def alone(kind, num_members, algorithm="ring"):
    builder = PlanBuilder()
    collective(builder, kind, [builder.device(f"gpu{i}") for i in range(num_members)], algorithm=algorithm)
    return builder.build()


def with_latency(machine):
    return replace(machine, links=tuple(replace(link, latency_s=LATENCY_S) for link in machine.links))


def in_nodes(num_nodes, gpus_a_node, *, inside, across):
    """A link up to the switch of its node and one down for each gpu, and one each way between gpus of two nodes."""
    names = {f"gpu{i}": f"node{i // gpus_a_node}" for i in range(num_nodes * gpus_a_node)}
    pairs = [(one, two) for one in names for two in names if one != two]

    def route(a, b):
        return (f"{a} up", f"{b} down") if names[a] == names[b] else (f"{a} to {b}",)

    apart = [link(f"{a} to {b}", across) for a, b in pairs if names[a] != names[b]]
    return Machine(
        name="nodes",
        devices=tuple(replace(device(name, DeviceKind.GPU), node=node) for name, node in names.items()),
        links=(*(link(f"{name} {way}", inside) for name in names for way in ("up", "down")), *apart),
        routes=tuple(Route(source=a, destination=b, links=route(a, b)) for a, b in pairs),
    )


@pytest.mark.parametrize("num_members", [2, 3, 4, 8])
@pytest.mark.parametrize(
    ("kind", "steps", "volume"),
    [
        ("all_reduce", lambda n: 2 * (n - 1), lambda n: 2 * (n - 1) / n),
        ("reduce_scatter", lambda n: n - 1, lambda n: (n - 1) / n),
        ("all_gather", lambda n: n - 1, lambda n: n - 1),
        ("broadcast", lambda n: n - 1, lambda n: 1),
        ("all_to_all", lambda n: n - 1, lambda n: 1 / n),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_ring_takes_its_steps_and_its_volume(kind, steps, volume, num_members, engine):
    """All-reduce: 2 (n - 1) l + 2 (n - 1) / n S / B, and so on; all-to-all goes from each to each, S / n a link.

    gpu0     llllAAAAAAAA     latency of all steps, then the bytes of all steps
    gpu1     llllAAAAAAAA
    """
    machine = with_latency(gpus(num_members, bandwidth_bytes_per_s=BYTES_PER_S))

    timeline = simulate(alone(kind, num_members), machine, GivenCosts(), engine=engine)

    expected_s = steps(num_members) * LATENCY_S + volume(num_members) * SIZE_BYTES / BYTES_PER_S
    assert timeline.spans.end_s.tolist() == pytest.approx([expected_s] * num_members, rel=1e-12)


@pytest.mark.parametrize(("num_members", "depth"), [(2, 1), (4, 2), (7, 2), (8, 3)])
def test_a_broadcast_down_a_tree_takes_its_depth_and_all_bytes_once(num_members, depth, engine):
    """d l + S / B

       0
     1   2
    3 4 5 6
    """
    machine = with_latency(gpus(num_members, bandwidth_bytes_per_s=BYTES_PER_S))

    timeline = simulate(alone("broadcast", num_members, "tree"), machine, GivenCosts(), engine=engine)

    assert timeline.makespan_s == pytest.approx(depth * LATENCY_S + SIZE_BYTES / BYTES_PER_S, rel=1e-12)


def test_an_all_reduce_over_two_trees_of_four_uses_the_links_of_both_trees_twice(engine):
    """2 d l + S / B: half of S goes up and down each tree, and two links are in both.

      0          2
     1 2        3 0
    3          1
    """
    machine = with_latency(gpus(4, bandwidth_bytes_per_s=BYTES_PER_S))

    timeline = simulate(alone("all_reduce", 4, "tree"), machine, GivenCosts(), engine=engine)

    assert timeline.makespan_s == pytest.approx(2 * 2 * LATENCY_S + SIZE_BYTES / BYTES_PER_S, rel=1e-12)


@pytest.mark.parametrize(("m", "g"), [(2, 2), (2, 4), (3, 2)])
@pytest.mark.parametrize("algorithm", ["hierarchical", "auto"])
def test_a_hierarchical_all_reduce_goes_round_each_node_then_across_then_round_each_node(m, g, algorithm, engine):
    """On m nodes of g: 2 (g - 1) / g S / B inside, and 2 (m - 1) / m S / g / B across.

    reduce-scatter inside   all-reduce across   all-gather inside
    RRRRRR                  AAAAAAAAAAAA        GGGGGG
    """
    inside, across = 4.0, 0.5
    machine = in_nodes(m, g, inside=inside, across=across)

    timeline = simulate(alone("all_reduce", m * g, algorithm), machine, GivenCosts(), engine=engine)

    expected_s = 2 * (g - 1) / g * SIZE_BYTES / inside + 2 * (m - 1) / m * SIZE_BYTES / g / across
    assert timeline.makespan_s == pytest.approx(expected_s, rel=1e-12)


def test_a_collective_of_one_member_takes_its_latency(engine):
    timeline = simulate(alone("all_reduce", 1), gpus(1), RowCosts(latency_s=0.5), engine=engine)

    assert timeline.makespan_s == 0.5


def test_a_collective_is_no_faster_than_its_rate_cap(engine):
    """On the busiest link: 2 (n - 1) / n S / cap."""
    costs = RowCosts(rate_cap_bytes_per_s=0.5)

    timeline = simulate(alone("all_reduce", 3), gpus(3, bandwidth_bytes_per_s=2.0), costs, engine=engine)

    assert timeline.makespan_s == pytest.approx(4 / 3 * SIZE_BYTES / 0.5, rel=1e-12)


def on_a_bus(num_gpus, *, lane, bus):
    """Each gpu has a lane out, and all bytes cross one bus.

    gpu0 --lane--+
    gpu1 --lane--+==bus==> every gpu
    """
    names = [f"gpu{i}" for i in range(num_gpus)]
    pairs = [(one, two) for one in names for two in names if one != two]
    return Machine(
        name="bus",
        devices=tuple(device(name, DeviceKind.GPU) for name in names),
        links=(*(link(f"{name} out", lane) for name in names), link("bus", bus)),
        routes=tuple(Route(source=a, destination=b, links=(f"{a} out", "bus")) for a, b in pairs),
    )


@pytest.mark.parametrize(("lane", "bus"), [(1.0, 12.0), (4.0, 6.0)], ids=["lanes bind", "bus binds"])
def test_a_ring_over_a_bus_counts_all_its_edges_there(lane, bus, engine):
    """Of n edges each lane carries one and the bus all: 2 (n - 1) S / min(bus, n lane)."""
    n = 3

    timeline = simulate(alone("all_reduce", n), on_a_bus(n, lane=lane, bus=bus), GivenCosts(), engine=engine)

    assert timeline.makespan_s == pytest.approx(2 * (n - 1) * SIZE_BYTES / min(bus, n * lane), rel=1e-12)


def test_a_link_that_carries_a_part_of_a_collective_gives_it_that_part(engine):
    """Lanes of 1 under a wide bus: the all-reduce takes 1/3 of its rate x from gpu0's lane, a copy all of its rate.

    Both rise to x with x / 3 + x = 1: 3/4. Bytes over the bus: 4 S = 36, and the copy's 36 end with them, after 48.
    """
    builder = PlanBuilder()
    devices = [builder.device(f"gpu{i}") for i in range(3)]
    collective(builder, "all_reduce", devices, size_bytes=9)
    buffers = builder.buffer(36, devices[0]), builder.buffer(36, devices[1])
    builder.copy(*buffers, builder.stream("copy", devices[0]))

    timeline = simulate(builder.build(), on_a_bus(3, lane=1.0, bus=30.0), GivenCosts(), engine=engine)

    assert timeline.spans.end_s.tolist() == pytest.approx([48.0] * 4, rel=1e-12)


def test_two_collectives_over_the_same_links_take_twice_as_long(engine):
    builder = PlanBuilder()
    devices = [builder.device(f"gpu{i}") for i in range(3)]
    for _ in range(2):
        collective(builder, "all_gather", devices)

    timeline = simulate(builder.build(), gpus(3), GivenCosts(), engine=engine)

    assert timeline.spans.end_s.tolist() == pytest.approx([2 * 2 * SIZE_BYTES] * 6, rel=1e-12)


def test_a_collective_takes_its_shares_of_every_member_and_from_its_start_on(engine):
    """gpu1 arrives at 2 and the all-reduce takes 4: the kernel of 8 on gpu0 runs at 3/4 from 2 to 6, else at 1.

    gpu0     00000000000      8 + 4 / 4
    gpu0     ..AAAA
    gpu1     GGAAAA
    """
    builder = PlanBuilder()
    one, two = builder.device("gpu0"), builder.device("gpu1")
    late = builder.compute(builder.work("G"), builder.stream("late", two))
    kernel = builder.compute(builder.work("F"), builder.stream("compute", one))
    group = builder.group()
    for device_, after in ((one, []), (two, [late])):
        stream = builder.stream("reduce", device_)
        builder.collective("all_reduce", [one, two], stream, group, size_bytes=4, after=after)
    costs = RowCosts(seconds=[2.0, 8.0, 0.0, 0.0], sm_share=[1.0, 1.0, 0.25, 0.25])

    timeline = simulate(builder.build(), gpus(2), costs, engine=engine)

    assert spans_of(timeline)[2:] == [(2.0, 6.0)] * 2
    assert timeline.span(kernel).end_s == 9.0


@pytest.mark.parametrize("speed", [1.0, 0.8, 0.5])
def test_a_synchronous_step_is_as_slow_as_its_straggler(speed, engine):
    """k steps of a kernel of w and an all-reduce of t, with one gpu of speed v: k (w / v + t).

    gpu0     000..AA000..AA
    gpu1     11111AA11111AA
    """
    num_steps, kernel_s, num_gpus = 3, 4.0, 3
    builder = PlanBuilder()
    devices = [builder.device(f"gpu{i}") for i in range(num_gpus)]
    streams = [builder.stream("compute", at) for at in devices]
    for _ in range(num_steps):
        for stream in streams:
            builder.compute(builder.work("FB"), stream)
        group = builder.group()
        for stream in streams:
            builder.collective("all_reduce", devices, stream, group, size_bytes=6, algorithm="ring")
    slow = {"speed": speed, "sources": {"memory_bytes": "test"} | ({"speed": "test"} if speed != 1 else {})}
    machine = gpus(num_gpus)
    straggler = replace(machine.devices[1], **slow)
    machine = replace(machine, devices=(machine.devices[0], straggler, *machine.devices[2:]))

    timeline = simulate(builder.build(), machine, GivenCosts(seconds={"FB": kernel_s}), engine=engine)

    reduce_s = 2 * (num_gpus - 1) / num_gpus * 6
    assert timeline.makespan_s == pytest.approx(num_steps * (kernel_s / speed + reduce_s), rel=1e-12)


@pytest.mark.parametrize(("num_nodes", "depth"), [(2, 1), (4, 2)])
def test_a_tree_over_nodes_crosses_between_nodes_as_seldom_as_their_tree_does(num_nodes, depth, engine):
    """A broadcast over m nodes of 2: S down one tree of nodes, and S along the chain in each: the slowest edge once.

    node0  0-1         across: 0 to 2, 0 to 4, ...; inside: 0 to 1, 2 to 3, ...
    node1  2-3
    """
    machine = with_latency(in_nodes(num_nodes, 2, inside=100.0, across=BYTES_PER_S))

    timeline = simulate(alone("broadcast", 2 * num_nodes, "tree"), machine, GivenCosts(), engine=engine)

    hop_s = 2 * LATENCY_S  # up to the switch and down again, the longest of all edges
    assert timeline.makespan_s == pytest.approx((depth + 1) * hop_s + SIZE_BYTES / BYTES_PER_S, rel=1e-12)
