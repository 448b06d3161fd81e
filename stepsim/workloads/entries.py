"""Tensors, ops and growth as entries of a JSON file: a field that is as usual is left out."""

from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any, TypeVar

from stepsim.errors import WorkloadError
from stepsim.workloads.growth import Growth, Numbers, numbers_of_op, numbers_of_tensor
from stepsim.workloads.op import Op, Phase, Role, Tensor

LARGEST = 2**62
"""Of any number in a file: sums of a few still fit into 64 bits."""

Noun = TypeVar("Noun", Tensor, Op)


_USUAL = {kind: [(field.name, field.default) for field in fields(kind)] for kind in (Tensor, Op)}


def entry_of(noun: Tensor | Op) -> dict[str, Any]:
    found = ((name, getattr(noun, name), usual) for name, usual in _USUAL[type(noun)])
    return {name: value for name, value, usual in found if value != usual}


def tensor_of(entry: Mapping[str, Any]) -> Tensor:
    lists = {"shape": tuple(entry["shape"]), "strides": tuple(entry.get("strides", ()))}
    return _checked(Tensor(**{**entry, **lists, "role": Role(entry["role"])}))


def op_of(entry: Mapping[str, Any]) -> Op:
    lists = {key: tuple(entry.get(key, ())) for key in ("inputs", "outputs", "mutates")}
    shapes = {key: tuple(tuple(shape) for shape in entry[key]) for key in ("input_shapes", "output_shapes")}
    return _checked(Op(**{**entry, **lists, **shapes, "phase": Phase(entry["phase"])}))


def growth_entry(growth: Growth) -> dict[str, Any]:
    return {
        "step": growth.step,
        "tensors": [[index, *added] for index, added in growth.tensors.items()],
        "ops": [[index, *added] for index, added in growth.ops.items()],
    }


def growth_of(entry: Mapping[str, Any], tensors: tuple[Tensor, ...], ops: tuple[Op, ...]) -> Growth:
    """The growth of these ``tensors`` and ``ops``. Raises `WorkloadError` for one that is of others."""
    step = plain("growth step", entry["step"], int)
    if step < 1:
        raise WorkloadError(f"growth: step must be >= 1, got {step}")
    return Growth(
        step=step,
        tensors=_added("tensor", entry["tensors"], [len(numbers_of_tensor(tensor)) for tensor in tensors]),
        ops=_added("op", entry["ops"], [len(numbers_of_op(op)) for op in ops]),
    )


def _added(kind: str, rows: Iterable[list[int]], lengths: list[int]) -> dict[int, Numbers]:
    found = {}
    for index, *added in rows:
        for number in (index, *added):
            plain(f"growth of {kind} {index}", number, int)
        if not 0 <= index < len(lengths) or len(added) != lengths[index]:
            raise WorkloadError(f"growth: {kind} {index} has no {len(added)} numbers that could grow")
        found[index] = tuple(added)
    return found


def _checked(noun: Noun) -> Noun:
    """``noun``, whose plain fields came from a file. Raises `WorkloadError` for one of another type."""
    for field_ in fields(noun):
        if field_.type in (str, int, bool):
            plain(field_.name, getattr(noun, field_.name), field_.type)
    return noun


def plain(name: str, value: Any, kind: Any) -> Any:
    """``value``, which must be of ``kind`` and no larger than `LARGEST`. Raises `WorkloadError`."""
    if type(value) is not kind:
        raise WorkloadError(f"{name}: must be {kind.__name__}, got {value!r}")
    if kind is int and abs(value) > LARGEST:
        raise WorkloadError(f"{name}: must be at most {LARGEST}, got {value!r}")
    return value
