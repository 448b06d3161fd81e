"""vDNN: inputs of layers go to the host while the layer runs, and come back one layer ahead.

Rhu et al., "vDNN", MICRO 2016, section 3. Both streams are synchronised at the end of each layer that moves something,
so a layer takes as long as its copy, if that is longer.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from stepsim.machines import Machine
from stepsim.plan import Costs, Plan
from stepsim.strategies.memory.lowering import plan_for_policy, plan_for_rows
from stepsim.strategies.memory.propose import begin, propose
from stepsim.strategies.memory.rows import Row, settle
from stepsim.strategies.memory.schedule import candidates
from stepsim.strategies.memory.writer import Writer
from stepsim.strategies.proposal import Evaluate, Proposal
from stepsim.workloads import Op, Phase, Workload
from stepsim.workloads.storage import backward_pass

Inputs = Literal["all", "conv", "single-conv", "every"]

_GRADIENT_TAKES_NO_INPUT = ("aten.add", "aten.cat")


@dataclass(frozen=True, slots=True, kw_only=True)
class VDnn:
    """Offload the inputs of layers, always, whether there is room or not.

    inputs
        ``"all"``: of the feature extraction, every layer before the first linear one. ``"conv"``: of convolutions only.
        Both are the paper's; a layer is an op here. ``"every"``: of all ops whose gradient takes their input, so not
        of additions and concatenations; the throughput that the HOME paper plots of vDNN fits this on its CIFAR models,
        though it says convolutions. ``"single-conv"``: of convolutions that are alone in reading it; fits its Inception
        v3.

    An input goes out with the last forward op that reads it. Before the backward ops of a layer the nearest offloaded
    input of a layer below comes back, but none from below the next convolution; one that is not there when it is read
    is fetched then. A workload has one algorithm for each convolution, so the paper's memory-optimal and
    performance-optimal variants differ in its costs, not here.
    """

    name: str = "vdnn-all"
    inputs: Inputs = "all"

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
        rows = settle(workload, self.rows(workload), memory_bytes)
        plan = plan_for_rows(workload, machine, rows)
        return propose(self.name, plan, machine, evaluate, memory_bytes=memory_bytes, began_s=began_s, complete=True)

    def rows(self, workload: Workload) -> list[Row]:
        """Not settled yet."""
        leaves = _offloads(workload, self.inputs)
        writer, layers = Writer(workload), dict(zip(*backward_pass(workload), strict=True))
        reached, coming = len(workload.ops), None
        for index, op in enumerate(workload.ops):
            layer = layers.get(index, reached)
            if layer < reached:
                _await(writer, coming)
                coming = _next_down(workload, writer, leaves, layer)
                reached = layer
                if coming is not None:
                    writer.swap_in(coming)
            _run(writer, index, op, leaves.get(index, []))
        return writer.rows


@dataclass(frozen=True, slots=True, kw_only=True)
class VDnnDynamic:
    """The paper's dynamic choice (section 3.4) without the choice of algorithms: nothing is offloaded where that fits;
    else the inputs of convolutions, if that is enough and the host can hold them; else all inputs.
    """

    name: str = "vdnn-dynamic"

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
        for plan in self._trials(workload, machine, memory_bytes):
            found = propose(
                self.name, plan, machine, evaluate, memory_bytes=memory_bytes, began_s=began_s, complete=True
            )
            if found.feasible:
                break
        return found

    def _trials(self, workload: Workload, machine: Machine, memory_bytes: int) -> Iterator[Plan]:
        """One after another: where nothing has to leave, no host is needed."""
        yield plan_for_policy(workload, machine, {}, memory_bytes)
        for vdnn in (VDnn(inputs="conv"), VDnn(inputs="all")):
            yield plan_for_rows(workload, machine, settle(workload, vdnn.rows(workload), memory_bytes))


def _offloads(workload: Workload, inputs: Inputs) -> dict[int, list[int]]:
    """Forward op to the tensors that go out with it: it is their last reader."""
    may_leave, found = set(candidates(workload)), dict[int, list[int]]()
    forward = [index for index, op in enumerate(workload.ops) if op.phase is Phase.FORWARD]
    first_linear = next((index for index in forward if is_linear(workload.ops[index])), len(workload.ops))
    for tensor in sorted(may_leave):
        readers = [op for op in workload.consumers[tensor] if op in forward]
        if readers and _chosen(workload, readers, inputs, first_linear):
            found.setdefault(readers[-1], []).append(tensor)
    return found


def _chosen(workload: Workload, readers: list[int], inputs: Inputs, first_linear: int) -> bool:
    convolves = any(is_convolution(workload.ops[op]) for op in readers)
    match inputs:
        case "every":
            return any(workload.ops[op].kind not in _GRADIENT_TAKES_NO_INPUT for op in readers)
        case "all":
            return readers[-1] < first_linear
        case "conv":
            return convolves
        case "single-conv":
            return convolves and len(readers) == 1


def is_convolution(op: Op) -> bool:
    return op.kind == "aten.convolution"


def is_linear(op: Op) -> bool:
    return op.kind in ("aten.mm", "aten.addmm")


def _run(writer: Writer, index: int, op: Op, leaving: list[int]) -> None:
    """One op, with the tensors that leave during it, which it waits for; what it writes in place leaves after it."""
    for tensor in op.inputs:
        if not writer.has(tensor):
            writer.swap_in(tensor)
    during = [tensor for tensor in leaving if tensor not in op.mutates]
    for tensor in during:
        writer.swap_out(tensor)
    writer.compute(index)
    for tensor in leaving:
        if tensor not in during:
            writer.swap_out(tensor)
        writer.drop(tensor)
        writer.wait_for(tensor)


def _await(writer: Writer, coming: int | None) -> None:
    if coming is not None and writer.has(coming):
        writer.wait_for_return(coming)


def _next_down(workload: Workload, writer: Writer, leaves: dict[int, list[int]], layer: int) -> int | None:
    """The nearest offloaded tensor below ``layer`` that is still out, down to the next convolution."""
    for below in range(layer - 1, -1, -1):
        for tensor in leaves.get(below, ()):
            if not writer.has(tensor):
                return tensor
        if is_convolution(workload.ops[below]):
            return None
    return None
