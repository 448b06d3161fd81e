"""One op of an execution trace: its tensors, its signature, and its floating-point operations."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

MOST_SHOWN = 8
"""An op on more tensors than this (fused optimizers take hundreds) shows how many, and their bytes."""


@dataclass(frozen=True, slots=True)
class OpTensor:
    """A tensor as an op saw it: ``[tensor, storage, offset, elements, bytes of each, device]`` in the file."""

    storage: int
    shape: tuple[int, ...]
    dtype: str
    size_bytes: int

    def __str__(self) -> str:
        return f"{self.dtype}[{','.join(map(str, self.shape))}]"


Argument = OpTensor | list[OpTensor] | list[int] | int | None
"""What an argument can be, as far as it decides the work; None for names, devices, fractions and absent ones."""


def arguments(values: Sequence[Any], shapes: Sequence[Any], types: Sequence[Any]) -> list[Argument]:
    """Arguments from the three parallel lists of a node. Raises `ValueError` for lists that do not fit together."""
    return [_argument(value, shape, kind) for value, shape, kind in zip(values, shapes, map(str, types), strict=True)]


def _argument(value: Any, shape: Any, kind: str) -> Argument:
    if kind.startswith("Tensor("):
        return _tensor(value, shape, kind)
    if kind.startswith("GenericList[Tensor("):
        kinds = kind.removeprefix("GenericList[").removesuffix("]").split(",")
        return [_tensor(*each) for each in zip(value, shape, kinds, strict=True)]
    if kind.startswith(("GenericList[Int", "GenericList[Bool")) and isinstance(value, list):
        return [int(each) for each in value]
    return int(value) if kind in ("Int", "Bool") else None


def _tensor(value: Any, shape: Any, kind: str) -> OpTensor:
    _, storage, _, elements, each_bytes, *_ = value
    numbers = [storage, elements, each_bytes, *shape]
    if not all(isinstance(number, int) and 0 <= number < 2**63 for number in numbers):
        raise ValueError("a tensor must have whole numbers >= 0")
    return OpTensor(storage, tuple(shape), kind.removeprefix("Tensor(").removesuffix(")"), elements * each_bytes)


def tensors_of(arguments: Sequence[Argument]) -> Iterator[OpTensor]:
    for argument in arguments:
        if isinstance(argument, OpTensor):
            yield argument
        elif isinstance(argument, list):
            yield from (each for each in argument if isinstance(each, OpTensor))


def signature(name: str, inputs: Sequence[Argument], outputs: Sequence[Argument]) -> str:
    """What decides how long an op takes: ``aten::mm float[4,8]; float[8,2] -> float[4,2]``."""
    return f"{name} {_shown(inputs)} -> {_shown(outputs)}"


def _shown(arguments: Sequence[Argument]) -> str:
    tensors = list(tensors_of(arguments))
    if len(tensors) > MOST_SHOWN:
        return f"{len(tensors)} tensors of {sum(tensor.size_bytes for tensor in tensors)} bytes"
    return "; ".join(str(argument).replace(" ", "") for argument in _flat(arguments))


def _flat(arguments: Sequence[Argument]) -> Iterator[OpTensor | list[Any] | int]:
    for argument in arguments:
        if isinstance(argument, list) and argument and isinstance(argument[0], OpTensor):
            yield from tensors_of([argument])
        elif argument is not None:
            yield argument


def _product(inputs: Sequence[Argument], outputs: Sequence[Argument]) -> int:
    """Two for each multiply-add: outputs times the summed dimension, the last of the left factor."""
    left = [tensor for tensor in tensors_of(inputs) if len(tensor.shape) >= 2][-2]
    return 2 * _elements(outputs[0]) * left.shape[-1]


def _convolution(inputs: Sequence[Argument], outputs: Sequence[Argument]) -> int:
    """Each output element takes one filter: channels of a group times the window."""
    return 2 * _elements(outputs[0]) * math.prod(_shape(inputs[1])[1:])


def _general_convolution(inputs: Sequence[Argument], outputs: Sequence[Argument]) -> int:
    """Transposed, each input element takes one filter. ``transposed`` is the seventh argument."""
    wide = inputs[0] if inputs[6] else outputs[0]
    return 2 * _elements(wide) * math.prod(_shape(inputs[1])[1:])


def _convolution_backward(inputs: Sequence[Argument], _: Sequence[Argument]) -> int:
    """As many as forward for each gradient that is asked for: of the input, of the filter."""
    wide, masks = inputs[1] if inputs[7] else inputs[0], inputs[10]
    asked = sum(mask for mask in masks[:2] if isinstance(mask, int)) if isinstance(masks, list) else 0
    return 2 * _elements(wide) * math.prod(_shape(inputs[2])[1:]) * asked


def _attention(inputs: Sequence[Argument], _: Sequence[Argument]) -> int:
    """Scores, and the values that they weigh."""
    query, key, value = (_shape(argument) for argument in inputs[:3])
    return 2 * math.prod(query[:-1]) * key[-2] * (query[-1] + value[-1])


def _shape(argument: Argument) -> tuple[int, ...]:
    if not isinstance(argument, OpTensor):
        raise ValueError("must be a tensor")
    return argument.shape


def _elements(argument: Argument) -> int:
    return math.prod(_shape(argument))


Formula = Callable[[Sequence[Argument], Sequence[Argument]], int]

FORMULAS: Mapping[str, Formula] = {
    **dict.fromkeys(("aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm"), _product),
    **dict.fromkeys(("aten::cudnn_convolution", "aten::miopen_convolution"), _convolution),
    **dict.fromkeys(("aten::convolution", "aten::_convolution"), _general_convolution),
    "aten::convolution_backward": _convolution_backward,
    "aten::_scaled_dot_product_flash_attention": _attention,
    "aten::_scaled_dot_product_efficient_attention": _attention,
}
"""Operations counted as `torch.utils.flop_counter.FlopCounterMode` counts them: products only."""


def flop(name: str, inputs: Sequence[Argument], outputs: Sequence[Argument]) -> int:
    """Floating-point operations; 0 where no formula is known, or where arguments do not fit it."""
    formula = FORMULAS.get(name)
    try:
        return formula(inputs, outputs) if formula is not None else 0
    except (IndexError, ValueError):
        return 0
