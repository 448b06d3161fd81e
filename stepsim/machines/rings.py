"""Rings: round which ways the devices of a team can pass bytes at the same time.

A mesh such as NVLink's in a DGX-1 has several links at each device, and one ring uses two of them. Like NCCL, which
calls them channels, this looks for several rings and gives each a share of the bytes.
"""

from collections.abc import Sequence
from math import inf

from stepsim.machines.machine import Machine

MOST_MEMBERS = 8
"""Up to this many members all orders are tried; the ring of a larger team goes round it as it stands."""

LEAST_RATE = 0.1
"""A further ring of less than this much of the first is not worth its steps."""

Capacity = dict[str, dict[str, float]]
"""From each device to each other, what the route between them has left."""


def rings_of(machine: Machine, team: Sequence[str]) -> list[tuple[float, list[str]]]:
    """Rings over ``team`` that run at once, the widest first, each with its share of the bytes; shares add up to 1.

    Raises `MachineError` where two devices have no route.
    """
    if len(team) == 1 or len(team) > MOST_MEMBERS:
        return [(1.0, list(team))]
    routes = [machine.route(a, b) for a in team for b in team if a != b]
    left = {link.name: link.bandwidth_bytes_per_s for route in routes for link in route}
    found: list[tuple[float, list[str]]] = []
    while True:
        ring = _widest(_capacity(machine, team, left), team)
        links = [link.name for a, b in edges(ring) for link in machine.route(a, b)]
        rate = min((left[link] / links.count(link) for link in links), default=0.0)
        if found and rate <= LEAST_RATE * found[0][0]:
            break
        found.append((rate, ring))
        for link in links:
            left[link] -= rate
        if rate == 0:
            break
    total = sum(rate for rate, _ in found)
    return [(rate / total, ring) for rate, ring in found] if total else [(1.0, list(team))]


def edges(ring: Sequence[str]) -> list[tuple[str, str]]:
    return list(zip(ring, [*ring[1:], ring[0]], strict=True))


def _capacity(machine: Machine, team: Sequence[str], left: dict[str, float]) -> Capacity:
    def between(a: str, b: str) -> float:
        return min((left[link.name] for link in machine.route(a, b)), default=inf)

    return {a: {b: between(a, b) for b in team if b != a} for a in team}


def _widest(capacity: Capacity, team: Sequence[str]) -> list[str]:
    """The ring whose narrowest edge is widest; of several the first, in the order of the team."""
    bound = min(max(row.values()) for row in capacity.values())
    best: tuple[float, list[str]] = (-1.0, list(team))

    def extend(path: list[str], narrowest: float) -> None:
        nonlocal best
        if len(path) == len(team):
            narrowest = min(narrowest, capacity[path[-1]][path[0]])
            best = max(best, (narrowest, path), key=lambda entry: entry[0])
            return
        for device in team:
            if device not in path and best[0] < min(narrowest, capacity[path[-1]][device]) and best[0] < bound:
                extend([*path, device], min(narrowest, capacity[path[-1]][device]))

    extend([team[0]], inf)
    return best[1]
