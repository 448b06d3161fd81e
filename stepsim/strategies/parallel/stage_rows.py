"""The rows of one stage of a pipeline, on one device of it.

They stand in the order in which their process issues them. Teams are of one device here: their collectives are there,
and cost nothing until `stepsim.strategies.parallel.widen` lays the plan over whole teams.
"""

from collections.abc import Iterable, Sequence
from itertools import zip_longest

from stepsim.plan import NONE
from stepsim.strategies.parallel.rank_tables import RankTables
from stepsim.strategies.parallel.schedule import Slot
from stepsim.strategies.parallel.traffic import Stage
from stepsim.workloads import Phase

TENSOR_STREAM, DATA_STREAM = "tensor", "data"
"""On which tensor- and data-parallel teams reduce."""


def write_stage(tables: RankTables, number: int, stage: Stage, slots: Sequence[Slot], *, bucket_bytes: int) -> None:
    """Weight gradients are all-reduced in buckets of at least ``bucket_bytes`` as they are made; for 0, never.

    A receive is issued before the slot that comes before its own, so that it goes on beside that one.
    """
    rows = _StageRows(tables, number, stage, bucket_bytes)
    rows.receive(slots[0])
    for slot, following in zip_longest(slots, slots[1:]):
        if following is not None:
            rows.receive(following)
        rows.run(slot, is_last=following is None)
    rows.update()


class _StageRows:
    """Writes the rows of one stage, knowing the buffer of each tensor of each microbatch that is there."""

    def __init__(self, tables: RankTables, number: int, stage: Stage, bucket_bytes: int) -> None:
        self.tables, self.number, self.stage, self.bucket_bytes = tables, number, stage, bucket_bytes
        self.builder, self.shares, self.ops = tables.builder, tables.shares, tables.shares.workload.ops
        self.streams: dict[str, int] = {}
        self.buffers: dict[tuple[int, int], int] = {}
        self.bucket: list[int] = []

    def run(self, slot: Slot, *, is_last: bool) -> None:
        phase, microbatch = slot
        self._send(phase, NONE, microbatch)
        for index in self.stage.ops[phase]:
            self._compute(index, microbatch)
            outputs = self.ops[index].outputs
            self._reduce_activations(outputs, microbatch)
            if is_last and self.bucket_bytes:
                self.bucket += [tensor for tensor in outputs if not self.shares.carries_batch(tensor)]
                self._reduce_gradients(self.bucket_bytes)
            self._send(phase, index, microbatch)
        if is_last:
            self._reduce_gradients(1)

    def update(self) -> None:
        for index in self.stage.ops[Phase.UPDATE]:
            self._compute(index, NONE)

    def _compute(self, index: int, microbatch: int) -> None:
        """An output that is there already is a weight gradient of earlier microbatches: it is added to, in place."""
        op = self.ops[index]
        added = [tensor for tensor in op.outputs if self._key(tensor, microbatch) in self.buffers]
        fresh = [self._new(tensor, microbatch) for tensor in op.outputs if tensor not in added]
        added_bytes = sum(self.shares.device_bytes(tensor) for tensor in added)
        self.builder.compute(
            self.tables.work(index, added_bytes),
            self._stream("compute"),
            thread=self.number,
            reads=self._those((*op.inputs, *added), microbatch),
            writes=self._those((*op.outputs, *op.mutates), microbatch),
            allocates=fresh,
            releases=[self._gone(tensor, microbatch) for tensor in self.stage.ends.get(index, ())],
        )

    def _reduce_activations(self, outputs: Iterable[int], microbatch: int) -> None:
        for tensor in outputs:
            if tensor in self.tables.reduced:
                self._all_reduce(TENSOR_STREAM, [tensor], microbatch, self.shares.whole_bytes(tensor))

    def _reduce_gradients(self, least_bytes: int) -> None:
        size_bytes = sum(self.shares.device_bytes(tensor) for tensor in self.bucket)
        if size_bytes >= least_bytes:
            self._all_reduce(DATA_STREAM, self.bucket, NONE, size_bytes)
            self.bucket = []

    def _all_reduce(self, stream: str, tensors: Sequence[int], microbatch: int, size_bytes: int) -> None:
        buffers = self._those(tensors, microbatch)
        self.builder.collective(
            "all_reduce",
            [self.number],
            self._stream(stream, "collective"),
            self.builder.group(),
            size_bytes=size_bytes,
            thread=self.number,
            reads=buffers,
            writes=buffers,
        )

    def _send(self, phase: Phase, index: int, microbatch: int) -> None:
        goes_up = phase is Phase.FORWARD
        for tensor in self.stage.sends[phase].get(index, ()):
            self.builder.send(
                self._buffer(tensor, microbatch),
                self.number + 1 if goes_up else self.number - 1,
                self._sending(phase),
                self.tables.group(tensor, microbatch, self.number if goes_up else self.number - 1),
                thread=self.number,
                releases=[self._gone(tensor, microbatch)] if tensor in self.stage.sent_away else [],
            )

    def receive(self, slot: Slot) -> None:
        phase, microbatch = slot
        comes_up = phase is Phase.FORWARD
        for tensor in self.stage.receives[phase]:
            buffer = self._new(tensor, microbatch)
            self.builder.receive(
                buffer,
                self.number - 1 if comes_up else self.number + 1,
                self._stream("from previous" if comes_up else "from next", "receive"),
                self.tables.group(tensor, microbatch, self.number - 1 if comes_up else self.number),
                thread=self.number,
                allocates=[buffer],
            )

    # --- tables -------------------------------------------------------------------------------------------------

    def _sending(self, phase: Phase) -> int:
        return self._stream("to next" if phase is Phase.FORWARD else "to previous", "send")

    def _stream(self, name: str, role: str = "compute") -> int:
        if name not in self.streams:
            self.streams[name] = self.builder.stream(name, self.number, role=role)
        return self.streams[name]

    def _key(self, tensor: int, microbatch: int) -> tuple[int, int]:
        return tensor, microbatch if self.shares.carries_batch(tensor) else NONE

    def _those(self, tensors: Iterable[int], microbatch: int) -> list[int]:
        return [self._buffer(tensor, microbatch) for tensor in tensors]

    def _buffer(self, tensor: int, microbatch: int) -> int:
        """What comes from outside the step is there from the start."""
        key = self._key(tensor, microbatch)
        if key in self.buffers:
            return self.buffers[key]
        assert tensor not in self.shares.workload.producer
        return self._new(tensor, microbatch)

    def _new(self, tensor: int, microbatch: int) -> int:
        """What is sent away belongs to the stream that sends and releases it, the rest to the compute stream."""
        noun, key = self.shares.workload.tensors[tensor], self._key(tensor, microbatch)
        phase = self.stage.sent_away.get(tensor)
        owner = self._stream("compute") if phase is None else self._sending(phase)
        self.buffers[key] = self.builder.buffer(
            self.shares.device_bytes(tensor),
            self.number,
            owner=owner,
            role=str(noun.role),
            name=noun.name,
            tensor=tensor,
            microbatch=max(key[1], 0),
        )
        return self.buffers[key]

    def _gone(self, tensor: int, microbatch: int) -> int:
        return self.buffers.pop(self._key(tensor, microbatch))
