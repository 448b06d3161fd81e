"""One functional graph of forward and backward, traced on fake tensors: nothing runs."""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch._functorch._aot_autograd.descriptors import (
    AOTInput,
    GradAOTOutput,
    InputMutationAOTOutput,
    PlainAOTInput,
    PlainAOTOutput,
    TangentAOTInput,
)
from torch._functorch.aot_autograd import aot_export_joint_with_descriptors
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx import GraphModule, Node
from torch.fx.traceback import annotate, preserve_node_meta
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

from stepsim.errors import CaptureError

Loss = Callable[[Sequence[torch.Tensor]], torch.Tensor]
"""The loss as a function of all tensors of the step: parameters, buffers, inputs."""


@dataclass(frozen=True, kw_only=True)
class JointGraph:
    """Integers are positions among the tensors that the loss was traced with; ``tangent`` is the gradient's seed."""

    module: GraphModule
    placeholders: Mapping[int, Node]
    tangent: Node
    loss: Node
    gradients: Mapping[int, Node]
    mutations: Mapping[int, Node]


def trace_joint(
    loss: Loss, tensors: Sequence[torch.Tensor], module: torch.nn.Module, mode: FakeTensorMode
) -> JointGraph:
    """Trace ``loss`` and its gradient. ``tensors`` are fakes of ``mode``; nodes learn where in ``module`` they are."""
    with ExitStack() as stack, torch.enable_grad(), mode, preserve_node_meta(), _paths_annotated(module), _quiet():
        joint = aot_export_joint_with_descriptors(stack, _LossModule(loss), tuple(tensors))
    graph_module = joint.graph_module
    graph = graph_module.graph
    for node in list(graph.nodes):
        if node.op == "call_function" and str(node.target).startswith("aten._assert"):
            graph.erase_node(node)
    graph.eliminate_dead_code()
    return _with_roles(graph_module)


class _LossModule(torch.nn.Module):
    """Takes all tensors as plain inputs, so that the graph has no other kind."""

    def __init__(self, loss: Loss) -> None:
        super().__init__()
        self._loss = loss

    def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor]:
        return (self._loss(tensors),)


def _with_roles(module: GraphModule) -> JointGraph:
    placeholders, tangents = {}, []
    for node in module.graph.find_nodes(op="placeholder"):
        match node.meta["desc"]:
            case TangentAOTInput(output=PlainAOTOutput()):
                tangents.append(node)
            case TangentAOTInput():
                raise CaptureError("it writes a value that requires a gradient into a parameter or buffer in place")
            case described:
                placeholders[_position(described)] = node
    losses, gradients, mutations = [], {}, {}
    (output,) = module.graph.find_nodes(op="output")
    for node, described in zip(output.args[0], output.meta["desc"], strict=True):
        match described:
            case PlainAOTOutput():
                losses.append(node)
            case GradAOTOutput(grad_of=source) if node is not None:
                gradients[_position(source)] = node
            case InputMutationAOTOutput(mutated_input=source):
                mutations[_position(source)] = node
    if not tangents:
        raise CaptureError("its loss is one of its own tensors, with nothing computed")
    (tangent,), (loss,) = tangents, losses
    return JointGraph(
        module=module, placeholders=placeholders, tangent=tangent, loss=loss, gradients=gradients, mutations=mutations
    )


def _position(described: AOTInput) -> int:
    if not isinstance(described, PlainAOTInput):
        raise CaptureError(f"tensors that share storage are not supported ({described.expr()})")
    return described.idx


@contextmanager
def _paths_annotated(module: torch.nn.Module) -> Iterator[None]:
    """Every node traced inside a submodule gets that submodule's path, and so do the backward nodes of it."""
    paths = {submodule: path for path, submodule in module.named_modules()}
    open_paths: list[Any] = []

    def enter(submodule: torch.nn.Module, _: Any) -> None:
        if submodule in paths:
            open_paths.append(annotate({"module": paths[submodule]}))
            open_paths[-1].__enter__()

    def leave(submodule: torch.nn.Module, *_: Any) -> None:
        if submodule in paths:
            open_paths.pop().__exit__(None, None, None)

    before = register_module_forward_pre_hook(enter)
    after = register_module_forward_hook(leave, always_call=True)
    try:
        yield
    finally:
        before.remove()
        after.remove()


@contextmanager
def _quiet() -> Iterator[None]:
    """Torch logs a failed trace before it raises; the raised error says it all."""
    logger = logging.getLogger("torch")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)
