"""The machine that a device is in, as far as PyTorch and the operating system tell."""

import torch

from stepsim.executor.devices import device_name
from stepsim.machines import Device, DeviceKind, Link, Machine, Route, this_cpu


def machine_of(device: torch.device) -> Machine:
    """`this_cpu`, or ``this_gpu``: the one GPU ``device`` and the host memory that it swaps to.

    The bandwidth of its links is a bound that no copy reaches: `stepsim.costmodels` measures what copies cost.
    """
    if device.type == "cpu":
        return this_cpu()
    gpu, host = _gpu(device), this_cpu().device("host")
    ways = ((gpu.name, "host"), ("host", gpu.name))
    return Machine(
        name="this_gpu",
        description=f"one {gpu.model}",
        devices=(gpu, host),
        links=tuple(_link(ends) for ends in ways),
        routes=tuple(Route(source=ends[0], destination=ends[1], links=(" to ".join(ends),)) for ends in ways),
    )


def _gpu(device: torch.device) -> Device:
    properties = torch.cuda.get_device_properties(device)
    told = "reported by the driver"
    return Device(
        name=device_name(device),
        kind=DeviceKind.GPU,
        model=properties.name,
        memory_bytes=properties.total_memory,
        num_sms=properties.multi_processor_count,
        sources={"memory_bytes": told, "num_sms": told},
    )


def _link(ends: tuple[str, str]) -> Link:
    unmeasured = "no bound: a calibration says what a copy costs"
    sources = {"latency_s": unmeasured, "bandwidth_bytes_per_s": unmeasured}
    return Link(name=" to ".join(ends), ends=ends, latency_s=0.0, bandwidth_bytes_per_s=1e12, sources=sources)
