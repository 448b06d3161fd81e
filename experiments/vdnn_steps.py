"""The steps that vDNN measures: activations in place, convolutions with or without workspace, no update.

    in place    conv(x, w) -> y, relu(y)                       and relu_backward(dy, y), which writes into dy
    fast        conv(x, w) -> y, workspace                     the workspace is gone when the op is done
    else        conv(x, w) -> y                                counts as ``slower`` times the FLOP

For simulating only: torch has no such ops.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from experiments.control_costs import ControlCosts
from experiments.control_setting import MEMORY_EFFICIENCY, VDNN_MACHINE, VDNN_MEASURED, WORKSPACE_SHARE
from experiments.home_costs import gpu_of
from stepsim.machines import load_machine
from stepsim.workloads import Op, Phase, Role, Tensor, Workload
from stepsim.workloads.shipped import load_workload
from stepsim.workloads.storage import RELU, max_pool_without_indices

CONVOLUTION, RELU_BACKWARD = "aten.convolution", "aten.threshold_backward"


@dataclass(frozen=True, kw_only=True)
class Step:
    """One forward and backward pass, priced by the measured times of `experiments.control_setting`."""

    model: str
    batch: int
    workspace_share: float = WORKSPACE_SHARE
    slowdown_factor: float = 1.0

    @cached_property
    def workload(self) -> Workload:
        """Pooling keeps no indices, as cuDNN's."""
        found = in_place(max_pool_without_indices(load_workload(self.model).at_batch(self.batch)))
        return _with_ops(found, [op for op in found.ops if op.phase is not Phase.UPDATE])

    @cached_property
    def layers(self) -> frozenset[str]:
        return frozenset(input_bytes(self.workload))

    @cached_property
    def fast_s(self) -> float:
        """With the fastest convolutions."""
        return VDNN_MEASURED[self.model].fast_s * self.batch

    @cached_property
    def costs(self) -> ControlCosts:
        """FLOP take what ops without any leave of `fast_s`."""
        memory_bytes_per_s = gpu_of(load_machine(VDNN_MACHINE)).memory_bandwidth_bytes_per_s * MEMORY_EFFICIENCY
        moved_bytes = sum(op.bytes_read + op.bytes_written for op in self.workload.ops if not op.flop)
        products_s = self.fast_s - moved_bytes / memory_bytes_per_s
        flop = sum(op.flop for op in self.workload.ops)
        return ControlCosts(flop_per_s=flop / products_s, memory_bytes_per_s=memory_bytes_per_s)

    @cached_property
    def slower(self) -> float:
        """Seconds of a convolution without workspace over those of the fastest, so that the step is as measured."""
        flop = sum(op.flop for op in self.workload.ops if is_convolution(op))
        slowdown = VDNN_MEASURED[self.model].slowdown * self.slowdown_factor
        return 1 + (slowdown - 1) * self.fast_s * self.costs.flop_per_s / flop

    def with_fast(self, fast: Collection[str]) -> Workload:
        """Convolution layers named in ``fast`` run the fastest algorithm."""
        return with_algorithms(self.workload, fast, workspace_share=self.workspace_share, slower=self.slower)


def input_bytes(workload: Workload) -> Mapping[str, int]:
    """Of each convolution layer, by its module."""
    return {
        op.module: workload.tensors[op.inputs[0]].size_bytes
        for op in workload.ops
        if op.phase is Phase.FORWARD and op.kind == CONVOLUTION
    }


def is_convolution(op: Op) -> bool:
    """Forward, or one of its two gradients by products; that of the bias only sums."""
    return op.kind.startswith(CONVOLUTION) and op.flop > 0


def with_algorithms(workload: Workload, fast: Collection[str], *, workspace_share: float, slower: float) -> Workload:
    """Layers named in ``fast`` have a workspace, ``workspace_share`` of their input, in each of their three ops."""
    sizes, tensors, ops = input_bytes(workload), list(workload.tensors), list[Op]()
    for op in workload.ops:
        if not is_convolution(op):
            ops.append(op)
        elif op.module in fast:
            tensors.append(_workspace(op, round(workspace_share * sizes[op.module])))
            ops.append(replace(op, outputs=(*op.outputs, len(tensors) - 1)))
        else:
            # A signature of its own: a plan has one entry of work for all ops of one signature.
            ops.append(replace(op, flop=round(slower * op.flop), signature=f"{op.signature} without workspace"))
    return replace(workload, tensors=tuple(tensors), ops=tuple(ops), growth=None)


def _workspace(op: Op, size_bytes: int) -> Tensor:
    return Tensor(
        name=f"{op.name}.workspace",
        role=Role.ACTIVATION,
        size_bytes=size_bytes,
        shape=(size_bytes // 4,),
        dtype="float32",
    )


def in_place(workload: Workload) -> Workload:
    """ReLU writes into its input, and its gradient into the gradient that it reads, where no other op reads that."""
    stands_for: dict[int, int] = {}
    return _with_ops(workload, [_written_in_place(workload, op, stands_for) for op in workload.ops])


def _written_in_place(workload: Workload, op: Op, stands_for: dict[int, int]) -> Op:
    """``op`` on the tensors that earlier ops wrote in place, whose old names ``stands_for`` has."""
    inputs = tuple(stands_for.get(tensor, tensor) for tensor in op.inputs)
    if op.kind in (RELU, RELU_BACKWARD) and len(workload.consumers[op.inputs[0]]) == 1:
        stands_for[op.outputs[0]] = inputs[0]
        return replace(op, inputs=inputs, outputs=(), mutates=(inputs[0],))
    return replace(op, inputs=inputs)


def _with_ops(workload: Workload, ops: Sequence[Op]) -> Workload:
    """These ops instead; tensors that none of them names any more take no room."""
    named = {tensor for op in ops for tensor in (*op.inputs, *op.outputs)}
    late = {tensor for op in ops if op.phase is Phase.BACKWARD for tensor in op.inputs}
    tensors = (
        replace(
            tensor,
            size_bytes=tensor.size_bytes * (number in named),
            saved=number in late and tensor.role is Role.ACTIVATION,
        )
        for number, tensor in enumerate(workload.tensors)
    )
    return replace(workload, tensors=tuple(tensors), ops=tuple(ops), growth=None)
