"""Program: the workload together with the torch calls that carry out its ops.

Each op runs by itself, on whatever buffers it is given: recomputing, swapping or reordering means to run the same
`OpProgram` on other buffers. What crosses from op to op are *base values*: one tensor for each storage, as its producer
made it. Views are taken inside the op that reads through them, so that a view never outlives the buffer behind it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import torch
from torch._ops import OpOverload
from torch.utils._python_dispatch import _disable_current_modes

from stepsim.workloads.workload import Workload


@dataclass(frozen=True, slots=True)
class ViewStep:
    """One call that looks at the same storage in another way. ``item`` picks from calls that give several views."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...] = ()
    keywords: Mapping[str, Any] = field(default_factory=dict)
    item: int | None = None


@dataclass(frozen=True, slots=True)
class View:
    """From the base value of a storage to what is read of it."""

    steps: tuple[ViewStep, ...] = ()

    def __call__(self, base: torch.Tensor) -> torch.Tensor:
        value: Any = base
        for step in self.steps:
            value = step.function(value, *step.arguments, **step.keywords)
            if step.item is not None:
                value = value[step.item]
        seen: torch.Tensor = value
        return seen


@dataclass(frozen=True, slots=True)
class Operand:
    """An argument that is input ``number`` of the op, seen through ``view``."""

    number: int
    view: View


@dataclass(frozen=True, slots=True)
class Blank:
    """An argument of which only the shape is used: one zero, seen as ``shape``, so that it takes no memory."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device

    def view(self) -> torch.Tensor:
        return _zero(self.dtype, self.device).expand(self.shape)


@dataclass(frozen=True, slots=True)
class BiasCorrection:
    """An argument that Adam computes on the host from how often it has updated a parameter, which ``count`` says.

    ``scale / (1 - beta**count)**power``, in the order of operations of torch/optim/adam.py. ``count`` is an `Operand`
    of one element.
    """

    count: Any
    beta: float
    power: float = 1.0
    scale: float | None = None

    def of(self, count: float) -> float:
        correction: float = (1 - self.beta**count) ** self.power
        return correction if self.scale is None else self.scale / correction


@cache
def _zero(dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """Made once, and outside of any mode that follows what a step allocates."""
    with _disable_current_modes():
        return torch.zeros(1, dtype=dtype, device=device)


@dataclass(frozen=True, slots=True, kw_only=True)
class OpProgram:
    """The call that carries out one op. ``results`` are the positions of its outputs in what ``function`` returns.

    An op that writes in place has no results.
    """

    function: OpOverload[..., Any]
    arguments: tuple[Any, ...]
    keywords: Mapping[str, Any]
    results: tuple[int, ...]

    def run(self, inputs: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
        """Base values of the op's outputs, in order, from those of its inputs, in order.

        Keeps no reference to either. A random op draws from the current generator.
        """
        with torch.no_grad():
            arguments = [_given(argument, inputs) for argument in self.arguments]
            keywords = {name: _given(argument, inputs) for name, argument in self.keywords.items()}
            returned = self.function(*arguments, **keywords)
        values = (returned,) if isinstance(returned, torch.Tensor) else returned
        return tuple(values[position] for position in self.results)


@dataclass(frozen=True, eq=False, kw_only=True)
class Program:
    """A workload that can be run: ``ops[i].run`` carries out ``workload.ops[i]``.

    The mappings say, for the tensors that come from outside, where their values are found: ``parameters`` and
    ``buffers`` by attribute path in the module, ``inputs`` by position among the flattened inputs, ``states`` by
    parameter and key in the optimizer's state (absent there means zeros), ``constants`` right here. A buffer is
    anything the module holds without training it: registered buffers and plain tensor attributes.

    The loss and the gradients are views of their tensors: ``loss_view`` and, for each key of ``workload.gradients``,
    ``gradient_views``.
    """

    workload: Workload
    ops: tuple[OpProgram, ...]
    parameters: Mapping[int, str]
    buffers: Mapping[int, str]
    inputs: Mapping[int, int]
    states: Mapping[int, tuple[str, str]]
    constants: Mapping[int, torch.Tensor]
    loss_view: View
    gradient_views: Mapping[int, View]


def _given(argument: Any, inputs: Sequence[torch.Tensor]) -> Any:
    if isinstance(argument, Operand):
        return argument.view(inputs[argument.number])
    if isinstance(argument, Blank):
        return argument.view()
    if isinstance(argument, BiasCorrection):
        return argument.of(_given(argument.count, inputs).item())
    if isinstance(argument, list):
        return [_given(item, inputs) for item in argument]
    return argument
