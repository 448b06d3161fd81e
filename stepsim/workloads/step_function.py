"""A training step as a function of all its tensors, with shapes instead of values."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch._guards import detect_fake_mode
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.func import functional_call
from torch.utils._pytree import register_pytree_node, tree_flatten, tree_unflatten

from stepsim.errors import CaptureError


class Microbatches(tuple[Any, ...]):
    """The inputs of a step that goes through its batch piece by piece: a tensor or a tuple for each piece.

    The module runs forward and backward on each; the gradients add up, and the optimizer updates once. The loss of the
    step is the sum: a module whose loss is a mean divides it by the number of microbatches, if the gradient is to be
    that of the whole batch.
    """


register_pytree_node(Microbatches, lambda pieces: (list(pieces), None), lambda pieces, _: Microbatches(pieces))


def microbatches_of(inputs: Sequence[Any]) -> tuple[tuple[Any, ...], ...]:
    """The arguments of the module for each of its runs; most steps have one."""
    if not isinstance(inputs, Microbatches):
        return (tuple(inputs),)
    return tuple(tuple(piece) if isinstance(piece, tuple | list) else (piece,) for piece in inputs)


class StepFunction:
    """``module(*inputs)`` as a function of tensors: the parameters, then the buffers, then the inputs.

    A parameter known by several names is one tensor. Plain tensor attributes of the modules count as buffers. Inputs
    may be nested; what is not a tensor stays as it is. Of `Microbatches` the loss is that of the first. Raises
    `CaptureError` for microbatches that differ.
    """

    def __init__(self, module: torch.nn.Module, inputs: Sequence[Any]) -> None:
        self.module = module
        self.parameters: Mapping[str, torch.Tensor] = dict(module.named_parameters())
        self._attributes = dict(_tensor_attributes(module))
        self.buffers: Mapping[str, torch.Tensor] = {**dict(module.named_buffers()), **self._attributes}
        self._pieces = [tree_flatten(piece) for piece in microbatches_of(inputs)]
        for number, piece in enumerate(self._pieces):
            if _layout(*piece) != _layout(*self._pieces[0]):
                raise CaptureError(f"microbatch {number} is not like the first: all must have the same shapes")

    @property
    def num_microbatches(self) -> int:
        return len(self._pieces)

    @property
    def num_traced(self) -> int:
        """How many tensors `loss` takes: the inputs of one microbatch."""
        return len(self.parameters) + len(self.buffers) + len(self.inputs) // self.num_microbatches

    @property
    def inputs(self) -> Mapping[int, torch.Tensor]:
        """By position among the flattened inputs of all microbatches."""
        leaves = (leaf for piece, _ in self._pieces for leaf in piece)
        return {place: leaf for place, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)}

    def fake_tensors(self) -> tuple[FakeTensorMode, list[torch.Tensor]]:
        """Stand-ins with the same layout, each with a storage of its own. Only parameters can require a gradient."""
        trained = [tensor.requires_grad for tensor in self.parameters.values()]
        others = [*self.buffers.values(), *self.inputs.values()]
        tensors = [*self.parameters.values(), *others]
        mode = detect_fake_mode(tensors) or FakeTensorMode(allow_non_fake_inputs=True)
        with mode:
            return mode, [
                torch.empty_strided(
                    tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device
                ).requires_grad_(requires_grad)
                for tensor, requires_grad in zip(tensors, trained + [False] * len(others), strict=True)
            ]

    def loss(self, tensors: Sequence[torch.Tensor]) -> torch.Tensor:
        """Raises `CaptureError` if the module does not return a scalar that depends on a trained parameter."""
        rest = iter(tensors)
        held = {tensor: next(rest) for tensor in self.parameters.values()}
        named = {name: next(rest) for name in self.buffers}
        first, structure = self._pieces[0]
        leaves = [next(rest) if isinstance(leaf, torch.Tensor) else leaf for leaf in first]
        aliases = {name: held[tensor] for name, tensor in _parameter_names(self.module)}
        attributes = {name: named.pop(name) for name in self._attributes}
        with _attributes_set(self.module, attributes):
            arguments = tree_unflatten(leaves, structure)
            returned = functional_call(self.module, aliases | named, arguments, tie_weights=False)
        return _checked_loss(returned)


def _layout(leaves: Sequence[Any], structure: Any) -> list[Any]:
    """What a trace depends on: shapes, strides and dtypes of tensors, and all else as it is."""
    tensors = (isinstance(leaf, torch.Tensor) for leaf in leaves)
    return [structure] + [
        (leaf.shape, leaf.stride(), leaf.dtype) if is_tensor else leaf
        for leaf, is_tensor in zip(leaves, tensors, strict=True)
    ]


def _checked_loss(returned: object) -> torch.Tensor:
    if isinstance(returned, tuple | list) and len(returned) == 1:
        returned = returned[0]
    if not isinstance(returned, torch.Tensor):
        raise CaptureError(f"must return its loss as one tensor, got {type(returned).__name__}")
    if returned.numel() != 1 or not returned.is_floating_point():
        raise CaptureError(f"must return a scalar loss, got shape {tuple(returned.shape)} of {returned.dtype}")
    if not returned.requires_grad:
        raise CaptureError("its loss does not depend on any parameter that requires a gradient")
    return returned


def _parameter_names(module: torch.nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Every name of every parameter, once for each module that holds it."""
    for path, submodule in module.named_modules():
        for name, parameter in submodule.named_parameters(recurse=False, remove_duplicate=False):
            yield f"{path}.{name}".lstrip("."), parameter


def _tensor_attributes(module: torch.nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    for path, submodule in module.named_modules():
        for name, value in vars(submodule).items():
            if isinstance(value, torch.Tensor):
                yield f"{path}.{name}".lstrip("."), value


@contextmanager
def _attributes_set(module: torch.nn.Module, values: Mapping[str, torch.Tensor]) -> Iterator[None]:
    """Set plain attributes for the time being. Afterwards every attribute is what it was, whatever the module wrote."""
    before = {submodule: dict(vars(submodule)) for submodule in module.modules()}
    try:
        for path, value in values.items():
            owner, _, name = path.rpartition(".")
            vars(module.get_submodule(owner))[name] = value
        yield
    finally:
        for submodule, attributes in before.items():
            vars(submodule).clear()
            vars(submodule).update(attributes)
