"""SuperNeurons: outputs of convolutions go to the host, what is cheap to make is made again.

Wang et al., "SuperNeurons", PPoPP 2018, section 3.

    conv -> norm -> relu -> conv -> ...      out: what convolutions make; again: the segment of norm and relu
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from itertools import product
from typing import Literal

from stepsim.machines import Machine
from stepsim.plan import Costs, TaskKind
from stepsim.strategies.memory.accesses import Gap, gaps
from stepsim.strategies.memory.earlier import moved_up
from stepsim.strategies.memory.lowering import plan_for_rows
from stepsim.strategies.memory.prices import Prices, prices_of
from stepsim.strategies.memory.propose import begin, propose
from stepsim.strategies.memory.rows import Row, resident_bytes, settle
from stepsim.strategies.memory.schedule import (
    Action,
    Policy,
    can_recompute,
    candidates,
    fetch,
    forward_only,
    leaving,
)
from stepsim.strategies.memory.segments import Segments, checkpoints, staying
from stepsim.strategies.memory.tensor_cache import evicted
from stepsim.strategies.memory.writer import Writer
from stepsim.strategies.proposal import Evaluate, Proposal
from stepsim.workloads import Op, Phase, Workload

Offload = Literal["cache", "all", "in-time"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SuperNeurons:
    """Recompute what is cheap, always; keep the rest, or move it to the host.

    What is cheap lies in segments between checkpoints: `stepsim.strategies.memory.segments`.

    segments
        ``"speed"``: a segment is recomputed once and stays until it was used. ``"memory"``: each backward op that reads
        something of it has it recomputed, and what was only made on the way is gone at once. ``"cost-aware"``: the
        first for segments that do not raise the peak, else the second.
    offload
        ``"cache"``: what a cache, least recently used first, has to evict: `stepsim.strategies.memory.tensor_cache`. As
        a plan knows this before, an evicted tensor leaves when it was made, not when the room is missing. ``"all"``:
        what convolutions make, whether there is room or not. ``"in-time"``: of these, what is predicted to be out
        before its next use. The paper's runtime may give a copy up, a plan cannot.

    A copy begins when the tensor was made, and the room is given back when it is out; computing waits for that only
    when room is needed. What the backward pass of a convolution reads, and what is read between it and that of the
    convolution above, is asked for when that of the one above begins, as far as there is room.

    Where this does not fit, ``"in-time"`` is ``"all"``; where that does not, all segments are of the second kind. If
    nothing fits it is the plan of least peak.
    """

    name: str = "superneurons"
    segments: Segments = "cost-aware"
    offload: Offload = "cache"

    def plan(
        self,
        workload: Workload,
        machine: Machine,
        costs: Costs,
        *,
        memory_bytes: int,
        evaluate: Evaluate,
        time_limit_s: float,
    ) -> Proposal:
        began_s = begin(memory_bytes, time_limit_s)
        prices = prices_of(workload, machine, costs)
        found = list(self._fallbacks(workload, prices, memory_bytes))
        rows = min(found, key=lambda rows: max(0, _excess_bytes(workload, rows, memory_bytes)))
        plan = plan_for_rows(workload, machine, rows)
        return propose(self.name, plan, machine, evaluate, memory_bytes=memory_bytes, began_s=began_s, complete=True)

    def _fallbacks(self, workload: Workload, prices: Prices, memory_bytes: int) -> Iterator[list[Row]]:
        """Rows that take less and less memory, until they fit."""
        offloads: tuple[Offload, ...] = ("in-time", "all") if self.offload == "in-time" else (self.offload,)
        kinds: dict[Segments, None] = dict.fromkeys((self.segments, "memory"))
        for segments, offload in product(kinds, offloads):
            rows = replace(self, segments=segments, offload=offload).rows(workload, prices, memory_bytes)
            yield rows
            if _excess_bytes(workload, rows, memory_bytes) <= 0:
                return

    def rows(self, workload: Workload, prices: Prices, memory_bytes: int) -> list[Row]:
        """Settled; they may exceed ``memory_bytes``."""
        borders, convolved = checkpoints(workload)
        cheap = sorted({*candidates(workload), *forward_only(workload)} - borders)
        policy = {tensor: Action.RECOMPUTE for tensor in cheap if can_recompute(workload, tensor)}
        stay = staying(workload, policy, self.segments)
        if self.offload == "cache":
            return _with_cache(workload, policy, stay, memory_bytes)
        leaving = [gap for gap in gaps(workload, prices) if gap.tensor in convolved]
        leaving = _out_in_time(leaving) if self.offload == "in-time" else leaving
        policy |= {gap.tensor: Action.SWAP for gap in leaving}
        return _settled(workload, policy, stay, memory_bytes)


def _with_cache(workload: Workload, policy: Policy, stay: Collection[int], memory_bytes: int) -> list[Row]:
    """``policy`` with as much evicted as it takes; an evicted tensor that comes back may take the place of another."""
    while True:
        rows = _settled(workload, policy, stay, memory_bytes)
        victims = evicted(workload, rows, set(candidates(workload)).difference(policy), memory_bytes)
        if not victims:
            return rows
        policy = {**policy, **dict.fromkeys(victims, Action.SWAP)}


def _excess_bytes(workload: Workload, rows: list[Row], memory_bytes: int) -> int:
    return max(resident_bytes(workload, rows)) - memory_bytes


def _out_in_time(leaving: list[Gap]) -> list[Gap]:
    """Those that are out before they are needed again, one after another; the others do not leave."""
    free_s, found = 0.0, []
    for gap in sorted(leaving, key=lambda gap: gap.made_s):
        out_s = max(free_s, gap.made_s) + gap.out_s
        if out_s <= gap.back_s:
            free_s = out_s
            found.append(gap)
    return found


def _settled(workload: Workload, policy: Policy, stay: Collection[int], memory_bytes: int) -> list[Row]:
    rows = _order(workload, policy, stay)
    rows = moved_up(workload, rows, _a_convolution_ahead(workload, rows), memory_bytes)
    return list(settle(workload, rows, memory_bytes))


def _order(workload: Workload, policy: Policy, stay: Collection[int]) -> list[Row]:
    """Rows that ask for everything when it is needed; what is made on the way to that goes again, but ``stay``."""
    writer, last_use = Writer(workload), leaving(workload, policy)
    offloads = _offloads(workload, policy)
    for index, op in enumerate(workload.ops):
        there = {*writer.present, *_with_siblings(workload, op), *stay}
        fetch(writer, policy, op.inputs)
        on_the_way = [each for each in writer.present if each not in there and policy[each] is Action.RECOMPUTE]
        writer.compute(index)
        for tensor in offloads.get(index, ()):
            writer.swap_out(tensor)
        for tensor in (*last_use.get(index, ()), *on_the_way):
            writer.drop(tensor)
    return writer.rows


def _with_siblings(workload: Workload, op: Op) -> Iterator[int]:
    """What it reads, with what was made together with it: a pooling and its indices."""
    for tensor in op.inputs:
        yield from workload.ops[workload.producer[tensor]].outputs if tensor in workload.producer else ()


def _offloads(workload: Workload, policy: Policy) -> dict[int, list[int]]:
    """Forward op to the tensors that it is the last to write."""
    found: dict[int, list[int]] = {}
    for tensor in (tensor for tensor, action in policy.items() if action is Action.SWAP):
        readers = (op for op in workload.consumers[tensor] if workload.ops[op].phase is Phase.FORWARD)
        writers = [op for op in readers if tensor in workload.ops[op].mutates]
        found.setdefault(max([workload.producer[tensor], *writers]), []).append(tensor)
    return found


def _a_convolution_ahead(workload: Workload, rows: list[Row]) -> dict[int, int]:
    """For the number of each swap-in row where the backward pass of the convolution above begins, if there is one.

    Above what reads the tensor, and above that convolution if it is one that does. Where gradients accumulate, each
    backward pass has convolutions of its own.
    """
    places: dict[int, int] = {}
    asked, began = list[int](), list[int]()
    convolved = None
    for number, row in enumerate(rows):
        if row.kind is TaskKind.SWAP_IN:
            asked.append(number)
        if row.kind is TaskKind.COMPUTE:
            op = workload.ops[row.subject]
            if op.phase is Phase.FORWARD:
                began.clear()
            before, convolved = convolved, _convolved(op)
            if convolved not in (None, before):
                began.append(number)
            above = began if convolved is None else began[:-1]
            places |= dict.fromkeys(asked, above[-1]) if above else {}
            asked.clear()
    return places


def _convolved(op: Op) -> int | None:
    """For an op of the backward pass of a convolution the gradient that all its ops read."""
    return op.inputs[0] if op.kind.startswith("aten.convolution_backward") else None
