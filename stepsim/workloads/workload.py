"""Workload, Op and Tensor: one training step as a graph, with no values and no torch."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import Any, Self, TypeVar

from stepsim.errors import FileError, WorkloadError
from stepsim.tables import read_json, write_json

FORMAT = "stepsim-workload"


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

    ``shape`` and ``dtype`` are those of the value that its producer wrote; ``size_bytes`` is the whole storage.
    ``saved`` marks what the forward pass keeps for the backward pass (directly or through a view).
    """

    name: str
    role: Role
    size_bytes: int
    shape: tuple[int, ...]
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


@dataclass(frozen=True, kw_only=True)
class Workload:
    """One training step: ops in execution order over tensors.

    ``loss`` indexes the tensor of the loss; ``gradients`` maps each trained parameter to its gradient, both as tensor
    indices. Raises `WorkloadError` when ops and tensors contradict each other.
    """

    name: str
    batch: int
    tensors: tuple[Tensor, ...]
    ops: tuple[Op, ...]
    loss: int
    gradients: Mapping[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for tensor in self.tensors:
            _check_counts(f"tensor {tensor.name!r}", size_bytes=tensor.size_bytes)
        written = {i for i, tensor in enumerate(self.tensors) if tensor.role in _FROM_OUTSIDE}
        for op in self.ops:
            _check_counts(f"op {op.name!r}", flop=op.flop, bytes_read=op.bytes_read, bytes_written=op.bytes_written)
            for index in (*op.inputs, *op.outputs):
                if not 0 <= index < len(self.tensors):
                    raise WorkloadError(f"op {op.name!r}: tensor {index} of {len(self.tensors)} does not exist")
            for index in op.inputs:
                if index not in written:
                    raise WorkloadError(
                        f"op {op.name!r} reads tensor {self.tensors[index].name!r} before any op writes it"
                    )
            if not set(op.mutates) <= set(op.inputs):
                raise WorkloadError(f"op {op.name!r}: mutates {op.mutates}, which are not all inputs")
            written.update(op.outputs)
        for index in (self.loss, *self.gradients, *self.gradients.values()):
            if index not in written:
                raise WorkloadError(f"loss or gradient: tensor {index} of {len(self.tensors)} is written by no op")

    @cached_property
    def producer(self) -> dict[int, int]:
        """Tensor to the op that writes it first; tensors from outside have none."""
        found: dict[int, int] = {}
        for index, op in enumerate(self.ops):
            for tensor in op.outputs:
                found.setdefault(tensor, index)
        return found

    @cached_property
    def consumers(self) -> dict[int, tuple[int, ...]]:
        """Tensor to the ops that read it, in execution order."""
        found: dict[int, list[int]] = {index: [] for index in range(len(self.tensors))}
        for index, op in enumerate(self.ops):
            for tensor in dict.fromkeys(op.inputs):
                found[tensor].append(index)
        return {tensor: tuple(ops) for tensor, ops in found.items()}

    @cached_property
    def graph_hash(self) -> str:
        """SHA-256 over tensors and ops, whatever the workload is called."""
        body = self._body()
        del body["name"]
        return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()

    @property
    def flop(self) -> int:
        return sum(op.flop for op in self.ops)

    def _body(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "batch": self.batch,
            "loss": self.loss,
            "gradients": [[parameter, gradient] for parameter, gradient in self.gradients.items()],
            "tensors": [asdict(tensor) for tensor in self.tensors],
            "ops": [asdict(op) for op in self.ops],
        }

    def save(self, path: str | Path) -> None:
        write_json(path, {"format": FORMAT, **self._body()})

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Raises `FileError` if ``path`` holds no workload."""
        body = read_json(path, FORMAT)
        try:
            return cls(
                name=_plain("name", body["name"], str),
                batch=_plain("batch", body["batch"], int),
                loss=body["loss"],
                gradients=dict(body["gradients"]),
                tensors=tuple(_tensor(entry) for entry in body["tensors"]),
                ops=tuple(_op(entry) for entry in body["ops"]),
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise FileError(path, "workload", None, f"cannot be read: {error}") from error


_FROM_OUTSIDE = {Role.INPUT, Role.PARAMETER, Role.BUFFER, Role.OPTIMIZER_STATE}


def _check_counts(where: str, **counts: int) -> None:
    for name, count in counts.items():
        if not isinstance(count, int) or count < 0:
            raise WorkloadError(f"{where}: {name} must be a whole number >= 0, got {count!r}")


def _tensor(entry: Mapping[str, Any]) -> Tensor:
    return _checked(Tensor(**{**entry, "role": Role(entry["role"]), "shape": tuple(entry["shape"])}))


LARGEST = 2**62
"""Of any number in a file: sums of a few still fit into 64 bits."""

Noun = TypeVar("Noun", Tensor, Op)


def _checked(noun: Noun) -> Noun:
    """``noun``, whose plain fields came from a file. Raises `WorkloadError` for one of another type."""
    for field_ in fields(noun):
        if field_.type in (str, int, bool):
            _plain(field_.name, getattr(noun, field_.name), field_.type)
    return noun


def _plain(name: str, value: Any, kind: Any) -> Any:
    if type(value) is not kind:
        raise WorkloadError(f"{name}: must be {kind.__name__}, got {value!r}")
    if kind is int and abs(value) > LARGEST:
        raise WorkloadError(f"{name}: must be at most {LARGEST}, got {value!r}")
    return value


def _op(entry: Mapping[str, Any]) -> Op:
    lists = {key: tuple(entry[key]) for key in ("inputs", "outputs", "mutates")}
    shapes = {key: tuple(tuple(shape) for shape in entry[key]) for key in ("input_shapes", "output_shapes")}
    return _checked(Op(**{**entry, **lists, **shapes, "phase": Phase(entry["phase"])}))
