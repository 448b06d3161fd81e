"""Learn from two captures of one model what the batch adds to each number.

Two points always lie on a line. What is no line shows in other ways: of a tensor more than one dimension grows, or a
number would be negative at batch 0, as on any line through two points of a square.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, replace
from typing import TypeVar

from stepsim.errors import WorkloadError
from stepsim.workloads.growth import WHOLE_NUMBER, Growth, Numbers, numbers_of_op, numbers_of_tensor
from stepsim.workloads.op import Op, Tensor
from stepsim.workloads.workload import Workload

Batches = tuple[int, int]
"""The smaller first."""

Noun = TypeVar("Noun", Tensor, Op)

_GROWING = {"size_bytes", "shape", "strides", "flop", "bytes_read", "bytes_written", "input_shapes", "output_shapes"}
_GROWING |= {"arguments", "signature"}
"""Fields that may differ between two batches."""


def at_any_batch(workload: Workload, capture_at: Callable[[int], Workload]) -> Workload:
    """``workload``, which can be had `at_batch` of any size, learnt from what ``capture_at`` gives for twice its batch.

    Raises `WorkloadError` as `with_growth`, and for a workload of one sample whose graph is not that of larger batches.
    """
    if workload.batch > 1:
        return with_growth(workload, capture_at(2 * workload.batch))
    found = with_growth(capture_at(2), capture_at(4)).at_batch(1)
    if found.graph_hash != workload.graph_hash:
        raise WorkloadError("the graph depends on the batch: that of one sample differs from those of more")
    return found


def with_growth(workload: Workload, larger: Workload) -> Workload:
    """``workload``, which can be had `at_batch` of any size: ``larger`` is the same step captured at a larger batch.

    Nothing is learnt from a batch of one, for which PyTorch may take another way: a dimension of size one is contiguous
    whatever its stride.

    Raises `WorkloadError` if the two are different graphs, or if a number is no ``a + b x batch`` with both at least 0;
    views and strides may have any ``a``.
    """
    batches = (workload.batch, larger.batch)
    if not 2 <= workload.batch < larger.batch:
        raise WorkloadError(f"two captures: must be of two batches >= 2, the smaller first, got {batches}")
    tensors, ops = {}, {}
    for index, (tensor, other) in enumerate(_alike("tensor", workload.tensors, larger.tensors, batches)):
        tensors[index] = _added(numbers_of_tensor(tensor), numbers_of_tensor(other))
        _check_tensor(tensor, tensors[index], batches)
    for index, (op, other_op) in enumerate(_alike("op", workload.ops, larger.ops, batches)):
        ops[index] = _added(numbers_of_op(op), numbers_of_op(other_op))
        _check_line(f"op {op.name!r}", numbers_of_op(op)[:3], ops[index], batches)
    if (workload.loss, workload.gradients) != (larger.loss, larger.gradients):
        raise _depends("loss and gradients are other tensors", batches)
    if not any(map(any, tensors.values())):
        raise WorkloadError(f"nothing in it grows from batch {batches[0]} to {batches[1]}")
    return replace(workload, growth=_in_lowest_terms(larger.batch - workload.batch, tensors, ops))


def _alike(kind: str, nouns: Sequence[Noun], others: Sequence[Noun], batches: Batches) -> Iterator[tuple[Noun, Noun]]:
    """Pair by pair, once they are the same in all that cannot grow."""
    if len(nouns) != len(others):
        raise _depends(f"it has {len(nouns)} and {len(others)} {kind}s", batches)
    for noun, other in zip(nouns, others, strict=True):
        for field in fields(noun):
            one, two = (_fixed(field.name, getattr(each, field.name)) for each in (noun, other))
            if one != two:
                raise _depends(f"{kind} {noun.name!r} has {field.name} {one!r} and {two!r}", batches)
        yield noun, other


def _fixed(field: str, value: object) -> object:
    """What cannot grow of a field: of a shape the number of dimensions, of arguments the words."""
    match field, value:
        case "shape", tuple():
            return len(value)
        case "arguments", str():
            return WHOLE_NUMBER.sub("#", value)
        case _:
            return None if field in _GROWING else value


def _depends(how: str, batches: Batches) -> WorkloadError:
    return WorkloadError(f"the graph depends on the batch: {how} at batch {batches[0]} and {batches[1]}")


def _added(numbers: Numbers, later: Numbers) -> Numbers:
    return tuple(after - before for before, after in zip(numbers, later, strict=True))


def _check_tensor(tensor: Tensor, added: Numbers, batches: Batches) -> None:
    dimensions = len(tensor.shape)
    if sum(more != 0 for more in added[1 : 1 + dimensions]) > 1:
        raise WorkloadError(f"tensor {tensor.name!r}: more than one dimension of {tensor.shape} grows with the batch")
    _check_line(f"tensor {tensor.name!r}", (tensor.size_bytes, *tensor.shape), added, batches)


def _check_line(where: str, numbers: Numbers, added: Numbers, batches: Batches) -> None:
    small, large = batches
    for number, more in zip(numbers, added, strict=False):
        if not 0 <= more * small <= number * (large - small):
            found = f"{number} at batch {small} and {number + more} at batch {large}"
            raise WorkloadError(f"{where}: {found} is no a + b x batch of a and b >= 0")


def _in_lowest_terms(step: int, tensors: dict[int, Numbers], ops: dict[int, Numbers]) -> Growth:
    """The smallest step for which all that is added is whole."""
    shared = math.gcd(step, *(number for added in (*tensors.values(), *ops.values()) for number in added))
    return Growth(step=step // shared, tensors=_divided(tensors, shared), ops=_divided(ops, shared))


def _divided(added: dict[int, Numbers], by: int) -> dict[int, Numbers]:
    return {index: tuple(number // by for number in numbers) for index, numbers in added.items() if any(numbers)}
