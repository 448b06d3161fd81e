"""Instructions: the rows of a plan, lowered to calls on tensors."""

from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass
from functools import partial

import torch

from stepsim.errors import PlanError
from stepsim.executor.draws import Draw
from stepsim.executor.lanes import Lanes
from stepsim.plan import NONE, Plan, TaskKind
from stepsim.workloads.program import Program

COPIES = (TaskKind.SWAP_OUT, TaskKind.SWAP_IN)

RowAction = Callable[[Sequence[torch.Tensor]], Sequence[torch.Tensor]]
"""From the values that a row reads to those that it writes (what it writes in place need not be among them)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Instruction:
    """One row: ``action`` on ``lane``, after the rows ``waits`` of other lanes. The rest are buffer numbers.

    A row that ``copies`` does nothing but move bytes between device and host.
    """

    row: int
    lane: int
    waits: tuple[int, ...]
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    releases: tuple[int, ...]
    action: RowAction
    copies: bool = False


def lower(plan: Plan, program: Program, lanes: Lanes, kept: Container[int]) -> tuple[int, list[Instruction]]:
    """The computing device of ``plan`` and its rows as instructions. Buffers ``kept`` outlive their release.

    Raises `PlanError` for a plan of another graph than the program's, and for rows that one device cannot run.
    """
    _check_graph(plan, program)
    devices = {int(device) for device in plan.streams.device.tolist()}
    if len(devices) != 1:
        raise PlanError(f"the executor runs one device, the plan has streams on {len(devices)}")
    tasks, lane = plan.tasks, plan.lane_of_rows().tolist()
    columns = (tasks.dependencies, tasks.reads, tasks.writes, tasks.releases)
    lists = zip(*(column.to_lists() for column in columns), strict=True)
    actions = _Actions(plan, program, lanes)
    instructions = []
    for row, (dependencies, reads, writes, releases) in enumerate(lists):
        action, fresh = actions.of(row, reads, writes)
        instructions.append(
            Instruction(
                row=row,
                lane=lane[row],
                copies=tasks.kind[row] in COPIES,
                waits=tuple(other for other in dependencies if lane[other] != lane[row]),
                reads=tuple(reads),
                writes=tuple(fresh),
                releases=tuple(buffer for buffer in releases if buffer not in kept),
                action=action,
            )
        )
    return devices.pop(), instructions


def interpret(
    instructions: Sequence[Instruction],
    live: list[torch.Tensor | None],
    lanes: Lanes,
    watch: Callable[[], object] | None = None,
) -> None:
    """Run ``instructions`` on the values in ``live``, one for each buffer; what a row releases is dropped from it.

    ``watch`` is called twice a row: when its work is done, and when what it releases is gone.
    """
    lanes.start(len(instructions))
    for instruction in instructions:
        _run_row(instruction, live, lanes)
        if watch is not None:
            watch()
        for buffer in instruction.releases:
            live[buffer] = None
        if watch is not None:
            watch()


def _run_row(instruction: Instruction, live: list[torch.Tensor | None], lanes: Lanes) -> None:
    """A function of its own, so that no name here outlives the row and keeps memory alive."""
    values = [_present(live[buffer]) for buffer in instruction.reads]
    outputs = lanes.run(instruction, values)
    for place, buffer in enumerate(instruction.writes):
        live[buffer] = outputs[place]


def _present(value: torch.Tensor | None) -> torch.Tensor:
    assert value is not None, "a checked plan reads what is there"
    return value


def _check_graph(plan: Plan, program: Program) -> None:
    """Work that names no op is of no graph: a row with it is refused for what it is."""
    wanted = program.workload.graph_hash
    for graph, ops in zip(plan.work.graph, plan.work.ops.to_lists(), strict=True):
        if ops and graph != wanted:
            raise PlanError(f"the plan is for graph {graph[:12] or '(none)'}, the module gives graph {wanted[:12]}")


class _Actions:
    """Makes the action of each row."""

    def __init__(self, plan: Plan, program: Program, lanes: Lanes) -> None:
        self.plan = plan
        self.program = program
        self.lanes = lanes
        self.kind = plan.tasks.kind.tolist()
        self.work = plan.tasks.work.tolist()
        self.host_copies: dict[int, HostCopy] = {}
        self.draws: dict[tuple[tuple[int, int], ...], Draw] = {}

    def of(self, row: int, reads: list[int], writes: list[int]) -> tuple[RowAction, list[int]]:
        """The action, and which of ``writes`` it gives new values for."""
        match TaskKind(self.kind[row]):
            case TaskKind.COMPUTE | TaskKind.RECOMPUTE:
                fresh = [buffer for buffer in writes if buffer not in reads]
                return self._op(row, reads, fresh), fresh
            case TaskKind.SWAP_OUT:
                size_bytes = int(self.plan.buffers.size_bytes[writes[0]])
                self.host_copies[writes[0]] = HostCopy(self.lanes, size_bytes)
                return self.host_copies[writes[0]].swap_out, writes
            case TaskKind.SWAP_IN if reads[0] in self.host_copies:
                owner = int(self.plan.buffers.owner[writes[0]])
                return partial(self.host_copies[reads[0]].swap_in, owner=owner), writes
            case TaskKind.SWAP_IN:
                raise PlanError(f"row {row}: swaps in what no row before it swaps out")
            case TaskKind.RELEASE:
                return _nothing, []
            case kind:
                raise PlanError(f"row {row}: the executor of one device cannot run a {kind.label} row")

    def _op(self, row: int, reads: list[int], fresh: list[int]) -> RowAction:
        work = self.work[row]
        ops = self.plan.work.ops[work].tolist() if work != NONE else []
        if len(ops) != 1:
            raise PlanError(f"row {row}: its work names {len(ops)} ops of the graph, the executor runs one")
        op = self.program.workload.ops[ops[0]]
        if len(reads) != len(op.inputs):
            raise PlanError(f"row {row}: reads {len(reads)} buffers, op {op.name!r} takes {len(op.inputs)}")
        for buffer, tensor in zip(reads, op.inputs, strict=True):
            self._check_alike(row, buffer, tensor)
        if len(fresh) != len(op.outputs):
            raise PlanError(f"row {row}: makes {len(fresh)} buffers, op {op.name!r} gives {len(op.outputs)}")
        self._check_owned(row, fresh)
        run: RowAction = self.program.ops[ops[0]].run
        return self._drawn(row, fresh, op.name, run) if op.random else run

    def _drawn(self, row: int, fresh: list[int], name: str, run: RowAction) -> RowAction:
        """A random op is known by what it makes, and not by the work that it shares with others."""
        buffers = self.plan.buffers
        made = tuple((int(buffers.tensor[buffer]), int(buffers.microbatch[buffer])) for buffer in fresh)
        if self.kind[row] == TaskKind.COMPUTE:
            self.draws[made] = Draw(run, self.lanes.device)
            return self.draws[made].first
        if made not in self.draws:
            raise PlanError(f"row {row}: recomputes op {name!r}, whose random numbers no row before it draws")
        return self.draws[made].again

    def _check_owned(self, row: int, fresh: list[int]) -> None:
        """An op takes memory from the lane that it runs on."""
        stream = self.plan.tasks.stream[row]
        for buffer in fresh:
            if self.plan.buffers.owner[buffer] not in (NONE, stream):
                name = self.plan.buffers.name[buffer]
                raise PlanError(f"row {row}: makes buffer {name!r}, which another stream owns")

    def _check_alike(self, row: int, buffer: int, tensor: int) -> None:
        """The work of a row may stand for another op of its signature, whose tensors differ in name only."""
        tensors, own = self.program.workload.tensors, int(self.plan.buffers.tensor[buffer])
        name = self.plan.buffers.name[buffer]
        if not 0 <= own < len(tensors):
            raise PlanError(f"row {row}: buffer {name!r} stands for no tensor of the graph")
        wanted, found = tensors[tensor], tensors[own]
        if (wanted.shape, wanted.dtype, wanted.size_bytes) != (found.shape, found.dtype, found.size_bytes):
            raise PlanError(f"row {row}: buffer {name!r} is {found.shape}, where {wanted.shape} is read")


class HostCopy:
    """Room in host memory for one storage, with the shape that it has when it comes back."""

    def __init__(self, lanes: Lanes, size_bytes: int) -> None:
        self.lanes = lanes
        self.storage = lanes.new_host_storage(size_bytes)
        self.dtype, self.on_host = torch.uint8, False
        self.layout: tuple[tuple[int, ...], tuple[int, ...], int] = ((size_bytes,), (1,), 0)

    def swap_out(self, values: Sequence[torch.Tensor]) -> Sequence[torch.Tensor]:
        """Copy the storage behind the one value to the host."""
        (value,) = values
        self.lanes.copy(_flat_bytes(value), self.storage)
        self.dtype, self.on_host = value.dtype, value.device.type != self.lanes.device.type
        self.layout = (tuple(value.shape), value.stride(), int(value.storage_offset()))
        return (self.storage,)

    def swap_in(self, values: Sequence[torch.Tensor], owner: int = 0) -> Sequence[torch.Tensor]:
        """Copy it back into memory that is new, and of the lane ``owner``.

        What lay on the host in the first place, as the seed of an attention's dropout does, comes back there.
        """
        if self.on_host:
            target = torch.empty_like(self.storage, pin_memory=False)
        else:
            target = self.lanes.new_storage(self.storage.numel(), owner)
        self.lanes.copy(self.storage, target)
        return (target.view(self.dtype).as_strided(*self.layout),)


def _nothing(values: Sequence[torch.Tensor]) -> Sequence[torch.Tensor]:
    return ()


def _flat_bytes(value: torch.Tensor) -> torch.Tensor:
    """All bytes of the storage behind ``value``, in order."""
    size = value.untyped_storage().nbytes() // value.element_size()
    return value.as_strided((size,), (1,), 0).view(torch.uint8)
