import math
from dataclasses import replace

import pytest
from small_machines import device, gpus, link

from stepsim.errors import MachineError
from stepsim.machines import Device, DeviceKind, Link, Machine, Route


def refusal(make):
    with pytest.raises(MachineError) as caught:
        make()
    return str(caught.value)


def test_a_machine_finds_its_devices_links_and_routes_by_name():
    machine = gpus(2)

    assert machine.device("gpu1").name == "gpu1"
    assert machine.link("gpu0 to host").bandwidth_bytes_per_s == 1.0
    assert [each.name for each in machine.route("gpu1", "host")] == ["gpu1 to host"]


def test_within_a_device_there_is_a_route_without_links():
    assert gpus().route("gpu0", "gpu0") == ()


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda machine: machine.device("gpu7"), "machine 'small' has no device 'gpu7'; it has ['gpu0', 'host']"),
        (
            lambda machine: machine.link("bus"),
            "machine 'small' has no link 'bus'; it has ['gpu0 to host', 'host to gpu0']",
        ),
        (lambda machine: machine.route("gpu0", "gpu7"), "machine 'small' has no route from 'gpu0' to 'gpu7'"),
    ],
    ids=["device", "link", "route"],
)
def test_what_a_machine_lacks_is_named_with_what_it_has(ask, message):
    assert refusal(lambda: ask(gpus())) == message


@pytest.mark.parametrize(
    ("field", "value", "problem"),
    [
        ("memory_bytes", 0, "must be > 0, got 0"),
        ("memory_bytes", -5, "must be > 0, got -5"),
        ("memory_bandwidth_bytes_per_s", -1.0, "must be >= 0, got -1.0"),
        ("memory_bandwidth_bytes_per_s", math.nan, "must be >= 0, got nan"),
        ("num_sms", -1, "must be >= 0, got -1"),
        ("copy_engines", 0, "must be > 0, got 0"),
    ],
)
def test_a_senseless_number_of_a_device_is_named(field, value, problem):
    assert refusal(lambda: replace(device("gpu0", DeviceKind.GPU), **{field: value})) == (
        f"device 'gpu0': {field} {problem}"
    )


def test_a_senseless_peak_is_named_with_its_dtype():
    message = refusal(lambda: replace(device("gpu0", DeviceKind.GPU), peak_flop_per_s={"float32": 0.0}))

    assert message == "device 'gpu0': peak_flop_per_s.float32 must be > 0, got 0.0"


@pytest.mark.parametrize(
    ("field", "value", "problem"),
    [
        ("latency_s", -1e-6, "must be >= 0, got -1e-06"),
        ("latency_s", math.inf, "must be >= 0, got inf"),
        ("bandwidth_bytes_per_s", 0.0, "must be > 0, got 0.0"),
        ("bandwidth_bytes_per_s", math.nan, "must be > 0, got nan"),
    ],
)
def test_a_senseless_number_of_a_link_is_named(field, value, problem):
    assert refusal(lambda: replace(link("bus"), **{field: value})) == f"link 'bus': {field} {problem}"


@pytest.mark.parametrize(
    "given",
    [
        {"peak_flop_per_s": {"float32": 1e12}},
        {"memory_bandwidth_bytes_per_s": 1e9},
        {"num_sms": 80},
        {"copy_engines": 2},
    ],
    ids=lambda given: next(iter(given)),
)
def test_every_number_of_a_device_needs_a_source(given):
    (field,) = given

    def make():
        return Device(name="gpu0", kind=DeviceKind.GPU, memory_bytes=1, sources={"memory_bytes": "test"}, **given)

    assert refusal(make) == f"device 'gpu0': {field} needs a source"


def test_every_number_of_a_link_needs_a_source():
    def make():
        return Link(name="bus", latency_s=0.0, bandwidth_bytes_per_s=1.0, sources={"latency_s": "test"})

    assert refusal(make) == "link 'bus': bandwidth_bytes_per_s needs a source"


def test_a_source_without_its_number_is_refused():
    sources = {"memory_bytes": "test", "num_sms": "data sheet"}

    message = refusal(lambda: replace(device("gpu0", DeviceKind.GPU), sources=sources))

    assert message == "device 'gpu0': a source is named for num_sms, which is not given"


@pytest.mark.parametrize(
    ("twice", "message"),
    [
        ("devices", "machine 'small': device 'gpu0' is there 2 times"),
        ("links", "machine 'small': link 'gpu0 to host' is there 2 times"),
        ("routes", "machine 'small': route from 'gpu0' to 'host' is there 2 times"),
    ],
)
def test_what_is_there_twice_is_named(twice, message):
    machine = gpus()
    nouns = getattr(machine, twice)

    assert refusal(lambda: replace(machine, **{twice: (*nouns, nouns[0])})) == message


@pytest.mark.parametrize(
    ("route", "message"),
    [
        (Route(source="gpu0", destination="gpu7", links=()), "machine 'm' has no device 'gpu7'; it has ['gpu0']"),
        (Route(source="gpu0", destination="gpu0", links=("bus",)), "machine 'm' has no link 'bus'; it has []"),
    ],
    ids=["device", "link"],
)
def test_a_route_over_what_is_not_there_is_refused(route, message):
    def make():
        return Machine(name="m", devices=(device("gpu0", DeviceKind.GPU),), routes=(route,))

    assert refusal(make) == message
