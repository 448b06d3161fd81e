"""What a user hands over to be captured or run: a function from a batch size to one training step."""

import importlib
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.optim import Optimizer

from stepsim.errors import CaptureError, StepsimError
from stepsim.workloads.optimizers import check_optimizer
from stepsim.workloads.step_function import Microbatches

Factory = Callable[[int], Any]
"""``factory(batch)`` gives a module that returns its loss, its inputs (a tensor, a tuple or `Microbatches` of them),
and SGD, Adam, AdamW or None."""

_Convert = Callable[[torch.Tensor], torch.Tensor]


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """What a factory made. ``module(*inputs)`` is the loss, of each of `Microbatches`."""

    module: torch.nn.Module
    inputs: tuple[Any, ...]
    optimizer: Optimizer | None


def load_factory(path: str) -> Factory:
    """The function that ``package.module:factory`` names; the working directory is searched too.

    Raises `StepsimError` where there is none.
    """
    module_name, _, attribute = path.partition(":")
    if not (module_name and attribute):
        raise StepsimError(f"a factory is given as package.module:factory, got {path!r}")
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        module = importlib.import_module(module_name)
    except Exception as error:
        raise StepsimError(f"factory {path!r}: {module_name} cannot be imported: {one_line(error)}") from error
    factory: Factory | None = getattr(module, attribute, None)
    if not callable(factory):
        raise StepsimError(f"factory {path!r}: {module_name} has no function {attribute!r}")
    return factory


def build_step(factory: Factory, batch: int) -> Step:
    """Call ``factory`` and check what it gives. Raises `CaptureError`."""
    name = getattr(factory, "__name__", "factory")
    try:
        made = factory(batch)
    except Exception as error:
        raise CaptureError(f"{name}({batch}) failed: {one_line(error)}") from error
    if not (isinstance(made, tuple) and len(made) == 3):
        raise CaptureError(f"{name}: must give (module, inputs, optimizer or None), got {type(made).__name__}")
    module, inputs, optimizer = made
    if not isinstance(module, torch.nn.Module):
        raise CaptureError(f"{name}: must give a torch.nn.Module first, got {type(module).__name__}")
    if isinstance(inputs, torch.Tensor):
        inputs = (inputs,)
    if not isinstance(inputs, tuple | list):
        raise CaptureError(f"{name}: inputs must be a tensor or a tuple, got {type(inputs).__name__}")
    if optimizer is not None:
        check_optimizer(optimizer)
    return Step(module, inputs if isinstance(inputs, Microbatches) else tuple(inputs), optimizer)


def build_fake_step(factory: Factory, batch: int) -> Step:
    """As `build_step`, with fake tensors: nothing is allocated."""
    with FakeTensorMode(allow_non_fake_inputs=True), _fakes_convertible():
        return build_step(factory, batch)


def one_line(error: BaseException) -> str:
    """The kind of an error and the first line of what it says, at most 200 characters."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}"[:200] if lines else type(error).__name__


@contextmanager
def _fakes_convertible() -> Iterator[None]:
    """Lets modules of fake tensors take ``.to(...)`` and ``.double()``, by putting new parameters into place.

    Torch would exchange the contents of the old ones, and refuses that to fake tensors because their mode keeps weak
    references to them (``torch.nn.Module._apply`` and ``torch.utils.swap_tensors`` of torch 2.13).
    """
    made: dict[tuple[torch.nn.Parameter, _Convert], torch.nn.Parameter] = {}

    def converted(parameter: torch.nn.Parameter, convert: _Convert) -> torch.nn.Parameter:
        key = (parameter, convert)
        if key not in made:
            with torch.no_grad():
                value = convert(parameter)
            made[key] = parameter if value is parameter else torch.nn.Parameter(value, parameter.requires_grad)
        return made[key]

    def apply(self: torch.nn.Module, convert: _Convert, recurse: bool = True) -> torch.nn.Module:
        for child in self.children() if recurse else ():
            child._apply(convert)  # type: ignore[no-untyped-call]
        for name, parameter in self._parameters.items():
            self._parameters[name] = None if parameter is None else converted(parameter, convert)
        for name, buffer in self._buffers.items():
            self._buffers[name] = None if buffer is None else convert(buffer)
        return self

    original = torch.nn.Module._apply
    torch.nn.Module._apply = apply  # type: ignore[method-assign]
    try:
        yield
    finally:
        torch.nn.Module._apply = original  # type: ignore[method-assign]
