"""The short forms of a machine file: counts, connections, paths, and clusters."""

import pytest

from stepsim.errors import FileError
from stepsim.machines import cluster, load_machine, save_machine

SHORT = """
name = "pair"

[[devices]]
name = "gpu"
count = 2
kind = "gpu"
memory_bytes = 1000
sources = { memory_bytes = "data sheet" }

[[devices]]
name = "host"
kind = "host"
memory_bytes = 2000
sources = { memory_bytes = "assumed" }

[[devices]]
name = "net"
kind = "network"
memory_bytes = 0
sources = {}

[[connections]]
pairs = [["gpu0", "switch"], ["gpu1", "switch"], ["host", "net"]]
latency_s = 1e-6
bandwidth_bytes_per_s = 12e9
sources = { latency_s = "a log", bandwidth_bytes_per_s = "the same log" }

[[links]]
name = "uplink"
ends = ["switch", "host"]
latency_s = 0
bandwidth_bytes_per_s = 10e9
sources = { latency_s = "a log", bandwidth_bytes_per_s = "the same log" }

[[paths]]
places = [["gpu0", "switch", "host"], ["gpu1", "switch", "host"], ["gpu0", "switch", "gpu1"], ["host", "net"]]
"""

CLUSTER = """
name = "two pairs"
node = "pair.toml"
count = 2
"""


def written(tmp_path, text, name="pair.toml"):
    path = tmp_path / name
    path.write_text(text)
    return path


def names_of(links):
    return [link.name for link in links]


def refusal(path):
    with pytest.raises(FileError) as caught:
        load_machine(path)
    message = str(caught.value)
    assert "\n" not in message
    return message.removeprefix(f"{path}: ")


def test_a_count_stands_for_equal_devices_with_numbers(tmp_path):
    machine = load_machine(written(tmp_path, SHORT))

    assert [device.name for device in machine.devices] == ["gpu0", "gpu1", "host", "net"]
    assert machine.device("gpu1").sources == {"memory_bytes": "data sheet"}


def test_a_connection_is_a_link_each_way(tmp_path):
    machine = load_machine(written(tmp_path, SHORT))

    assert machine.link("gpu0 to switch").ends == ("gpu0", "switch")
    assert machine.link("switch to gpu0").ends == ("switch", "gpu0")
    assert machine.link("net to host").bandwidth_bytes_per_s == 12e9


def test_a_path_is_a_route_each_way_and_a_lone_link_serves_both_directions(tmp_path):
    machine = load_machine(written(tmp_path, SHORT))

    assert names_of(machine.route("gpu0", "host")) == ["gpu0 to switch", "uplink"]
    assert names_of(machine.route("host", "gpu0")) == ["uplink", "switch to gpu0"]
    assert names_of(machine.route("gpu1", "gpu0")) == ["gpu1 to switch", "switch to gpu0"]


def test_the_short_form_means_what_the_long_form_says(tmp_path):
    machine = load_machine(written(tmp_path, SHORT))

    save_machine(machine, tmp_path / "long.toml")

    assert "[[connections]]" not in (tmp_path / "long.toml").read_text()
    assert load_machine(tmp_path / "long.toml") == machine


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("count = 2", "count = 0", "devices.0.count: input should be greater than or equal to 1, got 0"),
        (
            '["gpu0", "switch"],',
            '["gpu0", "switch", "gpu1"],',
            "connections.0.pairs.0: list should have at most 2 items",
        ),
        (
            'ends = ["switch", "host"]',
            'ends = ["switch"]',
            "links.0.ends: list should have at least 2 items",
        ),
        (
            '["gpu0", "switch", "host"],',
            '["gpu0"],',
            "paths.0.places.0: list should have at least 2 items",
        ),
        (
            '["gpu0", "switch", "gpu1"],',
            '["gpu0", "gpu1"],',
            "machine: a path needs one link from 'gpu0' to 'gpu1', but no link leads there",
        ),
        (
            '["gpu0", "switch", "gpu1"],',
            '["gpu0", "switch"],',
            "machine: machine 'pair' has no device 'switch'; it has ['gpu0', 'gpu1', 'host', 'net']",
        ),
        (
            '["gpu1", "switch"], ',
            '["gpu1", "switch"], ["gpu1", "switch"], ',
            "machine: a path needs one link from 'gpu1' to 'switch', but 2 links lead there",
        ),
        (
            '["gpu0", "switch", "gpu1"],',
            '["gpu0", "switch", "host"],',
            "machine: machine 'pair': route from 'gpu0' to 'host' is there 2 times",
        ),
        ("bandwidth_bytes_per_s = 12e9", "bandwidth_bytes_per_s = 0.0", "machine: link 'gpu0 to switch': bandwidth_b"),
        (
            "memory_bytes = 0\n",
            "memory_bytes = 7\n",
            "machine: device 'net': memory_bytes of a network must be 0, got 7",
        ),
    ],
)
def test_a_fault_in_a_short_form_is_told_in_one_line(tmp_path, old, new, message):
    assert SHORT.count(old) == 1

    assert refusal(written(tmp_path, SHORT.replace(old, new))).startswith(message)


def test_a_cluster_file_names_its_node_and_a_count(tmp_path):
    written(tmp_path, SHORT)

    machine = load_machine(written(tmp_path, CLUSTER, "cluster.toml"))

    assert machine == cluster(load_machine(tmp_path / "pair.toml"), 2, name="two pairs")


def test_the_node_of_a_cluster_may_be_a_shipped_machine(tmp_path):
    path = written(tmp_path, 'name = "c"\nnode = "azure_nc24v3"\ncount = 3\n')

    assert load_machine(path).device("node2/gpu3").model == "Tesla V100-PCIE-16GB"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (CLUSTER + "devices = []\n", "devices: extra inputs are not permitted, got []"),
        (CLUSTER.replace("count = 2\n", ""), "count: field required"),
        (CLUSTER.replace("2", '"2"'), "count: input should be a valid integer, got '2'"),
        (CLUSTER.replace("2", "0"), "machine: a cluster of 'pair' needs count >= 1, got 0"),
        (CLUSTER.replace("pair.toml", "cluster.toml"), "node: must be a machine, not a cluster, got 'cluster.toml'"),
        (CLUSTER.replace("pair.toml", "dgx_1v_x4"), "node: must be a machine, not a cluster, got 'dgx_1v_x4'"),
        (CLUSTER.replace("pair.toml", "dgx_9"), "node: must be a shipped machine (see stepsim machines) or a .toml"),
        (CLUSTER.replace("pair.toml", "this_cpu"), "node: must be a shipped machine (see stepsim machines) or a .toml"),
        (CLUSTER.replace("pair.toml", "v100_pcie"), "machine: machine 'v100_pcie' has no route to a network"),
    ],
)
def test_a_faulty_cluster_file_is_refused_in_one_line(tmp_path, text, message):
    written(tmp_path, SHORT)

    assert refusal(written(tmp_path, text, "cluster.toml")).startswith(message)


def test_a_cluster_of_a_file_that_is_not_there_names_that_file(tmp_path):
    path = written(tmp_path, CLUSTER, "cluster.toml")

    assert refusal(path) == f"{tmp_path / 'pair.toml'}: file: cannot be read: No such file or directory"
