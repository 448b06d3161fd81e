"""Flows: how bytes that cross the same links at the same time share them."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import simpy

from stepsim.simulator.reference.instants import Phase, Steps
from stepsim.simulator.reference.settling import Running

FULL = 1 + 1e-12
"""A link on which no more than this much of it is asked for does not bind."""


@dataclass(frozen=True, slots=True, eq=False)
class Flow:
    """The bytes of a transfer, or of one stage of a group, whose first row is ``row``.

    At its rate, ``cap_bytes_per_s`` at most, it takes ``weights[link]`` times that of each link that it crosses.
    """

    row: int
    cap_bytes_per_s: float
    weights: Mapping[int, float]


class SharedLinks:
    """All links of the machine, and what flows over them."""

    def __init__(self, env: simpy.Environment, rates: Phase, bytes_per_s: Sequence[float]) -> None:
        self.env, self._rates, self._bytes_per_s = env, rates, bytes_per_s
        self._flowing: dict[int, tuple[Flow, Running]] = {}

    def carry(self, flow: Flow, size_bytes: float) -> Steps:
        running = Running(self.env, size_bytes)
        self._flowing[flow.row] = flow, running
        self._rates.ask(self._share)
        yield running.done
        del self._flowing[flow.row]
        self._rates.ask(self._share)

    def _share(self) -> None:
        in_plan_order = [self._flowing[row] for row in sorted(self._flowing)]
        rates = max_min_rates([flow for flow, _ in in_plan_order], self._bytes_per_s)
        for (_, running), rate in zip(in_plan_order, rates, strict=True):
            running.set_rate(rate)


def max_min_rates(flows: Sequence[Flow], bytes_per_s: Sequence[float]) -> list[float]:
    """Bytes a second of each of ``flows``, which are in plan order; ``bytes_per_s`` is by link.

    All rates rise together. A flow stops at its cap, or with all others of a link when that link is full.

    link 0, of 1  AAABBB          A and B stop at 1/2
    link 1, of 2  BBBCCCCCCCCC    C gets the 3/2 that B leaves
    """
    crossing = _binding(flows, bytes_per_s)
    rates = [flow.cap_bytes_per_s for flow in flows]
    rising = {place for places in crossing.values() for place in places}
    by_cap = sorted(rising, key=lambda place: (rates[place], place))
    while rising:
        levels = {
            link: _level(link, bytes_per_s[link], [(flows[place], rates[place], place in rising) for place in places])
            for link, places in crossing.items()
            if not rising.isdisjoint(places)
        }
        full = min(levels, key=levels.__getitem__)
        lowest = next(place for place in by_cap if place in rising)
        if rates[lowest] <= levels[full]:
            rising.remove(lowest)
        else:
            for place in rising.intersection(crossing[full]):
                rates[place] = levels[full]
            rising.difference_update(crossing[full])
    return rates


def _binding(flows: Sequence[Flow], bytes_per_s: Sequence[float]) -> dict[int, list[int]]:
    """The links on which not all can flow at their caps, in the order of the machine, and the places of their flows."""
    asked: dict[int, float] = defaultdict(float)
    crossing: dict[int, list[int]] = defaultdict(list)
    for place, flow in enumerate(flows):
        for link, weight in flow.weights.items():
            asked[link] += weight * flow.cap_bytes_per_s
            crossing[link].append(place)
    return {link: crossing[link] for link in sorted(asked) if asked[link] > bytes_per_s[link] * FULL}


def _level(link: int, bytes_per_s: float, flows: Sequence[tuple[Flow, float, bool]]) -> float:
    """The rate at which those of ``flows`` that rise fill ``link``; each has its rate, and whether it rises."""
    held = rising_weight = 0.0
    for flow, rate, rises in flows:
        if rises:
            rising_weight += flow.weights[link]
        else:
            held += flow.weights[link] * rate
    return max(0.0, bytes_per_s - held) / rising_weight
