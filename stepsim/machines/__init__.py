"""Hardware: devices, links, machines, and the descriptions that ship with the package."""

from stepsim.machines.cluster import cluster
from stepsim.machines.files import load_machine, save_machine, shipped_machines
from stepsim.machines.machine import Device, DeviceKind, Link, Machine, Route
from stepsim.machines.this_cpu import this_cpu, with_emulated_link

__all__ = [
    "Device",
    "DeviceKind",
    "Link",
    "Machine",
    "Route",
    "cluster",
    "load_machine",
    "save_machine",
    "shipped_machines",
    "this_cpu",
    "with_emulated_link",
]
