"""The machines that ship: complete, and as fast as what was measured on their like."""

from collections import Counter
from itertools import permutations

import numpy as np
import pandas as pd
import pytest
from small_machines import RowCosts

from stepsim.machines import DeviceKind, load_machine, shipped_machines
from stepsim.plan.builder import PlanBuilder
from stepsim.simulator import simulate

WANTED = {
    "k40": "1 x Tesla K40",
    "titan_x_maxwell": "1 x GeForce GTX Titan X",
    "p100_pcie_4": "4 x Tesla P100-PCIE-16GB",
    "dgx_1v": "8 x Tesla V100-SXM2-32GB",
    "dgx_1v_x4": "32 x Tesla V100-SXM2-32GB",
    "azure_nc24v3": "4 x Tesla V100-PCIE-16GB",
    "azure_nc24v3_x4": "16 x Tesla V100-PCIE-16GB",
    "p3_16xlarge": "8 x Tesla V100-SXM2-16GB",
    "p3_16xlarge_x8": "64 x Tesla V100-SXM2-16GB",
    "p40_8": "8 x Tesla P40",
    "rtx_2080_ti": "1 x GeForce RTX 2080 Ti",
    "v100_pcie": "1 x Tesla V100-PCIE-32GB",
    "dgx_a100": "8 x A100-SXM4-40GB",
    "dgx_a100_x4": "32 x A100-SXM4-40GB",
    "hgx_h100": "8 x H100-SXM5-80GB",
    "hgx_h100_x128": "1024 x H100-SXM5-80GB",
    "hgx_h200": "8 x H200-SXM5-141GB",
    "p4": "1 x Tesla P4",
    "t4": "1 x Tesla T4",
    "l4": "1 x NVIDIA L4",
    "a40": "1 x NVIDIA A40",
    "a100_pcie": "1 x NVIDIA A100-PCIE-40GB",
    "a100_pcie_80gb": "1 x NVIDIA A100 80GB PCIe",
    "gtx_1080_ti": "1 x GeForce GTX 1080 Ti",
}

CLUSTERS = ["azure_nc24v3_x4", "dgx_1v_x4", "dgx_a100_x4", "hgx_h100_x128", "p3_16xlarge_x8"]

NODES = [name for name in WANTED if name not in CLUSTERS]

NETWORKED = [
    "titan_x_maxwell",
    "p100_pcie_4",
    "dgx_1v",
    "azure_nc24v3",
    "p3_16xlarge",
    "dgx_a100",
    "hgx_h100",
    "hgx_h200",
]

CUBES = ["dgx_1v", "p3_16xlarge"]


def gpus_of(machine):
    return [device.name for device in machine.devices if device.kind is DeviceKind.GPU]


def slowest(machine, source, destination):
    return min(link.bandwidth_bytes_per_s for link in machine.route(source, destination))


# --- complete -------------------------------------------------------------------------------------------------------


def test_these_machines_ship():
    models = {
        name: Counter(device.model for device in load_machine(name).devices if device.kind is DeviceKind.GPU)
        for name in shipped_machines()
    }

    told = {name: f"{count} x {model}" for name, counts in models.items() for model, count in counts.items()}

    assert told == WANTED


@pytest.mark.parametrize("name", shipped_machines())
def test_a_shipped_machine_bears_the_name_of_its_file_and_gives_a_source_for_all_it_says(name):
    machine = load_machine(name)

    assert machine.name == name
    assert machine.description
    for noun in (*machine.devices, *machine.links):
        assert all(len(source) > 10 for source in noun.sources.values())


@pytest.mark.parametrize("name", NODES)
def test_the_gpus_of_a_shipped_machine_tell_all_that_cost_models_read_of_a_data_sheet(name):
    gpu = next(device for device in load_machine(name).devices if device.kind is DeviceKind.GPU)

    assert gpu.peak_flop_per_s["float32"] > gpu.memory_bandwidth_bytes_per_s > gpu.l2_bytes > gpu.power_w > 0
    assert gpu.num_sms > 0


@pytest.mark.parametrize("name", shipped_machines())
def test_the_links_of_a_shipped_machine_tell_their_ends_and_all_are_used(name):
    machine = load_machine(name)

    assert all(link.ends for link in machine.links)
    assert {link for route in machine.routes for link in route.links} == {link.name for link in machine.links}


@pytest.mark.parametrize("name", NODES)
def test_all_devices_of_a_node_reach_each_other_as_fast_in_both_directions(name):
    machine = load_machine(name)
    reachable = [device.name for device in machine.devices if device.kind is not DeviceKind.NETWORK]

    for one, two in permutations(reachable, 2):
        assert machine.route(one, two)
        assert slowest(machine, one, two) == slowest(machine, two, one)


@pytest.mark.parametrize("name", shipped_machines())
def test_a_gpu_swaps_to_the_host_of_its_node(name):
    machine = load_machine(name)

    for gpu in gpus_of(machine):
        host = gpu.rpartition("/")[0] + "/host" if "/" in gpu else "host"
        assert machine.route(gpu, host)[0].ends[0] == gpu
        assert machine.route(host, gpu)[0].ends[0] == host


@pytest.mark.parametrize("name", NETWORKED)
def test_every_device_of_a_networked_machine_reaches_the_network(name):
    machine = load_machine(name)

    for device in [*gpus_of(machine), "host"]:
        assert machine.route(device, "net")[-1].ends[1] == "net"
        assert machine.route("net", device)[0].ends[0] == "net"


@pytest.mark.parametrize("name", CLUSTERS)
def test_the_nodes_of_a_cluster_reach_each_other(name):
    machine = load_machine(name)
    gpus = gpus_of(machine)

    assert machine.route(gpus[0], gpus[-1])
    assert machine.device(gpus[0]).node != machine.device(gpus[-1]).node


# --- topology -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CUBES)
def test_in_a_hybrid_cube_mesh_each_gpu_has_six_nvlinks_of_its_own(name):
    machine = load_machine(name)
    single = min(slowest(machine, "gpu0", other) for other in ("gpu1", "gpu3"))

    for gpu in gpus_of(machine):
        away = [link for link in machine.links if link.ends[0] == gpu and link.ends[1].startswith("gpu")]
        assert sum(link.bandwidth_bytes_per_s / single for link in away) == pytest.approx(6)
        assert len(away) == 4


@pytest.mark.parametrize("name", CUBES)
def test_in_a_hybrid_cube_mesh_nobody_is_further_than_two_hops_and_takes_the_widest_way(name):
    machine = load_machine(name)
    rate = {link.ends: link.bandwidth_bytes_per_s for link in machine.links}
    gpus = gpus_of(machine)

    for one, two in permutations(gpus, 2):
        ways = [min(rate.get((one, over), 0), rate.get((over, two), 0)) for over in gpus]
        if (one, two) in rate:
            assert [link.ends for link in machine.route(one, two)] == [(one, two)]
        else:
            assert len(machine.route(one, two)) == 2
            assert slowest(machine, one, two) == max(ways)


def links_of(machine, *routes):
    return [{link.name for link in machine.route(*ends)} for ends in routes]


def test_two_gpus_of_a_dgx_share_the_uplink_of_their_switch_and_those_of_two_switches_share_nothing():
    machine = load_machine("dgx_1v")

    one, two, three = links_of(machine, ("gpu0", "host"), ("gpu1", "host"), ("gpu2", "host"))

    assert one & two == {"switch0 to host"}
    assert not one & three


def test_peers_on_one_switch_leave_its_uplink_alone():
    machine = load_machine("p100_pcie_4")

    swap, peers = links_of(machine, ("gpu0", "host"), ("gpu0", "gpu3"))

    assert swap == {"gpu0 to switch0", "switch0 to host"}
    assert peers == {"gpu0 to switch0", "switch0 to gpu3"}


def test_each_gpu_of_a_server_with_as_many_cards_has_one_to_itself():
    machine = load_machine("hgx_h100")

    cards = [machine.route(gpu, "net")[-1].name for gpu in gpus_of(machine)]

    assert sorted(cards) == [f"nic{i} to net" for i in range(8)]


@pytest.mark.parametrize("name", ["hgx_h100", "hgx_h200"])
def test_no_two_gpus_of_an_hgx_share_a_link_to_the_host(name):
    machine = load_machine(name)

    links = [link.name for gpu in gpus_of(machine) for link in machine.route(gpu, "host")]

    assert len(links) == len(set(links)) == 2 * 8


def test_an_h200_server_is_an_h100_server_with_more_and_faster_memory():
    h100, h200 = load_machine("hgx_h100"), load_machine("hgx_h200")

    def links(machine):
        return [(link.name, link.ends, link.latency_s, link.bandwidth_bytes_per_s) for link in machine.links]

    assert links(h100) == links(h200)
    assert h100.routes == h200.routes
    for old, new in zip(h100.devices, h200.devices, strict=True):
        assert (old.name, old.num_sms, old.peak_flop_per_s) == (new.name, new.num_sms, new.peak_flop_per_s)
    assert h200.device("gpu0").memory_bytes > 1.7 * h100.device("gpu0").memory_bytes
    assert h200.device("gpu0").memory_bandwidth_bytes_per_s > 1.4 * h100.device("gpu0").memory_bandwidth_bytes_per_s
    assert h200.device("host").memory_bytes == h100.device("host").memory_bytes


# --- as measured ----------------------------------------------------------------------------------------------------


def rate_in(path):
    """Median bytes a second of large sends, each of a worker's share of float16 activations."""
    sends = pd.read_csv(path)
    size_bytes = 2 * sends["n_embd"] * sends["num_tokens"] / sends["num_tensor_parallel_workers"]
    rates = size_bytes / (sends["time_stats.send_recv.median"] * 1e-3)
    return rates[size_bytes > 1e8].median()


@pytest.mark.parametrize(
    ("name", "ends", "file"),
    [
        ("dgx_1v", ("gpu0", "gpu3"), "v100/p2p_intra_node"),
        ("dgx_a100", ("gpu0", "gpu7"), "a100/p2p_intra_node"),
        ("dgx_a100_x4", ("node0/gpu0", "node3/gpu0"), "a100/p2p_inter_node"),
    ],
)
def test_gpus_send_to_each_other_as_fast_as_was_measured(data_dir, name, ends, file):
    assert slowest(load_machine(name), *ends) == pytest.approx(
        rate_in(data_dir / f"vidur/history/{file}.csv.gz"), rel=0.005
    )


def test_nodes_of_h100_send_to_each_other_as_fast_as_was_measured(data_dir):
    runs = pd.read_csv(data_dir / "nccl_tests_cluster/example-cluster01/pairwise/20260128-010702/summary.csv")
    one_gpu_a_node = runs[(runs["test"] == "sendrecv_perf") & (runs["N"] == 2) & (runs["G"] == 1)]

    rate = slowest(load_machine("hgx_h100_x128"), "node0/gpu0", "node1/gpu0")

    assert len(one_gpu_a_node) == 45
    assert rate == pytest.approx(one_gpu_a_node["peak_busbw_GBs"].median() * 1e9, rel=0.005)


def test_the_v100_copies_as_fast_as_was_measured(data_dir):
    """Pinned copies to the device: the machine's latency and bandwidth against each of the 81 measured sizes."""
    log = (data_dir / "superbench/cuda_memory_h2d_bw.log").read_text()
    rows = [line.split(",") for line in log.splitlines() if line.startswith("bandwidthTest-H2D-Pinned")]
    sizes_bytes = [int(row[3].split()[2]) for row in rows]
    measured_s = [size / (float(row[1].split()[2]) * 1e9) for size, row in zip(sizes_bytes, rows, strict=True)]

    simulated_s = [copy_in_s(size) for size in sizes_bytes]

    errors = np.abs(np.array(simulated_s) / measured_s - 1)
    assert len(errors) == 81
    assert np.median(errors) < 0.01
    assert errors.max() < 0.20  # three large sizes ran at 10.5 to 11.5 GB/s


def copy_in_s(size_bytes):
    machine = load_machine("v100_pcie")
    builder = PlanBuilder()
    gpu, host = builder.device("gpu0"), builder.device("host")
    stream = builder.stream("h2d", gpu, role="h2d")
    builder.copy(builder.buffer(size_bytes, host), builder.buffer(size_bytes, gpu), stream)
    latency_s = machine.link("host to gpu0").latency_s
    return simulate(builder.build(), machine, RowCosts(latency_s=latency_s)).makespan_s
