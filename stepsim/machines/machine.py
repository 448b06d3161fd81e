"""Device, Link and Machine: what the hardware is, every number with its source."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property

from stepsim.errors import MachineError


class DeviceKind(StrEnum):
    """A GPU runs its streams beside the host. A CPU has no queue: a row on it runs on the thread that issues it.

    A host device is memory only: where swapped-out tensors go. A network is a port without memory, through which the
    nodes of a cluster meet.
    """

    GPU = "gpu"
    CPU = "cpu"
    HOST = "host"
    NETWORK = "network"


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """One GPU, CPU, host memory, or network.

    ``memory_bytes`` is what one process can allocate, 0 for a network. ``peak_flop_per_s`` is by dtype; peaks are
    data-sheet values and 0 or empty where unknown. ``copy_engines`` counts engines for each direction; one needs no
    source. ``speed`` is how fast kernels run here beside what the costs say: 0.8 is a straggler. ``node`` is the node
    of a cluster that it is in. ``sources`` says for each number where it comes from.
    """

    name: str
    kind: DeviceKind
    memory_bytes: int
    sources: Mapping[str, str]
    model: str = ""
    peak_flop_per_s: Mapping[str, float] = field(default_factory=dict)
    memory_bandwidth_bytes_per_s: float = 0.0
    num_sms: int = 0
    l2_bytes: int = 0
    power_w: float = 0.0
    copy_engines: int = 1
    speed: float = 1.0
    node: str = ""

    def __post_init__(self) -> None:
        where = f"device {self.name!r}"
        if not isinstance(self.kind, DeviceKind):
            raise MachineError(f"{where}: kind must be a DeviceKind, got {self.kind!r}")
        for name in ("memory_bytes", "num_sms", "l2_bytes", "copy_engines"):
            if not isinstance(getattr(self, name), int):
                raise MachineError(f"{where}: {name} must be a whole number, got {getattr(self, name)!r}")
        is_network = self.kind is DeviceKind.NETWORK
        if is_network and self.memory_bytes:
            raise MachineError(f"{where}: memory_bytes of a network must be 0, got {self.memory_bytes}")
        _check_number(where, "memory_bytes", self.memory_bytes, positive=not is_network)
        _check_number(where, "memory_bandwidth_bytes_per_s", self.memory_bandwidth_bytes_per_s)
        _check_number(where, "num_sms", self.num_sms)
        _check_number(where, "l2_bytes", self.l2_bytes)
        _check_number(where, "power_w", self.power_w)
        _check_number(where, "copy_engines", self.copy_engines, positive=True)
        _check_number(where, "speed", self.speed, positive=True)
        for dtype, peak in self.peak_flop_per_s.items():
            _check_number(where, f"peak_flop_per_s.{dtype}", peak, positive=True)
        given = {
            "memory_bytes": not is_network,
            "peak_flop_per_s": bool(self.peak_flop_per_s),
            "memory_bandwidth_bytes_per_s": bool(self.memory_bandwidth_bytes_per_s),
            "num_sms": bool(self.num_sms),
            "l2_bytes": bool(self.l2_bytes),
            "power_w": bool(self.power_w),
            "copy_engines": self.copy_engines > 1,
            "speed": self.speed != 1,
        }
        _check_sources(where, given, self.sources)


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """One direction of a connection, or what several share: a half-duplex bus, the uplink of a PCIe switch.

    ``bandwidth_bytes_per_s`` is what large transfers achieve, not what the data sheet advertises. ``ends``, if told,
    are the two places that it joins: devices, or points between them such as a switch. It leads from the first to the
    second, and back too where no other link does.
    """

    name: str
    latency_s: float
    bandwidth_bytes_per_s: float
    sources: Mapping[str, str]
    ends: tuple[str, str] | None = None

    def __post_init__(self) -> None:
        where = f"link {self.name!r}"
        _check_number(where, "latency_s", self.latency_s)
        _check_number(where, "bandwidth_bytes_per_s", self.bandwidth_bytes_per_s, positive=True)
        _check_sources(where, {"latency_s": True, "bandwidth_bytes_per_s": True}, self.sources)
        if self.ends and self.ends[0] == self.ends[1]:
            raise MachineError(f"{where}: ends must differ, got {self.ends[0]!r} twice")


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """The links that a transfer from ``source`` to ``destination`` occupies, in order."""

    source: str
    destination: str
    links: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Machine:
    """Devices, links, and the routes between devices. Raises `MachineError` when they contradict each other."""

    name: str
    description: str = ""
    devices: tuple[Device, ...]
    links: tuple[Link, ...] = ()
    routes: tuple[Route, ...] = ()

    def __post_init__(self) -> None:
        self._check_unique("device", [repr(device.name) for device in self.devices])
        self._check_unique("link", [repr(link.name) for link in self.links])
        self._check_unique("route", [f"from {route.source!r} to {route.destination!r}" for route in self.routes])
        for route in self.routes:
            for name in (route.source, route.destination):
                self.device(name)
            self._check_connects(route)

    def _check_connects(self, route: Route) -> None:
        """Walk a route whose links all tell their ends."""
        where = f"machine {self.name!r}: route from {route.source!r} to {route.destination!r}"
        links = [self.link(name) for name in route.links]
        if not links:
            raise MachineError(f"{where} has no links")
        if any(link.ends is None for link in links):
            return
        place = route.source
        for link in links:
            after = self._across(link, place)
            if after is None:
                raise MachineError(f"{where}: link {link.name!r} does not lead on from {place!r}")
            place = after
        if place != route.destination:
            raise MachineError(f"{where} ends at {place!r}")

    def _across(self, link: Link, place: str) -> str | None:
        """Where ``link`` leads from ``place``, if anywhere."""
        first, second = link.ends or (None, None)
        if place == first:
            return second
        return first if place == second and (second, first) not in self._joined else None

    def _check_unique(self, what: str, names: Sequence[str]) -> None:
        for name, times in Counter(names).items():
            if times > 1:
                raise MachineError(f"machine {self.name!r}: {what} {name} is there {times} times")

    @cached_property
    def _devices(self) -> dict[str, Device]:
        return {device.name: device for device in self.devices}

    @cached_property
    def _links(self) -> dict[str, Link]:
        return {link.name: link for link in self.links}

    @cached_property
    def _joined(self) -> set[tuple[str, str]]:
        return {link.ends for link in self.links if link.ends}

    @cached_property
    def _networks(self) -> tuple[str, ...]:
        return tuple(device.name for device in self.devices if device.kind is DeviceKind.NETWORK)

    @cached_property
    def _routes(self) -> dict[tuple[str, str], tuple[Link, ...]]:
        return {(r.source, r.destination): tuple(self.link(name) for name in r.links) for r in self.routes}

    def device(self, name: str) -> Device:
        if name not in self._devices:
            raise MachineError(f"machine {self.name!r} has no device {name!r}; it has {some(self._devices)}")
        return self._devices[name]

    def link(self, name: str) -> Link:
        if name not in self._links:
            raise MachineError(f"machine {self.name!r} has no link {name!r}; it has {some(self._links)}")
        return self._links[name]

    def route(self, source: str, destination: str) -> tuple[Link, ...]:
        """The links from ``source`` to ``destination``: their own route, else through a network; none within a device.

        Raises `MachineError` where nothing leads there.
        """
        if source == destination:
            return ()
        routes = self._routes
        if (source, destination) in routes:
            return routes[source, destination]
        for network in self._networks:
            if (source, network) in routes and (network, destination) in routes:
                return routes[source, network] + routes[network, destination]
        raise MachineError(f"machine {self.name!r} has no route from {source!r} to {destination!r}")

    def with_speeds(self, speeds: Mapping[str, float]) -> "Machine":
        """This machine with other speeds for some devices, by name: what if one were a straggler?"""
        changed = {name: _with_speed(self.device(name), speed) for name, speed in speeds.items()}
        return replace(self, devices=tuple(changed.get(device.name, device) for device in self.devices))


def _with_speed(device: Device, speed: float) -> Device:
    sources = {name: source for name, source in device.sources.items() if name != "speed"}
    if speed != 1:
        sources["speed"] = "what if"
    return replace(device, speed=speed, sources=sources)


def some(names: Iterable[str]) -> str:
    """The first few of ``names``, and how many more there are."""
    found = sorted(names)
    return f"{found[:8]}" + (f" and {len(found) - 8} more" if len(found) > 8 else "")


def _check_number(where: str, name: str, value: float, *, positive: bool = False) -> None:
    if not math.isfinite(value) or value < 0 or (positive and value == 0):
        raise MachineError(f"{where}: {name} must be {'> 0' if positive else '>= 0'}, got {value}")


def _check_sources(where: str, given: Mapping[str, bool], sources: Mapping[str, str]) -> None:
    for name, is_given in given.items():
        if is_given and not sources.get(name):
            raise MachineError(f"{where}: {name} needs a source")
    for name in sources:
        if not given.get(name):
            raise MachineError(f"{where}: a source is named for {name}, which is not given")
