"""What a person writes about a machine, and the machine that it means.

Beside devices, links and routes one by one a file may say in one entry: a ``count`` of equal devices; ``connections``,
a link each way for each pair of places; and ``paths``, a route each way along places that links join. A cluster file
names its ``node`` and a ``count``, and nothing else.
"""

from collections.abc import Iterator
from itertools import pairwise
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from stepsim.errors import MachineError
from stepsim.machines.machine import Device, DeviceKind, Link, Machine, Route


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


Pair = Annotated[list[str], Field(min_length=2, max_length=2)]


class DeviceEntry(_Strict):
    name: str
    count: Annotated[int, Field(ge=1)] | None = None
    kind: Literal["gpu", "cpu", "host", "network"]
    model: str = ""
    memory_bytes: int
    peak_flop_per_s: dict[str, float] = Field(default_factory=dict)
    memory_bandwidth_bytes_per_s: float = 0.0
    num_sms: int = 0
    l2_bytes: int = 0
    power_w: float = 0.0
    copy_engines: int = 1
    speed: float = 1.0
    node: str = ""
    sources: dict[str, str]


class LinkEntry(_Strict):
    name: str
    ends: Pair | None = None
    latency_s: float
    bandwidth_bytes_per_s: float
    sources: dict[str, str]


class ConnectionEntry(_Strict):
    pairs: list[Pair]
    latency_s: float
    bandwidth_bytes_per_s: float
    sources: dict[str, str]


class RouteEntry(_Strict):
    source: str
    destination: str
    links: list[str]


class PathEntry(_Strict):
    places: list[Annotated[list[str], Field(min_length=2)]]


class MachineFile(_Strict):
    name: str
    description: str = ""
    devices: list[DeviceEntry]
    connections: list[ConnectionEntry] = Field(default_factory=list)
    links: list[LinkEntry] = Field(default_factory=list)
    paths: list[PathEntry] = Field(default_factory=list)
    routes: list[RouteEntry] = Field(default_factory=list)


class ClusterFile(_Strict):
    name: str
    description: str = ""
    node: str
    count: int


def described(file: MachineFile) -> Machine:
    """Raises `MachineError` for entries that contradict each other."""
    links = [link for entry in file.connections for link in _both_ways(entry)]
    links += [Link(**{**entry.model_dump(), "ends": entry.ends and tuple(entry.ends)}) for entry in file.links]
    routes = [
        Route(source=entry.source, destination=entry.destination, links=tuple(entry.links)) for entry in file.routes
    ]
    return Machine(
        name=file.name,
        description=file.description,
        devices=tuple(device for entry in file.devices for device in _devices(entry)),
        links=tuple(links),
        routes=(*_routes_along(file.paths, links), *routes),
    )


def _devices(entry: DeviceEntry) -> Iterator[Device]:
    fields = {**entry.model_dump(exclude={"count"}), "kind": DeviceKind(entry.kind)}
    names = [entry.name] if entry.count is None else [f"{entry.name}{i}" for i in range(entry.count)]
    return (Device(**{**fields, "name": name}) for name in names)


def _both_ways(entry: ConnectionEntry) -> Iterator[Link]:
    for one, two in entry.pairs:
        for ends in ((one, two), (two, one)):
            yield Link(
                name=" to ".join(ends),
                ends=ends,
                latency_s=entry.latency_s,
                bandwidth_bytes_per_s=entry.bandwidth_bytes_per_s,
                sources=entry.sources,
            )


def _routes_along(paths: list[PathEntry], links: list[Link]) -> Iterator[Route]:
    """Over the link that leads from a place to the next, or the one that both directions share."""
    leading: dict[tuple[str, str], list[str]] = {}
    for link in links:
        if link.ends:
            leading.setdefault(link.ends, []).append(link.name)
    for places in (places for entry in paths for places in entry.places):
        for way in (places, places[::-1]):
            hops = pairwise(way)
            yield Route(source=way[0], destination=way[-1], links=tuple(_only_link(leading, *hop) for hop in hops))


def _only_link(leading: dict[tuple[str, str], list[str]], here: str, there: str) -> str:
    names = leading.get((here, there)) or leading.get((there, here), [])
    if len(names) != 1:
        found = f"{len(names)} links lead" if names else "no link leads"
        raise MachineError(f"a path needs one link from {here!r} to {there!r}, but {found} there")
    return names[0]
