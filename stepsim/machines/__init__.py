"""Hardware: devices, links, machines, and the descriptions that ship with the package."""

from stepsim.machines.files import load_machine, save_machine, shipped_machines, this_cpu
from stepsim.machines.machine import Device, DeviceKind, Link, Machine, Route

__all__ = [
    "Device",
    "DeviceKind",
    "Link",
    "Machine",
    "Route",
    "load_machine",
    "save_machine",
    "shipped_machines",
    "this_cpu",
]
