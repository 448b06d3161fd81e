"""Layout: how many devices share a step, and in which ways; `lay_out` makes the plan of it."""

from dataclasses import dataclass

from stepsim.errors import MachineError, PlanError
from stepsim.machines import DeviceKind, Machine
from stepsim.plan import Plan
from stepsim.plan.check import check_plan
from stepsim.strategies.parallel.rank_tables import RankTables
from stepsim.strategies.parallel.schedule import SCHEDULES
from stepsim.strategies.parallel.sharding import Shares
from stepsim.strategies.parallel.stage_rows import write_stage
from stepsim.strategies.parallel.traffic import stages_of
from stepsim.strategies.parallel.widen import widened
from stepsim.units import MIB
from stepsim.workloads import Workload

BUCKET_BYTES = 25 * MIB
"""``bucket_cap_mb`` of torch.nn.parallel.DistributedDataParallel, 25 MiB if not given (its documentation; Li et al.,
"PyTorch Distributed: Experiences on Accelerating Data Parallel Training", VLDB 2020)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """``data * tensor * pipeline`` devices, and the ``microbatches`` that each pipeline takes one after the other.

    ``schedule`` is ``1f1b`` or ``gpipe`` (`stepsim.strategies.parallel.schedule`). Weight gradients of data-parallel
    devices are all-reduced in buckets, each closed when it has ``bucket_bytes`` or more. Raises `PlanError`.
    """

    data: int = 1
    tensor: int = 1
    pipeline: int = 1
    microbatches: int = 1
    schedule: str = "1f1b"
    bucket_bytes: int = BUCKET_BYTES

    def __post_init__(self) -> None:
        for name in ("data", "tensor", "pipeline", "microbatches", "bucket_bytes"):
            value = getattr(self, name)
            if type(value) is not int or value < 1:
                raise PlanError(f"layout: {name} must be a whole number >= 1, got {value!r}")
        if self.schedule not in SCHEDULES:
            raise PlanError(f"layout: schedule must be one of {', '.join(SCHEDULES)}, got {self.schedule!r}")

    @property
    def num_devices(self) -> int:
        return self.data * self.tensor * self.pipeline


def lay_out(workload: Workload, machine: Machine, layout: Layout) -> Plan:
    """One step of ``workload`` on all GPUs of ``machine``, in its order: tensor ranks, then data ranks, then stages.

    That order is Megatron-LM's (Narayanan et al., SC 2021): let ``tensor`` divide the GPUs of a node. Each GPU is a
    process with one thread, and has a stream for compute, one for each team that it reduces with, and one for each
    neighbour and direction. Which ops a GPU runs is said in `stepsim.strategies.parallel.stages`, and what it does of
    them in `stepsim.strategies.parallel.sharding`, with what is simplified there.

    - Microbatches of batch / (data * microbatches) go through the stages in the order of ``layout.schedule``.
      Neighbours exchange activations and their gradients between the same tensor and data ranks, in parts of 1 / tensor
      (the scatter/gather of Narayanan et al., section 4.1). A receive is issued one slot ahead and goes on beside that
      slot, where Megatron-LM by default waits for it.
    - Weight gradients add up in place over the microbatches. In the last one they are all-reduced over the data ranks,
      bucket by bucket, each as soon as it is full, beside the rest of the backward pass: as PyTorch's DDP does, whose
      first bucket is smaller. Here they are reduced where they are. Then come the updates.
    - Every tensor of every microbatch is a buffer from the op or receive that makes it to its last user. Parameters,
      optimizer state and inputs are there from the start; a weight gradient without an update stays.

    Raises `PlanError` for a workload that cannot be laid out so, `MachineError` for a machine of another size.
    """
    gpus = _gpus(machine)
    if layout.num_devices != len(gpus):
        ways = f"data {layout.data} x tensor {layout.tensor} x pipeline {layout.pipeline} = {layout.num_devices}"
        raise MachineError(f"layout: {ways} GPUs, machine {machine.name!r} has {len(gpus)}")
    parts = layout.data * layout.microbatches
    if workload.batch % parts:
        raise PlanError(f"layout: data x microbatches = {parts} must divide the batch of {workload.batch}")
    shares = Shares(workload, parts=parts, tensor=layout.tensor)
    ranks = layout.data * layout.tensor
    tables = RankTables(shares, gpus[::ranks])
    for number, stage in enumerate(stages_of(workload, layout.pipeline)):
        slots = SCHEDULES[layout.schedule](number, layout.pipeline, layout.microbatches)
        write_stage(tables, number, stage, slots, bucket_bytes=layout.bucket_bytes if layout.data > 1 else 0)
    plan = widened(tables.builder.build(), gpus, data=layout.data, tensor=layout.tensor)
    check_plan(plan)
    return plan


def data_parallel(workload: Workload, machine: Machine, *, microbatches: int = 1) -> Plan:
    """The whole step on every GPU of ``machine``, each with its part of the batch."""
    return lay_out(workload, machine, Layout(data=max(len(_gpus(machine)), 1), microbatches=microbatches))


def _gpus(machine: Machine) -> list[str]:
    return [device.name for device in machine.devices if device.kind is DeviceKind.GPU]
