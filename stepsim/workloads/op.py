"""Op and Tensor: what a training step computes, and the storages that it computes on."""

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum


class Phase(StrEnum):
    FORWARD = "forward"
    BACKWARD = "backward"
    UPDATE = "update"


class Role(StrEnum):
    """What a tensor is for. A ``buffer`` is model state without a gradient (batch-norm statistics)."""

    INPUT = "input"
    PARAMETER = "parameter"
    BUFFER = "buffer"
    OPTIMIZER_STATE = "optimizer_state"
    ACTIVATION = "activation"
    GRADIENT = "gradient"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tensor:
    """One storage; views of it are not tensors.

    ``shape``, ``strides`` and ``dtype`` are those of the value that its producer wrote; ``size_bytes`` is the whole
    storage. Strides count elements; there are none where the last dimension runs fastest and nothing lies between
    (`packed_strides`). ``saved`` marks what the forward pass keeps for the backward pass (directly or through a view).
    """

    name: str
    role: Role
    size_bytes: int
    shape: tuple[int, ...]
    strides: tuple[int, ...] = ()
    dtype: str
    saved: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Op:
    """One operation of one step.

    ``inputs`` and ``outputs`` index the tensors of the workload, in the order in which the work takes and gives them;
    ``mutates`` are the inputs written in place. ``signature`` is equal for ops that are the same work on other tensors
    (kind, arguments, views, layouts): measured once, it serves all of them. ``random`` ops draw from a generator.
    """

    name: str
    phase: Phase
    kind: str
    module: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    mutates: tuple[int, ...] = ()
    flop: int
    bytes_read: int
    bytes_written: int
    input_shapes: tuple[tuple[int, ...], ...]
    output_shapes: tuple[tuple[int, ...], ...]
    dtype: str
    arguments: str
    signature: str
    random: bool = False


def packed_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Of a value whose last dimension runs fastest, with nothing in between.

    >>> packed_strides((2, 3, 4))
    (12, 4, 1)
    """
    strides, stride = [], 1
    for size in reversed(shape):
        strides.append(stride)
        stride *= max(size, 1)
    return tuple(reversed(strides))


def named_strides(shape: Sequence[int], strides: Sequence[int]) -> tuple[int, ...]:
    """As `Tensor` has them: none for packed ones."""
    return () if tuple(strides) == packed_strides(shape) else tuple(strides)


def signature_of(kind: str, arguments: str, inputs: Iterable[Tensor]) -> str:
    """The same for the same work on tensors of the same layout: 16 hex digits."""
    layouts = [[tensor.shape, tensor.strides or packed_strides(tensor.shape), tensor.dtype] for tensor in inputs]
    return hashlib.sha256(json.dumps([kind, arguments, layouts]).encode()).hexdigest()[:16]
