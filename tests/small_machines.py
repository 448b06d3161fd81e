"""Small machines, costs row by row, and spans as pairs, for the tests of several rooms."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from stepsim.machines import Device, DeviceKind, Link, Machine, Route
from stepsim.plan import CostTable, Origin, Plan, TaskCosts
from stepsim.timeline import Timeline

PLENTY_BYTES = 10**12


def device(name: str, kind: DeviceKind, memory_bytes: int = PLENTY_BYTES, copy_engines: int = 1) -> Device:
    sources = {"memory_bytes": "test"} | ({"copy_engines": "test"} if copy_engines > 1 else {})
    return Device(name=name, kind=kind, memory_bytes=memory_bytes, copy_engines=copy_engines, sources=sources)


def link(name: str, bandwidth_bytes_per_s: float = 1.0) -> Link:
    sources = {"latency_s": "test", "bandwidth_bytes_per_s": "test"}
    return Link(name=name, latency_s=0.0, bandwidth_bytes_per_s=bandwidth_bytes_per_s, sources=sources)


def machine_of(devices: Sequence[Device], bandwidth_bytes_per_s: float = 1.0) -> Machine:
    """A link of its own from every device to every other."""
    pairs = [(one.name, two.name) for one in devices for two in devices if one is not two]
    return Machine(
        name="small",
        devices=tuple(devices),
        links=tuple(link(f"{one} to {two}", bandwidth_bytes_per_s) for one, two in pairs),
        routes=tuple(Route(source=one, destination=two, links=(f"{one} to {two}",)) for one, two in pairs),
    )


def gpus(
    num: int = 1, *, memory_bytes: int = PLENTY_BYTES, bandwidth_bytes_per_s: float = 1.0, copy_engines: int = 1
) -> Machine:
    """``gpu0``, ``gpu1``, ... and ``host``."""
    devices = [device(f"gpu{i}", DeviceKind.GPU, memory_bytes, copy_engines) for i in range(num)]
    return machine_of([*devices, device("host", DeviceKind.HOST)], bandwidth_bytes_per_s)


def cpu() -> Machine:
    """``cpu0`` and ``host``."""
    return machine_of([device("cpu0", DeviceKind.CPU), device("host", DeviceKind.HOST)])


@dataclass(frozen=True, kw_only=True)
class RowCosts:
    """A price for each row of a plan; a single number serves all rows."""

    seconds: Sequence[float] | float = 0.0
    launch_s: Sequence[float] | float = 0.0
    latency_s: Sequence[float] | float = 0.0
    rate_cap_bytes_per_s: Sequence[float] | float = math.inf
    fixed: Sequence[bool] | bool = False
    sm_share: Sequence[float] | float = 0.0
    bandwidth_share: Sequence[float] | float = 0.0
    spread: Sequence[float] | float = 0.0

    def task_costs(self, plan: Plan, machine: Machine) -> TaskCosts:
        num_rows = len(plan)

        def column(prices: Sequence[float] | float, dtype: type = float) -> np.ndarray:
            return np.array(np.broadcast_to(prices, num_rows), dtype=dtype)

        table = CostTable(
            seconds=column(self.seconds),
            launch_s=column(self.launch_s),
            latency_s=column(self.latency_s),
            rate_cap_bytes_per_s=column(self.rate_cap_bytes_per_s),
            fixed=column(self.fixed, bool),
            sm_share=column(self.sm_share),
            bandwidth_share=column(self.bandwidth_share),
            spread=column(self.spread),
            origin=column(Origin.GIVEN, np.int8),
        )
        return TaskCosts(np.arange(num_rows, dtype=np.int32), table)

    def scaled(self, factor: float) -> "RowCosts":
        """Every time, and the time for every byte, times ``factor``; the links are not costs."""
        seconds, launch_s, latency_s = (
            (np.asarray(prices) * factor).tolist() for prices in (self.seconds, self.launch_s, self.latency_s)
        )
        rate = (np.asarray(self.rate_cap_bytes_per_s) / factor).tolist()
        return replace(self, seconds=seconds, launch_s=launch_s, latency_s=latency_s, rate_cap_bytes_per_s=rate)


def spans_of(timeline: Timeline) -> list[tuple[float, float]]:
    """Start and end of each row, to lay beside a picture."""
    return list(zip(timeline.spans.start_s.tolist(), timeline.spans.end_s.tolist(), strict=True))
