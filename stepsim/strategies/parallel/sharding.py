"""What one device of a layout has of a step: its share of work and bytes, and the activations it must reduce.

Tensor parallelism is that of Megatron-LM (Shoeybi et al., 2019) in cost terms, found on any workload by what is read. A
*product* is an op with FLOP that reads a parameter of two or more dimensions. One that reads whole activations is split
by columns, and its output is split; so is what other ops make of it. One that reads a split activation is split by
rows: its output is a sum over the devices, all-reduced, and whole again. Backward mirrors it: the gradient that a
product split by columns gives its input is a sum over the devices, all-reduced where it is used for more than to be
added to others of its kind. On a transformer that makes two all-reduces a layer forward and two backward, as there.

Simplified: each op is divided evenly, with all it reads and writes; norms and residuals are too, as in sequence
parallelism (Korthikanti et al., "Reducing Activation Recomputation in Large Transformer Models", 2022), whose
reduce-scatters and all-gathers move the bytes of the all-reduces written here. Left out: what an embedding split by
words and a split loss reduce. Parts round up.
"""

from collections.abc import Iterable

from stepsim.strategies.parallel.stages import phases_of_ops, tensors_of_microbatch
from stepsim.workloads import Op, Phase, Role, Workload


class Shares:
    """Shares of ``workload`` where a microbatch is 1 of ``parts`` of the batch, and all is divided by ``tensor``."""

    def __init__(self, workload: Workload, *, parts: int, tensor: int) -> None:
        self.workload = workload
        self.parts, self.tensor = parts, tensor
        self.phases, self.of_microbatch = phases_of_ops(workload), tensors_of_microbatch(workload)

    def whole_bytes(self, tensor: int) -> int:
        """Of a tensor for one microbatch, on all devices of a tensor-parallel team together."""
        parts = self.parts if self.carries_batch(tensor) else 1
        return _up(self.workload.tensors[tensor].size_bytes, parts)

    def device_bytes(self, tensor: int) -> int:
        """Inputs of the step are whole on every device of a tensor-parallel team."""
        is_input = self.workload.tensors[tensor].role is Role.INPUT
        return _up(self.whole_bytes(tensor), 1 if is_input else self.tensor)

    def is_whole(self, index: int) -> bool:
        """Whether a device runs all of an op at once."""
        return self._divisor(index) == 1

    def flop(self, index: int) -> int:
        return _up(self.workload.ops[index].flop, self._divisor(index))

    def bytes_read(self, index: int) -> int:
        op = self.workload.ops[index]
        return self._moved(op.bytes_read, op.inputs)

    def bytes_written(self, index: int) -> int:
        op = self.workload.ops[index]
        return self._moved(op.bytes_written, (*op.outputs, *op.mutates))

    def _divisor(self, index: int) -> int:
        return self.tensor * (1 if self.phases[index] is Phase.UPDATE else self.parts)

    def _moved(self, size_bytes: int, tensors: Iterable[int]) -> int:
        """Parameters and their gradients count in full for every microbatch, the rest shrinks with it."""
        full = sum(self.workload.tensors[tensor].size_bytes for tensor in tensors if not self.carries_batch(tensor))
        full = min(full, size_bytes)
        return _up(full + _up(size_bytes - full, self.parts), self.tensor)

    def carries_batch(self, tensor: int) -> bool:
        """Whether each microbatch has a ``tensor`` of its own."""
        return tensor in self.of_microbatch or self.workload.tensors[tensor].role is Role.INPUT


def _up(number: int, parts: int) -> int:
    return -(-number // parts)


def reduced_tensors(workload: Workload) -> frozenset[int]:
    """Activations and gradients of activations that a tensor-parallel team all-reduces when they are made."""
    columns, sums = _forward(workload)
    return sums | _backward(workload, columns)


def _forward(workload: Workload) -> tuple[frozenset[int], frozenset[int]]:
    """Parameters that are split by columns, and outputs that are sums over the devices."""
    split: set[int] = set()
    columns: set[int] = set()
    sums: set[int] = set()
    for op in _ops_of(workload, Phase.FORWARD):
        weights, from_split = _weights(workload, op), not split.isdisjoint(op.inputs)
        if weights and from_split:
            sums.update(tensor for tensor in op.outputs if workload.consumers[tensor])
        elif weights or from_split:
            split.update(op.outputs)
            columns.update(weights)
    return frozenset(columns), frozenset(sums)


def _backward(workload: Workload, columns: frozenset[int]) -> frozenset[int]:
    """Gradients that are sums over the devices and used as such."""
    of_microbatch = tensors_of_microbatch(workload)
    sums: set[int] = set()
    needed: set[int] = set()
    for op in _ops_of(workload, Phase.BACKWARD):
        only_sums = bool(op.inputs) and sums.issuperset(op.inputs)
        if only_sums or not columns.isdisjoint(_weights(workload, op)):
            sums.update(of_microbatch.intersection(op.outputs))
        if not only_sums:
            needed.update(op.inputs)
    return frozenset(sums & needed)


def _ops_of(workload: Workload, phase: Phase) -> list[Op]:
    return [op for op in workload.ops if op.phase is phase]


def _weights(workload: Workload, op: Op) -> list[int]:
    """What makes ``op`` a product: the parameters of two or more dimensions that it reads."""
    tensors = workload.tensors
    found = [i for i in op.inputs if tensors[i].role is Role.PARAMETER and len(tensors[i].shape) > 1]
    return found if op.flop else []
