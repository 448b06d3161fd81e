"""Workload: one training step as a graph, with no values and no torch."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Self

from stepsim.errors import FileError, WorkloadError
from stepsim.tables import read_json, write_json
from stepsim.workloads.entries import LARGEST, entry_of, growth_entry, growth_of, op_of, plain, tensor_of
from stepsim.workloads.growth import Growth, grow
from stepsim.workloads.op import Op, Role, Tensor

FORMAT = "stepsim-workload"


@dataclass(frozen=True, kw_only=True)
class Workload:
    """One training step: ops in execution order over tensors.

    ``loss`` indexes the tensor of the loss; ``gradients`` maps each trained parameter to its gradient, both as tensor
    indices. With a ``growth`` the step can be had `at_batch` of other sizes; without, it is of this one only. Raises
    `WorkloadError` when ops and tensors contradict each other.
    """

    name: str
    batch: int
    tensors: tuple[Tensor, ...]
    ops: tuple[Op, ...]
    loss: int
    gradients: Mapping[int, int] = field(default_factory=dict)
    growth: Growth | None = None

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

    def at_batch(self, batch: int) -> Self:
        """The same step at another batch: its graph, and its hash, are those that a capture there would give.

        Raises `WorkloadError` for a batch that the captures say nothing about.
        """
        if not isinstance(batch, int) or isinstance(batch, bool):
            raise WorkloadError(f"workload {self.name!r}: batch must be a whole number, got {batch!r}")
        if batch == self.batch:
            return self
        if self.growth is None:
            raise WorkloadError(f"workload {self.name!r}: is of batch {self.batch} only, got batch {batch}")
        steps, rest = divmod(batch - self.batch, self.growth.step)
        if batch < 1 or rest:
            known = "" if self.growth.step == 1 else f" and {self.batch} plus a multiple of {self.growth.step}"
            raise WorkloadError(f"workload {self.name!r}: batch must be >= 1{known}, got {batch}")
        tensors, ops = grow(self.tensors, self.ops, self.growth, steps)
        if max([sum(tensor.size_bytes for tensor in tensors), *(op.flop for op in ops)]) > LARGEST:
            raise WorkloadError(f"workload {self.name!r}: batch is too large to count its bytes and FLOP, got {batch}")
        return replace(self, batch=batch, tensors=tensors, ops=ops)

    def _body(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "batch": self.batch,
            "loss": self.loss,
            "gradients": [[parameter, gradient] for parameter, gradient in self.gradients.items()],
            "tensors": [entry_of(tensor) for tensor in self.tensors],
            "ops": [entry_of(op) for op in self.ops],
        }

    def save(self, path: str | Path) -> None:
        """One JSON object; where ``path`` ends in .gz, a gzip of it."""
        growth = {} if self.growth is None else {"growth": growth_entry(self.growth)}
        write_json(path, {"format": FORMAT, **self._body(), **growth})

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Raises `FileError` if ``path`` holds no workload."""
        body = read_json(path, FORMAT)
        try:
            tensors = tuple(tensor_of(entry) for entry in body["tensors"])
            ops = tuple(op_of(entry) for entry in body["ops"])
            return cls(
                name=plain("name", body["name"], str),
                batch=plain("batch", body["batch"], int),
                loss=body["loss"],
                gradients=dict(body["gradients"]),
                tensors=tensors,
                ops=ops,
                growth=growth_of(body["growth"], tensors, ops) if "growth" in body else None,
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise FileError(path, "workload", None, f"cannot be read: {error}") from error


_FROM_OUTSIDE = {Role.INPUT, Role.PARAMETER, Role.BUFFER, Role.OPTIMIZER_STATE}


def _check_counts(where: str, **counts: int) -> None:
    for name, count in counts.items():
        if not isinstance(count, int) or count < 0:
            raise WorkloadError(f"{where}: {name} must be a whole number >= 0, got {count!r}")
