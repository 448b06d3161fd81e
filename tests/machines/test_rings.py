"""Rings: how many of them the links of a team carry, and which."""

from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_machines import device, gpus, link

from stepsim.machines import DeviceKind, Machine, Route, load_machine
from stepsim.machines.collectives import collective_stages
from stepsim.machines.rings import edges, rings_of


def names(number):
    return [f"gpu{i}" for i in range(number)]


def bus_bytes_per_s(machine, algorithm, team):
    """Of an all-reduce of many bytes, as nccl-tests count it: 2 (n - 1) / n times the bytes over the time."""
    (stage,) = collective_stages(machine, "all_reduce", algorithm, team)
    return 2 * (len(team) - 1) / len(team) * stage.rate_bytes_per_s / stage.volume


def test_a_mesh_of_links_of_one_width_carries_a_ring_for_each_other_member():
    """Each of three has two links out, and each ring takes one of them."""
    rings = rings_of(gpus(3), names(3))

    assert [share for share, _ in rings] == [0.5, 0.5]
    taken = [edge for _, ring in rings for edge in edges(ring)]
    assert sorted(taken) == sorted(permutations(names(3), 2))


def test_a_switch_carries_one_ring():
    """All that a device sends goes over its one link up."""
    links = [link(f"{name} {way}") for name in names(4) for way in ("up", "down")]
    routes = [Route(source=a, destination=b, links=(f"{a} up", f"{b} down")) for a, b in permutations(names(4), 2)]
    devices = [device(name, DeviceKind.GPU) for name in names(4)]
    machine = Machine(name="switch", devices=tuple(devices), links=tuple(links), routes=tuple(routes))

    assert rings_of(machine, names(4)) == [(1.0, names(4))]


@pytest.mark.parametrize("machine", ["dgx_1v", "p3_16xlarge"])
def test_the_hybrid_cube_mesh_carries_two_rings_of_double_links_and_two_of_single_ones(machine):
    """Each ring in both ways. Together six connections at each GPU, all that it has."""
    rings = rings_of(load_machine(machine), names(8))

    assert [share for share, _ in rings] == pytest.approx([1 / 3, 1 / 3, 1 / 6, 1 / 6], rel=1e-3)
    assert rings[1][1] == [rings[0][1][0], *rings[0][1][:0:-1]]


@pytest.mark.parametrize(("num_gpus", "measured"), [(4, 76.7e9), (8, 130e9)])
def test_an_all_reduce_on_the_hybrid_cube_mesh_is_near_what_was_measured(num_gpus, measured):
    """microsoft/vidur, all_reduce.csv of V100 in its history: bus bandwidth of the largest sizes."""
    dgx = load_machine("dgx_1v")

    assert bus_bytes_per_s(dgx, "rings", names(num_gpus)) == pytest.approx(measured, rel=0.25)
    assert bus_bytes_per_s(dgx, "ring", names(num_gpus)) < measured / 3
    assert bus_bytes_per_s(dgx, "auto", names(num_gpus)) == bus_bytes_per_s(dgx, "rings", names(num_gpus))


def test_a_large_team_goes_round_one_ring_as_it_stands():
    team = [f"node{node}/gpu{i}" for node in range(2) for i in range(8)]

    assert rings_of(load_machine("dgx_1v_x4"), team) == [(1.0, team)]


@given(st.data())
def test_rings_go_round_the_whole_team_and_no_link_carries_more_than_it_can(data):
    number = data.draw(st.integers(2, 5))
    machine = Machine(
        name="any",
        devices=tuple(device(name, DeviceKind.GPU) for name in names(number)),
        links=tuple(link(f"{a} {b}", data.draw(st.floats(1, 10))) for a, b in permutations(names(number), 2)),
        routes=tuple(Route(source=a, destination=b, links=(f"{a} {b}",)) for a, b in permutations(names(number), 2)),
    )

    rings = rings_of(machine, names(number))

    assert sum(share for share, _ in rings) == pytest.approx(1)
    assert all(sorted(ring) == names(number) for _, ring in rings)
    one, many = (bus_bytes_per_s(machine, algorithm, names(number)) for algorithm in ("ring", "rings"))
    assert many >= one * (1 - 1e-9)
