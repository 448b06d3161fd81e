import math
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_machines import device, gpus, link

from stepsim.errors import MachineError
from stepsim.machines import Device, DeviceKind, Link, Machine, Route, load_machine


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
        ("memory_bytes", 1.5, "must be a whole number, got 1.5"),
        ("num_sms", -1, "must be >= 0, got -1"),
        ("num_sms", 80.0, "must be a whole number, got 80.0"),
        ("l2_bytes", 1.5, "must be a whole number, got 1.5"),
        ("power_w", -250.0, "must be >= 0, got -250.0"),
        ("copy_engines", 0, "must be > 0, got 0"),
        ("copy_engines", 1.5, "must be a whole number, got 1.5"),
        ("kind", "cpu", "must be a DeviceKind, got 'cpu'"),  # a text is no CPU to ``is``, and would run as a GPU
        ("speed", 0.0, "must be > 0, got 0.0"),
        ("speed", math.inf, "must be > 0, got inf"),
    ],
)
def test_a_senseless_field_of_a_device_is_named(field, value, problem):
    assert refusal(lambda: replace(device("gpu0", DeviceKind.GPU), **{field: value})) == (
        f"device 'gpu0': {field} {problem}"
    )


def test_a_senseless_peak_is_named_with_its_dtype():
    message = refusal(lambda: replace(device("gpu0", DeviceKind.GPU), peak_flop_per_s={"float32": 0.0}))

    assert message == "device 'gpu0': peak_flop_per_s.float32 must be > 0, got 0.0"


@pytest.mark.parametrize("lacks", ["device", "link"])
def test_of_a_large_machine_a_few_names_are_told_and_how_many_more_there_are(lacks):
    machine = load_machine("hgx_h100_x128")
    number = len(getattr(machine, f"{lacks}s"))

    message = refusal(lambda: getattr(machine, lacks)("gpuX"))

    assert message.startswith(f"machine 'hgx_h100_x128' has no {lacks} 'gpuX'; it has ['n")
    assert message.endswith(f"] and {number - 8} more")
    assert len(message) < 400


@pytest.mark.parametrize(
    ("field", "value", "problem"),
    [
        ("latency_s", -1e-6, "must be >= 0, got -1e-06"),
        ("latency_s", math.inf, "must be >= 0, got inf"),
        ("bandwidth_bytes_per_s", 0.0, "must be > 0, got 0.0"),
        ("bandwidth_bytes_per_s", -1.0, "must be > 0, got -1.0"),
        ("bandwidth_bytes_per_s", math.inf, "must be > 0, got inf"),
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
        {"l2_bytes": 6291456},
        {"power_w": 250.0},
        {"copy_engines": 2},
        {"speed": 0.8},
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


# --- networks -------------------------------------------------------------------------------------------------------


def network(name="net"):
    return Device(name=name, kind=DeviceKind.NETWORK, memory_bytes=0, sources={})


def meeting(*names, direct=()):
    """Devices with a link to the network and one from it, and direct routes for some pairs."""
    pairs = [*((name, "net") for name in names), *(("net", name) for name in names), *direct]
    return Machine(
        name="m",
        devices=(*(device(name, DeviceKind.GPU) for name in names), network()),
        links=tuple(link(f"{one} to {two}") for one, two in pairs),
        routes=tuple(Route(source=one, destination=two, links=(f"{one} to {two}",)) for one, two in pairs),
    )


def names_of(links):
    return [each.name for each in links]


def test_devices_without_a_route_of_their_own_meet_in_the_network():
    machine = meeting("a", "b")

    assert names_of(machine.route("a", "b")) == ["a to net", "net to b"]


def test_a_route_of_its_own_wins_over_the_network():
    machine = meeting("a", "b", direct=[("a", "b")])

    assert names_of(machine.route("a", "b")) == ["a to b"]
    assert names_of(machine.route("b", "a")) == ["b to net", "net to a"]


def test_a_device_that_cannot_hear_from_the_network_has_no_route_through_it():
    machine = meeting("a", "b")
    deaf = replace(machine, routes=tuple(route for route in machine.routes if route.destination != "b"))

    assert names_of(deaf.route("b", "a")) == ["b to net", "net to a"]
    assert refusal(lambda: deaf.route("a", "b")) == "machine 'm' has no route from 'a' to 'b'"


def test_only_a_network_has_no_memory_and_a_network_has_none():
    assert network().memory_bytes == 0
    assert refusal(lambda: replace(network(), memory_bytes=5)) == (
        "device 'net': memory_bytes of a network must be 0, got 5"
    )
    assert refusal(lambda: replace(network(), sources={"memory_bytes": "test"})) == (
        "device 'net': a source is named for memory_bytes, which is not given"
    )


# --- routes that connect --------------------------------------------------------------------------------------------


def between(one, two):
    return replace(link(f"{one} to {two}"), ends=(one, two))


def routed(*names, links=(("a", "x"), ("x", "b"), ("b", "x"))):
    """A route from a to b over links that tell their ends; x is no device."""
    return Machine(
        name="m",
        devices=(device("a", DeviceKind.GPU), device("b", DeviceKind.GPU)),
        links=(*(between(*ends) for ends in links), link("anywhere")),
        routes=(Route(source="a", destination="b", links=names),),
    )


def test_a_route_leads_from_end_to_end():
    assert names_of(routed("a to x", "x to b").route("a", "b")) == ["a to x", "x to b"]


@pytest.mark.parametrize(
    ("names", "problem"),
    [
        ((), " has no links"),
        (("a to x",), " ends at 'x'"),
        (("x to b",), ": link 'x to b' does not lead on from 'a'"),
        (("a to x", "b to x"), ": link 'b to x' does not lead on from 'x'"),
        (("a to x", "x to b", "a to x"), ": link 'a to x' does not lead on from 'b'"),
    ],
)
def test_a_route_that_does_not_connect_is_refused_where_it_breaks(names, problem):
    assert refusal(lambda: routed(*names)) == f"machine 'm': route from 'a' to 'b'{problem}"


def test_a_link_is_used_backwards_only_where_no_other_leads_that_way():
    shared = [("a", "x"), ("b", "x")]

    assert names_of(routed("a to x", "b to x", links=shared).route("a", "b")) == ["a to x", "b to x"]
    assert "does not lead on from 'x'" in refusal(lambda: routed("a to x", "b to x", links=[*shared, ("x", "b")]))


def test_a_route_with_a_link_that_does_not_tell_its_ends_is_taken_at_its_word():
    assert names_of(routed("x to b", "anywhere").route("a", "b")) == ["x to b", "anywhere"]


def test_a_link_joins_two_places():
    assert refusal(lambda: between("a", "a")) == "link 'a to a': ends must differ, got 'a' twice"


@given(st.permutations("abcdef"))
def test_a_walk_over_links_connects_and_no_reordering_of_it_does(places):
    walk = [f"{one} to {two}" for one, two in pairwise(places)]
    devices = tuple(device(name, DeviceKind.GPU) for name in (places[0], places[-1]))
    links = tuple(between(*name.split(" to ")) for name in walk)
    route = Route(source=places[0], destination=places[-1], links=tuple(walk))

    machine = Machine(name="m", devices=devices, links=links, routes=(route,))

    assert names_of(machine.route(places[0], places[-1])) == walk
    for wrong in (walk[::-1], walk[1:], walk[:-1], [*walk[:2], *walk[1:]]):
        message = refusal(lambda wrong=wrong: replace(machine, routes=(replace(route, links=tuple(wrong)),)))
        assert message.startswith(f"machine 'm': route from '{places[0]}' to '{places[-1]}'")


# --- what if --------------------------------------------------------------------------------------------------------


def test_speeds_change_for_the_devices_that_are_named_and_for_no_other():
    machine = gpus(3)

    slowed = machine.with_speeds({"gpu1": 0.8})

    assert [each.speed for each in slowed.devices] == [1.0, 0.8, 1.0, 1.0]
    assert slowed.device("gpu1").sources["speed"] == "what if"
    assert slowed.with_speeds({"gpu1": 1.0}) == machine


def test_a_speed_for_a_device_that_is_not_there_or_of_no_sense_is_refused():
    assert refusal(lambda: gpus().with_speeds({"gpu7": 0.8})).startswith("machine 'small' has no device 'gpu7'")
    assert refusal(lambda: gpus().with_speeds({"gpu0": -1.0})) == "device 'gpu0': speed must be > 0, got -1.0"
