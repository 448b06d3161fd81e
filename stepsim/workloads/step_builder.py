"""Ops and tensors of a workload, built one torch call at a time on fake tensors."""

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch._ops import OpOverload
from torch.utils.flop_counter import flop_registry

from stepsim.errors import CaptureError
from stepsim.workloads.op import Op, Phase, Role, Tensor, named_strides, signature_of
from stepsim.workloads.program import BiasCorrection, Blank, Operand, OpProgram, View, ViewStep

_REDUCED_WHERE_IT_LIES = (
    torch.ops.aten.binary_cross_entropy,
    torch.ops.aten.mse_loss,
    torch.ops.aten.smooth_l1_loss,
    torch.ops.aten.soft_margin_loss,
)
"""Losses whose kernels write the loss of each element first, and its sum into the same storage (ATen's Loss.cpp)."""


@dataclass(frozen=True, slots=True)
class Value:
    """What a call reads or gives: tensor ``tensor`` of the workload, seen through ``view``; ``fake`` has its layout."""

    tensor: int
    view: View
    fake: torch.Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One torch call of the step, with a `Value` wherever it takes a tensor. One that writes in place writes its first.

    ``part`` names the share of a split call. Tensors at the positions ``unread`` only lend their shape. ``returned``
    is what the call gives, as fake tensors, where that is known.
    """

    name: str
    phase: Phase
    module: str
    function: OpOverload[..., Any]
    arguments: Sequence[Any]
    keywords: Mapping[str, Any] = field(default_factory=dict)
    part: str = ""
    unread: frozenset[int] = frozenset()
    returned: Any = None

    @property
    def kind(self) -> str:
        packet = str(self.function.overloadpacket)
        return f"{packet}.{self.part}" if self.part else packet

    @property
    def in_place(self) -> bool:
        return bool(self.function._schema.is_mutable)

    def given(self) -> tuple[list[Any], dict[str, Any]]:
        """Arguments and keywords with `Blank` where nothing is read."""
        arguments = [
            map_kind(Value, _blank, argument) if position in self.unread else argument
            for position, argument in enumerate(self.arguments)
        ]
        return arguments, dict(self.keywords)

    def reads(self) -> list[Value]:
        """In the order in which the call takes them."""
        found: list[Value] = []
        map_kind(Value, found.append, [*self.given()])
        return found

    def results(self) -> dict[int, torch.Tensor]:
        """Fake outputs by position. What an output mask leaves out is missing."""
        if self.in_place:
            return {}
        returned = self.returned
        if returned is None:
            arguments, keywords = self._fakes()
            returned = self.function(*arguments, **keywords)
        sequence = [returned] if isinstance(returned, torch.Tensor) else returned
        return {position: fake for position, fake in enumerate(sequence) if fake is not None}

    def least_bytes(self) -> int:
        """What a storage that the call makes has at least, whatever the shape in it."""
        if self.function.overloadpacket not in _REDUCED_WHERE_IT_LIES:
            return 0
        predicted, target = (argument.fake for argument in self.arguments[:2])
        each: torch.Tensor = predicted + target
        return each.untyped_storage().nbytes()

    def flop(self) -> int:
        """As `torch.utils.flop_counter.FlopCounterMode` counts, but that the gradient of a grouped convolution's weight
        has the products of its groups only: there it counts those between all channels.
        """
        count = flop_registry.get(self.function.overloadpacket)
        if count is None:
            return 0
        arguments, keywords = self._fakes()
        counted: int = count(*arguments, **keywords, out_val=self.returned)
        return counted // self._groups_of_weight_gradient()

    def _groups_of_weight_gradient(self) -> int:
        """1 for any other call. The gradients of a convolution are calls of their own."""
        if self.function.overloadpacket is not torch.ops.aten.convolution_backward:
            return 1
        groups, (_, of_weight, _) = self.arguments[9], self.arguments[10]
        return int(groups) if of_weight else 1

    def _fakes(self) -> tuple[list[Any], dict[str, Any]]:
        arguments, keywords = map_kind(Value, lambda value: value.fake, [[*self.arguments], dict(self.keywords)])
        return arguments, keywords


class StepBuilder:
    """Grows the ops of a step in execution order, each beside the call that carries it out.

    ``suffix`` ends the name of each op: microbatches have the same ops.
    """

    def __init__(self) -> None:
        self.suffix = ""
        self.tensors: list[Tensor] = []
        self.ops: list[Op] = []
        self.programs: list[OpProgram] = []

    def tensor(self, name: str, role: Role, base: torch.Tensor, least_bytes: int = 0) -> Value:
        """A new storage, whose base value looks like ``base``; it has at least ``least_bytes``."""
        size_bytes = max(base.untyped_storage().nbytes(), least_bytes)
        shape = tuple(base.shape)
        tensor = Tensor(
            name=name,
            role=role,
            size_bytes=size_bytes,
            shape=shape,
            strides=named_strides(shape, base.stride()),
            dtype=dtype_name(base.dtype),
        )
        self.tensors.append(tensor)
        return Value(len(self.tensors) - 1, View(), base)

    def add(self, call: Call) -> dict[int, Value]:
        """The next op. Gives its outputs by their position in what the call returns."""
        call = replace(call, name=call.name + self.suffix)
        reads, results = call.reads(), call.results()
        _check_storages(call, reads, [*results.values()])
        numbers = {tensor: number for number, tensor in enumerate(dict.fromkeys(value.tensor for value in reads))}
        role = Role.ACTIVATION if call.phase is Phase.FORWARD else Role.GRADIENT
        several = len(results) > 1
        outputs = {
            position: self.tensor(f"{call.name}.{position}" if several else call.name, role, base, call.least_bytes())
            for position, base in results.items()
        }
        program = _program(call, numbers, results)
        self.programs.append(program)
        self.ops.append(self._describe(call, program, reads, outputs))
        return outputs

    def _describe(self, call: Call, program: OpProgram, reads: list[Value], outputs: Mapping[int, Value]) -> Op:
        inputs = tuple(dict.fromkeys(value.tensor for value in reads))
        written = [value.fake for value in (reads[:1] if call.in_place else outputs.values())]
        copies = call.function is torch.ops.aten.copy_.default
        text = _arguments_text(program)
        return Op(
            name=call.name,
            phase=call.phase,
            kind=call.kind,
            module=call.module,
            inputs=inputs,
            outputs=tuple(value.tensor for value in outputs.values()),
            mutates=inputs[:1] if call.in_place else (),
            flop=call.flop(),
            bytes_read=_touched_bytes(value.fake for value in reads[copies:]),
            bytes_written=_touched_bytes(written),
            input_shapes=tuple(self.tensors[tensor].shape for tensor in inputs),
            output_shapes=tuple(self.tensors[value.tensor].shape for value in outputs.values()),
            dtype=dtype_name(written[0].dtype),
            arguments=text,
            signature=signature_of(call.kind, text, (self.tensors[tensor] for tensor in inputs)),
            random=torch.Tag.nondeterministic_seeded in call.function.tags,
        )


def storage_of(fake: torch.Tensor) -> int:
    """Equal for views of one storage, as long as both live."""
    address: int = fake.untyped_storage()._cdata
    return address


def dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def map_kind(kind: type, change: Callable[[Any], Any], arguments: Any) -> Any:
    """``arguments`` with each instance of ``kind`` changed, in lists and dicts too; all sequences become lists."""
    if isinstance(arguments, kind):
        return change(arguments)
    if isinstance(arguments, list | tuple):
        return [map_kind(kind, change, item) for item in arguments]
    if isinstance(arguments, BiasCorrection):
        return replace(arguments, count=map_kind(kind, change, arguments.count))
    if isinstance(arguments, dict):
        return {name: map_kind(kind, change, item) for name, item in arguments.items()}
    return arguments


def _blank(value: Value) -> Value | Blank:
    """Only of a plain layout: from another one the call would take the layout of what it gives."""
    fake = value.fake
    return Blank(tuple(fake.shape), fake.dtype, fake.device) if fake.is_contiguous() else value


def _check_storages(call: Call, reads: list[Value], results: list[torch.Tensor]) -> None:
    """Each output must be a storage of its own, or liveness means nothing."""
    old = {storage_of(value.fake) for value in reads}
    new = [storage_of(fake) for fake in results]
    if old & set(new) or len(set(new)) < len(new):
        raise CaptureError(f"op {call.name!r}: {call.kind} gives tensors that share storage, which is not supported")


def _program(call: Call, numbers: Mapping[int, int], results: Mapping[int, torch.Tensor]) -> OpProgram:
    arguments, keywords = map_kind(Value, lambda value: Operand(numbers[value.tensor], value.view), [*call.given()])
    return OpProgram(function=call.function, arguments=tuple(arguments), keywords=keywords, results=tuple(results))


def _touched_bytes(fakes: Iterable[torch.Tensor]) -> int:
    """Elements behind the shapes, those repeated by a stride of zero once, and equal views of a storage once."""
    views = {(storage_of(fake), fake.storage_offset(), fake.shape, fake.stride()): fake for fake in fakes}
    return sum(
        fake.element_size() * math.prod(size for size, stride in zip(fake.shape, fake.stride(), strict=True) if stride)
        for fake in views.values()
    )


def _arguments_text(program: OpProgram) -> str:
    body = [program.function._overloadname, program.arguments, program.keywords]
    return json.dumps(body, default=_plain, separators=(",", ":"))


def _plain(value: object) -> Any:
    """JSON of what torch calls take beyond numbers and text."""
    match value:
        case Operand():
            return {"input": value.number, "view": value.view.steps} if value.view.steps else {"input": value.number}
        case ViewStep():
            return [str(value.function), *value.arguments, *([value.keywords] if value.keywords else []), value.item]
        case BiasCorrection():
            return {"count": value.count, "correction": [value.beta, value.power, value.scale]}
        case Blank():
            return {"blank": [value.shape, dtype_name(value.dtype)]}
        case torch.dtype():
            return dtype_name(value)
        case torch.device() | torch.layout() | torch.memory_format():
            return str(value)
        case _:
            raise CaptureError(f"a call with an argument of type {type(value).__name__} cannot be captured")
