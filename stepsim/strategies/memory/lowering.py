"""From a schedule to a plan: one compute stream, and one copy stream a direction."""

from collections.abc import Iterable

from stepsim.errors import MachineError
from stepsim.machines import DeviceKind, Machine
from stepsim.plan import NONE, Plan, TaskKind
from stepsim.plan.builder import PlanBuilder
from stepsim.strategies.memory.rows import Copy, Row, on_host
from stepsim.strategies.memory.schedule import Policy, schedule
from stepsim.workloads import Workload


def plan_for_policy(
    workload: Workload, machine: Machine, policy: Policy, memory_bytes: int, prefetch_ops: int = 1
) -> Plan:
    """The plan of one step of ``workload`` under ``policy``, on the first computing device of ``machine``."""
    return plan_for_rows(workload, machine, schedule(workload, policy, memory_bytes, prefetch_ops))


def plan_for_rows(workload: Workload, machine: Machine, rows: Iterable[Row]) -> Plan:
    """The plan of settled ``rows``, on the first computing device of ``machine``."""
    return _Lowering(workload, machine).plan(rows)


def computing_device(machine: Machine) -> str:
    """The first GPU or CPU."""
    for device in machine.devices:
        if device.kind in (DeviceKind.GPU, DeviceKind.CPU):
            return device.name
    raise MachineError(f"machine {machine.name!r} has no device that computes")


def host_of(machine: Machine) -> str | None:
    """Where swapped-out tensors go, if there is such a device."""
    return next((device.name for device in machine.devices if device.kind is DeviceKind.HOST), None)


def no_host(machine: Machine) -> MachineError:
    return MachineError(f"machine {machine.name!r} has no host device to swap to")


class _Lowering:
    """Numbers the copies as buffers while it writes the rows."""

    def __init__(self, workload: Workload, machine: Machine) -> None:
        self.workload, self.machine = workload, machine
        self.builder = builder = PlanBuilder()
        self.device = builder.device(computing_device(machine))
        host = host_of(machine)
        self.host = None if host is None else builder.device(host)
        self.compute = builder.stream("compute", self.device)
        self.d2h = builder.stream("d2h", self.device, role="d2h")
        self.h2d = builder.stream("h2d", self.device, role="h2d")
        self.work = self._work_of_ops()
        outside = (tensor for tensor in range(len(workload.tensors)) if tensor not in workload.producer)
        self.buffers = {(tensor, 0): self._buffer((tensor, 0)) for tensor in outside}
        self.came_back: dict[Copy, int] = {}

    def plan(self, rows: Iterable[Row]) -> Plan:
        for row in rows:
            for copy in row.allocates:
                self.buffers[copy] = self._buffer(copy)
            self._write(row)
        return self.builder.build()

    def _write(self, row: Row) -> None:
        reads, writes, allocates, releases = (
            [self.buffers[copy] for copy in copies] for copies in (row.reads, row.writes, row.allocates, row.releases)
        )
        match row.kind:
            case TaskKind.SWAP_OUT:
                self.builder.swap_out(reads[0], writes[0], self.d2h)
            case TaskKind.SWAP_IN:
                self.came_back[row.writes[0]] = self.builder.swap_in(reads[0], writes[0], self.h2d)
            case TaskKind.RELEASE:
                after = [self.came_back[copy] for copy in row.waits]
                self.builder.release(releases, self.compute, after=after)
            case _:
                self.builder.add(
                    row.kind,
                    stream=self.compute,
                    work=self.work[row.subject],
                    reads=reads,
                    writes=writes,
                    allocates=allocates,
                    releases=releases,
                )

    def _buffer(self, copy: Copy) -> int:
        index, number = copy
        tensor, away = self.workload.tensors[index], on_host(copy)
        suffix = " on host" if away else f"#{number}" if number else ""
        return self.builder.buffer(
            tensor.size_bytes,
            self._host() if away else self.device,
            owner=NONE if away else self.compute,
            role=str(tensor.role),
            name=tensor.name + suffix,
            tensor=index,
        )

    def _host(self) -> int:
        if self.host is None:
            raise no_host(self.machine)
        return self.host

    def _work_of_ops(self) -> list[int]:
        """One entry for all ops of the same signature; it stands for the first of them.

        Ops that read more than their work takes (`stepsim.workloads.storage`) are apart: a row reads what its op does.
        """
        first: dict[tuple[str, int], int] = {}
        for index, op in enumerate(self.workload.ops):
            first.setdefault((op.signature, len(op.inputs)), index)
        return [self._work(first[op.signature, len(op.inputs)]) for op in self.workload.ops]

    def _work(self, index: int) -> int:
        op = self.workload.ops[index]
        return self.builder.work(
            op.kind,
            shapes=f"{_shapes(op.input_shapes)} -> {_shapes(op.output_shapes)}",
            dtype=op.dtype,
            batch=self.workload.batch,
            flop=op.flop,
            bytes_read=op.bytes_read,
            bytes_written=op.bytes_written,
            signature=op.signature,
            graph=self.workload.graph_hash,
            ops=(index,),
        )


def _shapes(shapes: tuple[tuple[int, ...], ...]) -> str:
    return ", ".join("x".join(str(size) for size in shape) or "scalar" for shape in shapes)
