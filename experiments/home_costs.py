"""What the steps of the HOME paper take and may take: rooflines, copies and memory, from a few constants."""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from experiments.home_setting import MACHINE
from stepsim.costmodels.datasheet import flow_at_links
from stepsim.costmodels.distinct import collective_flows, cost_table, distinct, flows
from stepsim.costmodels.kernel_tasks import kernel_tasks
from stepsim.costmodels.model import uniform
from stepsim.machines import Device, DeviceKind, Machine, load_machine
from stepsim.plan import Origin, Plan, TaskCosts

WINOGRAD = 1.5
"""How much faster a 3 x 3 convolution of stride 1 is than its FLOP: F(2 x 2, 3 x 3) multiplies 2.25 times less (Lavin &
Gray, CVPR 2016), and its transforms cost a part of that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Constants:
    """What the paper does not give. Efficiencies are parts of the data sheet.

    Of the device's memory ``reserve_bytes`` are not the plan's (context, workspaces), and ``reserve_share`` of the
    rest is lost to fragments.
    """

    compute_efficiency: float
    memory_efficiency: float
    depthwise_efficiency: float
    link_bytes_per_s: float
    reserve_bytes: int
    reserve_share: float = 0.0


UNLIMITED_BYTES = 10**15


def machine_with(constants: Constants) -> Machine:
    """`MACHINE` with the copies' rate of ``constants``, and memory for plans that do not fit too."""
    machine = load_machine(MACHINE)
    links = tuple(replace(link, bandwidth_bytes_per_s=constants.link_bytes_per_s) for link in machine.links)
    devices = tuple(replace(device, memory_bytes=UNLIMITED_BYTES) for device in machine.devices)
    return replace(machine, links=links, devices=devices)


def limit_bytes(constants: Constants) -> int:
    """What a plan may take of the GPU's memory."""
    return int((gpu_of(load_machine(MACHINE)).memory_bytes - constants.reserve_bytes) * (1 - constants.reserve_share))


def gpu_of(machine: Machine) -> Device:
    return next(device for device in machine.devices if device.kind is DeviceKind.GPU)


@dataclass(frozen=True, slots=True)
class PaperCosts:
    """Rooflines with the efficiencies of ``constants``; copies as fast as their links. All work is in float32."""

    constants: Constants

    def task_costs(self, plan: Plan, machine: Machine) -> TaskCosts:
        found = distinct(plan)
        moves = [flow_at_links(plan, machine, route) for route in found.moves[:, 0].tolist()]
        table = cost_table(
            work=uniform(self._work_s(plan, machine, found.works), Origin.ROOFLINE),
            moves=flows(moves, Origin.ROOFLINE),
            collectives=collective_flows(plan, machine, found.collectives[:, 0].tolist()),
            launch_s=0.0,
        )
        return TaskCosts(found.index, table)

    def _work_s(self, plan: Plan, machine: Machine, works: NDArray[np.int64]) -> NDArray[np.float64]:
        constants, gpu = self.constants, gpu_of(machine)
        tasks, work = kernel_tasks(plan, machine, works), works[:, 0]
        winograd = (tasks["op_class"] == "conv") & (tasks["kernel_area"] == 9) & (tasks["stride"] == 1)
        # Convolutions without a class have groups: the only ones in these models are depthwise.
        is_conv = np.array(["convolution" in plan.work.kind[entry] for entry in work.tolist()], np.bool_)
        depthwise = is_conv & (tasks["op_class"] == "").to_numpy()
        compute = constants.compute_efficiency * np.where(winograd, WINOGRAD, 1.0)
        memory = np.where(depthwise, constants.depthwise_efficiency, constants.memory_efficiency)
        size_bytes = (plan.work.bytes_read + plan.work.bytes_written)[work]
        return np.maximum(
            plan.work.flop[work] / (gpu.peak_flop_per_s["float32"] * compute),
            size_bytes / (gpu.memory_bandwidth_bytes_per_s * memory),
        )
