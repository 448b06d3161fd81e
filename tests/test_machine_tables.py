"""What a person reads about a machine: like parts share a row, no number and no source is lost."""

import io
import re

import pytest
from rich.console import Console
from small_machines import gpus

from stepsim.machine_tables import NAMES_SHOWN, print_machine, print_machines, what_computes
from stepsim.machines import cluster, load_machine, shipped_machines


def printed(show, *given):
    """The words that ``show`` prints, one space apart."""
    text = io.StringIO()
    show(*given, Console(file=text, width=1000))
    return re.sub(r"[\s─]+", " ", text.getvalue()).strip()


@pytest.mark.parametrize("name", shipped_machines())
def test_every_source_of_a_shipped_machine_is_shown(name):
    machine = load_machine(name)

    text = printed(print_machine, machine)

    assert text.startswith(f"{machine.name}: {machine.description}")
    for noun in (*machine.devices, *machine.links):
        assert all(source in text for source in noun.sources.values())


def test_equal_devices_links_and_routes_share_a_row():
    text = printed(print_machine, gpus(3))

    names = "gpu0 to gpu1 ... host to gpu2 (12)"
    assert "gpu0, gpu1, gpu2 (gpu) memory 931.32 GiB test host (host) memory 931.32 GiB test" in text
    assert f"{names} bandwidth 0.00 GB/s test {names} latency 0.0 us test" in text
    assert "gpu0, gpu1, gpu2 gpu1, gpu2, gpu0 gpu0 to gpu1, and so on (6) 0.00 GB/s 0.0 us" in text


def test_a_device_that_differs_has_rows_of_its_own():
    text = printed(print_machine, gpus(3).with_speeds({"gpu1": 0.8}))

    assert "gpu0, gpu2 (gpu) memory" in text
    assert "gpu1 (gpu) memory" in text
    assert "gpu1 (gpu) speed 0.8 what if" in text


def test_a_thousand_gpus_take_no_more_rows_than_those_of_one_node():
    node = load_machine("hgx_h100")

    one, many = (len(lines_of(machine)) for machine in (node, cluster(node, 128)))

    assert many == one


def lines_of(machine):
    text = io.StringIO()
    print_machine(machine, Console(file=text, width=1000))
    return text.getvalue().splitlines()


@pytest.mark.parametrize("num", [NAMES_SHOWN, NAMES_SHOWN + 1])
def test_many_names_are_told_by_the_first_the_last_and_how_many(num):
    text = printed(print_machine, gpus(num))

    listed = ", ".join(f"gpu{i}" for i in range(num))
    assert (f"{listed} (gpu)" in text) == (num <= NAMES_SHOWN)
    assert (f"gpu0 ... gpu{num - 1} ({num}) (gpu)" in text) == (num > NAMES_SHOWN)


def test_the_slowest_link_and_all_latencies_of_a_route_are_told():
    text = printed(print_machine, load_machine("titan_x_maxwell"))

    assert "gpu0 net gpu0 to host, then host to net 4.71 GB/s 7.0 us" in text


def test_machines_are_listed_with_what_computes_on_them():
    text = printed(print_machines, [load_machine("k40"), load_machine("hgx_h100_x128")])

    assert "k40 1 x Tesla K40 A workstation with one Tesla K40" in text
    assert "hgx_h100_x128 1024 x H100-SXM5-80GB 128 nodes of hgx_h100" in text


def test_a_device_without_a_model_is_told_by_its_kind():
    assert what_computes(gpus(2)) == "2 x gpu"
