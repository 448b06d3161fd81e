"""A machine for a person: like parts share a row, and every number has its source."""

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import TypeVar

from rich.console import Console

from stepsim.machines import Device, DeviceKind, Link, Machine, Route
from stepsim.text_table import print_table
from stepsim.units import format_bytes, format_seconds

NAMES_SHOWN = 4
"""Of more names only the first and the last are printed."""

Part = TypeVar("Part", Device, Link, Route)


def print_machine(machine: Machine, console: Console) -> None:
    """Devices and links with their numbers and sources, and which devices reach each other, how fast."""
    rows = [row for alike in _groups(machine.devices, _device_key) for row in _device_rows(alike)]
    rows += [row for alike in _groups(machine.links, _link_key) for row in _link_rows(alike)]
    print_table(console, f"{machine.name}: {machine.description}", ("part", "what", "value", "source"), rows)
    routes = [_route_row(machine, alike) for alike in _groups(machine.routes, lambda route: _route_key(machine, route))]
    print_table(console, "routes", ("from", "to", "over", "slowest link", "latency"), routes)


def print_machines(machines: Iterable[Machine], console: Console) -> None:
    """A row for each machine."""
    rows = [(machine.name, what_computes(machine), machine.description) for machine in machines]
    print_table(console, "machines", ("name", "devices", "description"), rows)


def what_computes(machine: Machine) -> str:
    """What computes in ``machine``, such as ``8 x Tesla P40``."""
    models = [
        device.model or str(device.kind)
        for device in machine.devices
        if device.kind in (DeviceKind.GPU, DeviceKind.CPU)
    ]
    return ", ".join(f"{count} x {model}" for model, count in Counter(models).items())


def _groups(parts: Iterable[Part], key: Callable[[Part], Hashable]) -> Iterator[list[Part]]:
    """Parts that are alike, in order of the first of them."""
    found: dict[Hashable, list[Part]] = {}
    for part in parts:
        found.setdefault(key(part), []).append(part)
    yield from found.values()


def _device_key(device: Device) -> Hashable:
    return (
        device.kind,
        device.model,
        device.memory_bytes,
        device.memory_bandwidth_bytes_per_s,
        tuple(device.peak_flop_per_s.items()),
        device.num_sms,
        device.l2_bytes,
        device.power_w,
        device.copy_engines,
        device.speed,
        tuple(device.sources.items()),
    )


def _link_key(link: Link) -> Hashable:
    return link.latency_s, link.bandwidth_bytes_per_s, tuple(link.sources.items())


def _route_key(machine: Machine, route: Route) -> Hashable:
    ends = machine.device(route.source), machine.device(route.destination)
    return (*(end.kind for end in ends), *_pace(machine, route), len(route.links))


def _pace(machine: Machine, route: Route) -> tuple[float, float]:
    """The slowest link and the latency of all of them."""
    links = [machine.link(name) for name in route.links]
    return min(link.bandwidth_bytes_per_s for link in links), sum(link.latency_s for link in links)


def _names(names: Sequence[str]) -> str:
    unique = list(dict.fromkeys(names))
    if len(unique) <= NAMES_SHOWN:
        return ", ".join(unique)
    return f"{unique[0]} ... {unique[-1]} ({len(unique)})"


def _device_rows(alike: Sequence[Device]) -> Iterator[tuple[str, str, str, str]]:
    device = alike[0]
    name = f"{_names([each.name for each in alike])} ({device.kind})"
    facts = [("memory", format_bytes(device.memory_bytes), "memory_bytes")]
    if device.memory_bandwidth_bytes_per_s:
        rate = f"{device.memory_bandwidth_bytes_per_s / 1e9:.0f} GB/s"
        facts.append(("memory bandwidth", rate, "memory_bandwidth_bytes_per_s"))
    for dtype, peak in device.peak_flop_per_s.items():
        facts.append((f"peak {dtype}", f"{peak / 1e12:g} TFLOP/s", "peak_flop_per_s"))
    if device.num_sms:
        facts.append(("SMs", str(device.num_sms), "num_sms"))
    if device.l2_bytes:
        facts.append(("L2 cache", format_bytes(device.l2_bytes), "l2_bytes"))
    if device.power_w:
        facts.append(("power", f"{device.power_w:g} W", "power_w"))
    if device.copy_engines > 1:
        facts.append(("copy engines a direction", str(device.copy_engines), "copy_engines"))
    if device.speed != 1:
        facts.append(("speed", f"{device.speed:g}", "speed"))
    for what, value, field in facts:
        yield name, what, value, device.sources.get(field, "none: nodes meet here")


def _link_rows(alike: Sequence[Link]) -> Iterator[tuple[str, str, str, str]]:
    link, name = alike[0], _names([each.name for each in alike])
    rate = f"{link.bandwidth_bytes_per_s / 1e9:.2f} GB/s"
    yield name, "bandwidth", rate, link.sources["bandwidth_bytes_per_s"]
    yield name, "latency", format_seconds(link.latency_s), link.sources["latency_s"]


def _route_row(machine: Machine, alike: Sequence[Route]) -> tuple[str, str, str, str, str]:
    rate, latency_s = _pace(machine, alike[0])
    over = ", then ".join(alike[0].links)
    return (
        _names([route.source for route in alike]),
        _names([route.destination for route in alike]),
        over if len(alike) == 1 else f"{over}, and so on ({len(alike)})",
        f"{rate / 1e9:.2f} GB/s",
        format_seconds(latency_s),
    )
