"""Tables and numbers that all stages of a pipeline with one device each have in common."""

from collections.abc import Sequence

from stepsim.plan.builder import PlanBuilder
from stepsim.strategies.parallel.sharding import Shares, reduced_tensors


class RankTables:
    """Each of ``devices`` is a stage, with a process and a thread of its own."""

    def __init__(self, shares: Shares, devices: Sequence[str]) -> None:
        self.shares = shares
        self.builder = PlanBuilder()
        self.reduced = reduced_tensors(shares.workload) if shares.tensor > 1 else frozenset()
        self._groups: dict[tuple[int, int, int], int] = {}
        self._work: dict[tuple[int, int], int] = {}
        self._same = {op.signature: index for index, op in reversed([*enumerate(shares.workload.ops)])}
        for stage, name in enumerate(devices):
            self.builder.device(name, process=stage)
            self.builder.thread("main", process=stage)

    def group(self, tensor: int, microbatch: int, lower: int) -> int:
        """Of the send and the receive of ``tensor`` between the stages ``lower`` and ``lower + 1``."""
        key = (tensor, microbatch, lower)
        if key not in self._groups:
            self._groups[key] = self.builder.group()
        return self._groups[key]

    def work(self, index: int, added_bytes: int = 0) -> int:
        """What a device has to do of an op for one microbatch, and ``added_bytes`` to read besides.

        Ops of one signature are one work, which stands for the first of them. A part of an op stands for no op: nobody
        has measured it, and no executor can run it.
        """
        key = (index, added_bytes)
        if key not in self._work:
            op, shares = self.shares.workload.ops[index], self.shares
            is_whole = shares.is_whole(index)
            self._work[key] = self.builder.work(
                op.kind,
                dtype=op.dtype,
                batch=shares.workload.batch // shares.parts,
                flop=shares.flop(index),
                bytes_read=shares.bytes_read(index) + added_bytes,
                bytes_written=shares.bytes_written(index),
                signature=op.signature if is_whole else "",
                graph=shares.workload.graph_hash if is_whole else "",
                ops=(self._same[op.signature],) if is_whole else (),
            )
        return self._work[key]
