"""Writes the rows of one step in order, knowing which copy of each tensor is on the device."""

from collections.abc import Collection, Mapping

from stepsim.plan import TaskKind
from stepsim.strategies.memory.rows import HOST_COPY, Copy, Row
from stepsim.workloads import Workload


class Writer:
    """The strategy says what happens when; the writer keeps the books of the copies.

    Attributes
    ----------
    rows
        What was written, for `stepsim.strategies.memory.rows.settle`.
    present
        Tensor to its copy that later rows read; a tensor without an entry is not on the device.
    """

    def __init__(self, workload: Workload) -> None:
        self.workload = workload
        self.rows: list[Row] = []
        outside = (i for i in range(len(workload.tensors)) if i not in workload.producer)
        self.present: dict[int, Copy] = {tensor: (tensor, 0) for tensor in outside}
        self._copies: dict[int, int] = {}

    def compute(self, op: int) -> None:
        """Run an op of the step; its inputs must be present."""
        self.present |= self._add(TaskKind.COMPUTE, op)

    def recompute(self, op: int, wanted: Collection[int]) -> None:
        """Run a forward op again; those of its outputs that are ``wanted`` and gone are present again."""
        again = self._add(TaskKind.RECOMPUTE, op)
        self.present |= {tensor: copy for tensor, copy in again.items() if tensor in wanted and not self.has(tensor)}

    def swap_out(self, tensor: int) -> None:
        """Begin its copy to the host; the tensor stays present until it is dropped."""
        self.rows.append(Row(TaskKind.SWAP_OUT, tensor, (self.present[tensor],), ((tensor, HOST_COPY),)))

    def swap_in(self, tensor: int) -> None:
        """Bring it back from the host."""
        self.present[tensor] = self._new_copy(tensor)
        self.rows.append(Row(TaskKind.SWAP_IN, tensor, ((tensor, HOST_COPY),), (self.present[tensor],)))

    def drop(self, tensor: int) -> None:
        """No later row reads this copy."""
        del self.present[tensor]

    def wait_for(self, tensor: int) -> None:
        """Computing waits here until ``tensor``, dropped, is out; its room is given back."""
        self.rows.append(Row(TaskKind.RELEASE, tensor))

    def wait_for_return(self, tensor: int) -> None:
        """Computing waits here until ``tensor``, swapped in, is back."""
        self.rows.append(Row(TaskKind.RELEASE, tensor, waits=(self.present[tensor],)))

    def has(self, tensor: int) -> bool:
        return tensor in self.present

    def was_written(self, tensor: int) -> bool:
        """Whether its producer ran."""
        return tensor in self._copies

    def _add(self, kind: TaskKind, index: int) -> Mapping[int, Copy]:
        """A row for an op; gives the new copies of its outputs."""
        op = self.workload.ops[index]
        copies = {tensor: self._new_copy(tensor) for tensor in op.outputs}
        reads = tuple(self.present[tensor] for tensor in op.inputs)
        mutated = tuple(self.present[tensor] for tensor in op.mutates)
        self.rows.append(Row(kind, index, reads, (*copies.values(), *mutated)))
        return copies

    def _new_copy(self, tensor: int) -> Copy:
        self._copies[tensor] = self._copies.get(tensor, -1) + 1
        return tensor, self._copies[tensor]
