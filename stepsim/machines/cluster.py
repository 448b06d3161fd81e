"""Clusters: copies of a node that meet in its network."""

from dataclasses import replace

from stepsim.errors import MachineError
from stepsim.machines.machine import Device, DeviceKind, Link, Machine, Route


def cluster(node: Machine, count: int, *, name: str = "", description: str = "") -> Machine:
    """``count`` copies of ``node``, which share its network.

    What is in a node is named ``node3/gpu0``. ``name`` is that of the node with its count unless given. Raises
    `MachineError` for a node that reaches no network, for one that is a cluster itself, and for a count below 1.
    """
    if count < 1:
        raise MachineError(f"a cluster of {node.name!r} needs count >= 1, got {count}")
    networks = {device.name for device in node.devices if device.kind is DeviceKind.NETWORK}
    if not networks & {end for route in node.routes for end in (route.source, route.destination)}:
        raise MachineError(f"machine {node.name!r} has no route to a network, so it cannot be a node of a cluster")
    if any(device.node for device in node.devices):
        raise MachineError(f"machine {node.name!r} is a cluster already")
    copies = [_copy(node, f"node{i}", networks) for i in range(count)]
    return Machine(
        name=name or f"{node.name}_x{count}",
        description=description or f"{count} nodes of {node.name}: {node.description}",
        devices=(
            *(device for copy in copies for device in copy[0]),
            *(device for device in node.devices if device.name in networks),
        ),
        links=tuple(link for copy in copies for link in copy[1]),
        routes=tuple(route for copy in copies for route in copy[2]),
    )


def _copy(node: Machine, prefix: str, networks: set[str]) -> tuple[list[Device], list[Link], list[Route]]:
    """What one node adds: everything but the networks."""

    def named(place: str) -> str:
        return place if place in networks else f"{prefix}/{place}"

    devices = [
        replace(device, name=named(device.name), node=prefix) for device in node.devices if device.name not in networks
    ]
    links = [
        replace(link, name=f"{prefix}/{link.name}", ends=link.ends and (named(link.ends[0]), named(link.ends[1])))
        for link in node.links
    ]
    routes = [
        Route(
            source=named(route.source),
            destination=named(route.destination),
            links=tuple(f"{prefix}/{link}" for link in route.links),
        )
        for route in node.routes
    ]
    return devices, links, routes
