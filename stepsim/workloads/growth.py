"""Growth: what the batch adds to each number of a workload, so that one capture serves every batch size.

Every size, FLOP count, byte count and argument is ``a + b x batch``; a growth is the ``b`` of those that have one.
`stepsim.workloads.two_captures` learns it.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from stepsim.workloads.op import Op, Tensor, named_strides, packed_strides, signature_of

Numbers = tuple[int, ...]

WHOLE_NUMBER = re.compile(r"(?<![\w.+-])-?\d+(?![\w.])")
"""In the text of an op's arguments: no part of a name or of a decimal number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """What ``step`` more samples add to the numbers of tensors and ops, by their index; the others stay as they are.

    `numbers_of_tensor` and `numbers_of_op` say which numbers, in order. Most steps are one sample; accumulated
    microbatches make it several.
    """

    step: int
    tensors: Mapping[int, Numbers]
    ops: Mapping[int, Numbers]


def numbers_of_tensor(tensor: Tensor) -> Numbers:
    """Its bytes, shape and strides."""
    return (tensor.size_bytes, *tensor.shape, *(tensor.strides or packed_strides(tensor.shape)))


def numbers_of_op(op: Op) -> Numbers:
    """Its FLOP, bytes read and written, and the whole numbers in its arguments."""
    return (op.flop, op.bytes_read, op.bytes_written, *whole_numbers(op.arguments))


def whole_numbers(arguments: str) -> Numbers:
    return tuple(int(found) for found in WHOLE_NUMBER.findall(arguments))


def grow(
    tensors: Sequence[Tensor], ops: Sequence[Op], growth: Growth, steps: int
) -> tuple[tuple[Tensor, ...], tuple[Op, ...]]:
    """Tensors and ops of a batch that is ``steps`` steps larger; a negative number makes them smaller."""
    grown = list(tensors)
    for index, added in growth.tensors.items():
        grown[index] = _grown_tensor(tensors[index], _after(numbers_of_tensor(tensors[index]), added, steps))
    grower = _OpGrower(grown, steps)
    changed = list(ops)
    for index, op in enumerate(ops):
        if index in growth.ops or not growth.tensors.keys().isdisjoint((*op.inputs, *op.outputs)):
            changed[index] = grower.grown(op, growth.ops.get(index, _NOTHING))
    return tuple(grown), tuple(changed)


_NOTHING = (0, 0, 0)
"""Added to an op of which only a storage grows."""


def _grown_tensor(tensor: Tensor, numbers: Numbers) -> Tensor:
    dimensions = len(tensor.shape)
    shape, strides = numbers[1 : 1 + dimensions], numbers[1 + dimensions :]
    return replace(tensor, size_bytes=numbers[0], shape=shape, strides=named_strides(shape, strides))


class _OpGrower:
    """Remembers the texts and signatures that it has made: most ops of a model are the same work as another."""

    def __init__(self, tensors: Sequence[Tensor], steps: int) -> None:
        self._tensors = tensors
        self._steps = steps
        self._texts: dict[tuple[str, Numbers], str] = {}
        self._signatures: dict[tuple[object, ...], str] = {}

    def grown(self, op: Op, added: Numbers) -> Op:
        counts, arguments = (op.flop, op.bytes_read, op.bytes_written), self._text(op.arguments, added[3:])
        flop, bytes_read, bytes_written = _after(counts, added[:3], self._steps)
        return replace(
            op,
            flop=flop,
            bytes_read=bytes_read,
            bytes_written=bytes_written,
            input_shapes=tuple(self._tensors[tensor].shape for tensor in op.inputs),
            output_shapes=tuple(self._tensors[tensor].shape for tensor in op.outputs),
            arguments=arguments,
            signature=self._signature(op.kind, arguments, [self._tensors[tensor] for tensor in op.inputs]),
        )

    def _text(self, arguments: str, added: Numbers) -> str:
        if not any(added):
            return arguments
        if (arguments, added) not in self._texts:
            numbers = iter(_after(whole_numbers(arguments), added, self._steps))
            self._texts[arguments, added] = WHOLE_NUMBER.sub(lambda _: str(next(numbers)), arguments)
        return self._texts[arguments, added]

    def _signature(self, kind: str, arguments: str, inputs: Sequence[Tensor]) -> str:
        key = (kind, arguments, *((tensor.shape, tensor.strides, tensor.dtype) for tensor in inputs))
        if key not in self._signatures:
            self._signatures[key] = signature_of(kind, arguments, inputs)
        return self._signatures[key]


def _after(numbers: Numbers, added: Numbers, steps: int) -> Numbers:
    return tuple(number + steps * more for number, more in zip(numbers, added, strict=True))
