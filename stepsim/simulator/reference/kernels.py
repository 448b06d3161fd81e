"""Kernels: how those that run on one device at the same time share it.

A kernel says which shares of the SMs and of the memory bandwidth it needs to run at full speed, rate 1. A discipline
gives each of them its rate: pure functions, below. Sums are plain loops: `sum` rounds differently from Python 3.12 on.
"""

from bisect import insort
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from math import inf

import simpy

from stepsim.simulator.outcome import Sharing
from stepsim.simulator.reference.instants import Phase, Steps
from stepsim.simulator.reference.settling import Running

SM, BANDWIDTH = RESOURCES = 0, 1
Needs = tuple[float, float]
"""Shares of the SMs and of the memory bandwidth of a device."""

FULL = 1 + 1e-12
"""Shares that add up to no more fit: 0.2 + 0.4 + 0.3 + 0.1 does, though in floats it is more than 1."""


@dataclass(frozen=True, slots=True, eq=False)
class Kernel:
    row: int
    priority: int
    needs: Needs
    running: Running


class SharedDevice:
    """The kernels that run on a device, and what rows that move data take of it before them."""

    def __init__(self, env: simpy.Environment, rates: Phase, sharing: Sharing) -> None:
        self.env = env
        self._rates, self._discipline = rates, DISCIPLINES[sharing]
        self._kernels: list[Kernel] = []
        self._moving: dict[int, Needs] = {}

    def run(self, row: int, priority: int, needs: Needs, seconds: float) -> Steps:
        """``seconds`` at rate 1. Nothing to do is done at once, and shares with nobody."""
        if seconds == 0:
            return
        kernel = Kernel(row, priority, needs, Running(self.env, seconds))
        insort(self._kernels, kernel, key=lambda other: (-other.priority, other.row))
        self._rates.ask(self._share)
        yield kernel.running.done
        self._kernels.remove(kernel)
        self._rates.ask(self._share)

    def take(self, row: int, needs: Needs) -> None:
        """A row that moves data holds its shares until it leaves; nobody takes a part of them away."""
        self._moving[row] = needs
        self._rates.ask(self._share)

    def leave(self, row: int) -> None:
        del self._moving[row]
        self._rates.ask(self._share)

    def _share(self) -> None:
        used = [0.0, 0.0]
        for row in sorted(self._moving):
            for r in RESOURCES:
                used[r] += self._moving[row][r]
        for kernel, rate in zip(self._kernels, self._discipline(used, self._kernels), strict=True):
            kernel.running.set_rate(rate)


def leftover(used: list[float], kernels: Sequence[Kernel]) -> list[float]:
    """The first gets what it needs, the next what is left; ``kernels`` by priority, then row.

    0.75  AAAA
    0.75    BB       B gets 0.25 of the 0.75 that it needs, rate 1/3
    """
    rates = []
    for kernel in kernels:
        rate = 1.0
        for r in RESOURCES:
            if kernel.needs[r] > 0 and used[r] + kernel.needs[r] > FULL:
                rate = min(rate, max(0.0, 1 - used[r]) / kernel.needs[r])
        for r in RESOURCES:
            used[r] += kernel.needs[r] * rate
        rates.append(rate)
    return rates


def fair(used: list[float], kernels: Sequence[Kernel]) -> list[float]:
    """Those of one priority rise to one rate together, the highest priority first.

    0.75  AAA
    0.75  BBB        both at rate 2/3
    """
    rates = []
    for _, alike in groupby(kernels, key=lambda kernel: kernel.priority):
        needs = [kernel.needs for kernel in alike]
        risen = _rise_together(used, needs)
        for need, rate in zip(needs, risen, strict=True):
            for r in RESOURCES:
                used[r] += need[r] * rate
        rates += risen
    return rates


DISCIPLINES: dict[Sharing, Callable[[list[float], Sequence[Kernel]], list[float]]] = {
    "leftover": leftover,
    "fair": fair,
}


def _rise_together(used: Sequence[float], needs: Sequence[Needs]) -> list[float]:
    """Whoever needs what is used up first stops there; the others rise on, to rate 1 at most."""
    rates: list[float | None] = [None] * len(needs)
    while None in rates:
        levels = [_level(r, used[r], needs, rates) for r in RESOURCES]
        scarce = min(RESOURCES, key=levels.__getitem__)
        for place, need in enumerate(needs):
            if rates[place] is None and levels[scarce] == inf:
                rates[place] = 1.0
            elif rates[place] is None and need[scarce] > 0:
                rates[place] = levels[scarce]
    return [rate for rate in rates if rate is not None]


def _level(r: int, used: float, needs: Sequence[Needs], rates: Sequence[float | None]) -> float:
    """The rate at which those without one use up resource ``r``; infinite if they do not."""
    held, rest = used, 0.0
    for need, rate in zip(needs, rates, strict=True):
        if rate is None:
            rest += need[r]
        else:
            held += need[r] * rate
    return max(0.0, 1 - held) / rest if rest > 0 and held + rest > FULL else inf
