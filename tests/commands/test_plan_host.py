"""`stepsim plan` for machines whose host is too small for what is swapped out, or that have none."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from command_line import done, refused

from stepsim.machines import DeviceKind, Machine, load_machine, save_machine

HOST_LACKS = r"what {} finds within memory limit {} needs (\d+) \(.*\) on host, which has 1024 \(1.00 KiB\): "


@pytest.fixture
def small_host(files, here):
    """The options for the machine of the files with 1 KiB on its host."""
    machine = load_machine(files.machine)
    devices = [replace(each, memory_bytes=1024) if each.kind is DeviceKind.HOST else each for each in machine.devices]
    return saved(replace(machine, devices=tuple(devices)), files)


@pytest.fixture
def no_host(files, here):
    machine = load_machine(files.machine)
    devices = tuple(each for each in machine.devices if each.kind is not DeviceKind.HOST)
    return saved(replace(machine, devices=devices, links=(), routes=()), files)


def saved(machine: Machine, files) -> tuple[object, ...]:
    save_machine(machine, Path("m.toml"))
    return files.workload, "--machine", "m.toml", "--calibration", files.calibration


def test_a_plan_that_the_host_cannot_hold_is_answered_with_what_it_needs_and_a_limit_that_works(small_host):
    """What cannot go to the host stays on the device."""
    told = ("plan", *small_host, "--strategy", "greedy-swap")

    message = refused(*told, "--memory", "22KiB")

    lacks = HOST_LACKS.format("greedy-swap", "22.00 KiB")
    found = re.fullmatch(
        rf"{re.escape(str(small_host[0]))}: {lacks}the smallest limit that works is (\d+) \(.*\)", message
    )
    needs_bytes, least_bytes = map(int, found.groups())
    assert needs_bytes > 1024
    assert least_bytes > 22 * 1024
    refused(*told, "--memory", least_bytes - 1)
    done(*told, "--memory", least_bytes)
    done("simulate", "step.plan", *small_host[1:], "-o", "t")


def test_where_no_limit_works_none_is_claimed(small_host):
    message = refused("plan", *small_host, "--strategy", "vdnn-every")

    assert re.search(rf"{HOST_LACKS.format('vdnn-every', '.* GiB')}no limit that works was found$", message)


@pytest.mark.parametrize(
    "strategy", ["keep-all", "greedy", "vdnn-dynamic", "home", "capuchin", "chen-greedy", "refined"]
)
def test_a_small_host_is_no_matter_where_everything_fits_on_the_device(small_host, strategy):
    ran = done("plan", *small_host, "--strategy", strategy, "--time-limit", 2, "--json")

    assert ran.facts["feasible"] is True
    done("simulate", "step.plan", *small_host[1:], "-o", "t")


@pytest.mark.parametrize("strategy", ["keep-all", "vdnn-dynamic", "chen-greedy", "greedy-recompute"])
def test_what_swaps_nothing_is_planned_without_a_host(no_host, strategy):
    done("plan", *no_host, "--strategy", strategy)
    done("simulate", "step.plan", *no_host[1:], "-o", "t")


def test_what_swaps_is_refused_without_a_host(no_host):
    message = refused("plan", *no_host, "--strategy", "greedy-swap", "--memory", "22KiB")

    assert message == "machine 'this_cpu' has no host device to swap to"
