"""Clusters: copies of a node that meet in its network."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepsim.errors import MachineError
from stepsim.machines import DeviceKind, cluster, load_machine


def names_of(links):
    return [link.name for link in links]


def test_a_cluster_holds_a_copy_of_the_node_for_each_count_and_one_network():
    node = load_machine("azure_nc24v3")

    two = cluster(node, 2)

    prefixed = [f"node{i}/{name}" for i in range(2) for name in ("gpu0", "gpu1", "gpu2", "gpu3", "host")]
    assert two.name == "azure_nc24v3_x2"
    assert [device.name for device in two.devices] == [*prefixed, "net"]
    assert [device.node for device in two.devices] == ["node0"] * 5 + ["node1"] * 5 + [""]
    assert len(two.links) == 2 * len(node.links)
    assert len(two.routes) == 2 * len(node.routes)


def test_nodes_reach_each_other_through_the_network_and_themselves_as_before():
    two = cluster(load_machine("dgx_1v"), 2)

    inside = names_of(two.route("node1/gpu0", "node1/gpu5"))
    across = names_of(two.route("node0/gpu3", "node1/gpu6"))

    assert inside == ["node1/gpu0 to gpu1", "node1/gpu1 to gpu5"]
    assert across == [
        "node0/gpu3 to switch1",
        "node0/switch1 to net",
        "node1/net to switch3",
        "node1/switch3 to gpu6",
    ]


@given(st.data())
def test_a_route_inside_any_node_is_that_of_the_node(data):
    node = load_machine("dgx_a100")
    four = cluster(node, 4)
    ends = st.sampled_from([device.name for device in node.devices if device.kind is not DeviceKind.NETWORK])
    source, destination, number = data.draw(ends), data.draw(ends), data.draw(st.integers(0, 3))

    inside = four.route(f"node{number}/{source}", f"node{number}/{destination}")

    assert names_of(inside) == [f"node{number}/{name}" for name in names_of(node.route(source, destination))]


def test_a_machine_without_a_network_cannot_be_a_node():
    with pytest.raises(MachineError) as caught:
        cluster(load_machine("v100_pcie"), 4)

    assert str(caught.value) == "machine 'v100_pcie' has no route to a network, so it cannot be a node of a cluster"


def test_a_network_that_nothing_reaches_makes_no_node():
    node = load_machine("titan_x_maxwell")
    cut_off = replace(node, routes=node.routes[:2])

    with pytest.raises(MachineError, match="has no route to a network"):
        cluster(cut_off, 2)


@pytest.mark.parametrize("count", [0, -1])
def test_a_cluster_of_no_nodes_is_refused(count):
    with pytest.raises(MachineError, match=f"a cluster of 'dgx_1v' needs count >= 1, got {count}"):
        cluster(load_machine("dgx_1v"), count)


def test_a_cluster_is_no_node():
    with pytest.raises(MachineError, match="machine 'dgx_1v_x2' is a cluster already"):
        cluster(cluster(load_machine("dgx_1v"), 2), 2)


def test_a_straggler_of_a_cluster_is_named_with_its_node():
    slowed = cluster(load_machine("dgx_1v"), 2).with_speeds({"node1/gpu3": 0.8})

    assert [device.name for device in slowed.devices if device.speed != 1] == ["node1/gpu3"]
