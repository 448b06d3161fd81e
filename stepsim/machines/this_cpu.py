"""The machine this runs on, as far as the operating system tells."""

import os
import platform
from dataclasses import replace
from pathlib import Path

from stepsim.machines.machine import Device, DeviceKind, Link, Machine, Route


def this_cpu() -> Machine:
    """The machine this runs on: its processor as ``cpu0`` and host memory for swapped-out tensors.

    A copy between the two is a copy in memory; `stepsim.costmodels` measures what it costs. Until then the link's
    bandwidth is a bound that no copy reaches.
    """
    memory_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    model = processor()
    told = {"memory_bytes": "reported by the operating system"}
    ways = (("cpu0", "host"), ("host", "cpu0"))
    return Machine(
        name="this_cpu",
        description=f"{model}, {platform.system()}",
        devices=(
            Device(name="cpu0", kind=DeviceKind.CPU, model=model, memory_bytes=memory_bytes, sources=told),
            Device(name="host", kind=DeviceKind.HOST, memory_bytes=memory_bytes, sources=told),
        ),
        links=tuple(_memory(ends) for ends in ways),
        routes=tuple(Route(source=ends[0], destination=ends[1], links=(" to ".join(ends),)) for ends in ways),
    )


def with_emulated_link(machine: Machine, bytes_per_s: float) -> Machine:
    """``machine``, whose CPU computes like a GPU: copies run beside it, each way at ``bytes_per_s``.

    `stepsim.executor.paced_lanes` runs plans so.
    """
    told = {"bandwidth_bytes_per_s": "emulated", "latency_s": "emulated"}
    devices = (
        replace(device, kind=DeviceKind.GPU) if device.kind is DeviceKind.CPU else device for device in machine.devices
    )
    links = (replace(link, bandwidth_bytes_per_s=bytes_per_s, sources=told) for link in machine.links)
    return replace(machine, devices=tuple(devices), links=tuple(links))


def _memory(ends: tuple[str, str]) -> Link:
    unmeasured = "no bound: a calibration says what a copy in memory costs"
    sources = {"latency_s": unmeasured, "bandwidth_bytes_per_s": unmeasured}
    return Link(name=" to ".join(ends), ends=ends, latency_s=0.0, bandwidth_bytes_per_s=1e12, sources=sources)


def processor() -> str:
    """The processor's name as the operating system gives it."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
