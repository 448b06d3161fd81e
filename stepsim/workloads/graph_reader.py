"""From the nodes of a joint graph to the ops of a step: what is a view, what is split, where backward begins."""

from collections.abc import Iterator
from dataclasses import replace
from operator import getitem
from typing import Any

import torch
from torch._ops import OpOverload
from torch.fx import Node

from stepsim.errors import CaptureError
from stepsim.workloads.joint_graph import JointGraph
from stepsim.workloads.op import Phase, Role
from stepsim.workloads.program import View, ViewStep
from stepsim.workloads.step_builder import Call, StepBuilder, Value, map_kind, storage_of

_aten = torch.ops.aten

_SAME = (_aten.detach.default, _aten.alias.default)
"""Views that look at everything just as it is."""

_UNDECLARED_VIEWS = (_aten._unsafe_view.default,)
"""Calls that give a view although their schema does not say so."""

_GRADIENTS_OF_CONVOLUTION = (("data", frozenset({1})), ("filter", frozenset({2})), ("bias", frozenset({1, 2})))
"""Outputs of convolution_backward(dy, x, w, ...), and of which of x (1) and w (2) each needs the shape only."""

Values = dict[Node, dict[int, Value]]
"""What each node gives, by position; a node that gives one tensor gives it at position 0."""


def read_graph(
    joint: JointGraph, builder: StepBuilder, values: Values, constants: dict[int, torch.Tensor]
) -> Iterator[Node]:
    """Add an op for each call of ``joint`` that computes something, and give each node once its value is known.

    ``values`` starts with the placeholders. ``constants``, tensor index to value, gains those that the graph holds.
    """
    modules: dict[Node, str] = {}
    for node in joint.module.graph.nodes:
        modules[node] = _module_path(node, modules)
        if node.op == "get_attr":
            values[node] = _constant(joint, node, builder, constants)
        elif node.op == "call_function":
            if _phase(node) is Phase.BACKWARD:
                yield from _begin_backward(joint, builder, values)
            values[node] = _read_call(node, modules[node], builder, values)
            yield node
    yield from _begin_backward(joint, builder, values)


def _phase(node: Node) -> Phase:
    return Phase.BACKWARD if node.meta.get("partitioner_tag") == "is_backward" else Phase.FORWARD


def _module_path(node: Node, modules: dict[Node, str]) -> str:
    """Sums of gradients are traced outside of all modules: they go with what they add last."""
    path = node.meta.get("custom", {}).get("module")
    return str(path) if path is not None else next((modules[node] for node in node.all_input_nodes[::-1]), "")


def _constant(
    joint: JointGraph, node: Node, builder: StepBuilder, constants: dict[int, torch.Tensor]
) -> dict[int, Value]:
    value = getattr(joint.module, str(node.target))
    for tensor, known in constants.items():
        if known is value:
            return {0: Value(tensor, View(), node.meta["val"])}
    added = builder.tensor(str(node.target).removeprefix("_"), Role.BUFFER, node.meta["val"])
    constants[added.tensor] = value
    return {0: added}


def _begin_backward(joint: JointGraph, builder: StepBuilder, values: Values) -> Iterator[Node]:
    """The seed of the gradient is made from the loss, which has to be a tensor of its own."""
    if joint.tangent in values:
        return
    loss = values[joint.loss][0]
    tensor = builder.tensors[loss.tensor]
    if tensor.role is not Role.ACTIVATION or tensor.size_bytes != loss.fake.element_size():
        clone = Call(name="loss", phase=Phase.FORWARD, module="", function=_aten.clone.default, arguments=(loss,))
        values[joint.loss] = builder.add(clone)
        loss = values[joint.loss][0]
    seed = Call(name="seed", phase=Phase.BACKWARD, module="", function=_aten.ones_like.default, arguments=(loss,))
    values[joint.tangent] = builder.add(seed)
    yield joint.tangent


def _read_call(node: Node, module: str, builder: StepBuilder, values: Values) -> dict[int, Value]:
    if node.target is getitem:
        source, position = node.args
        assert isinstance(source, Node)
        assert isinstance(position, int)
        return {0: values[source][position]}
    if not isinstance(node.target, OpOverload):
        raise CaptureError(f"op {node.name!r}: {node.target} cannot be captured")
    arguments, keywords = map_kind(Node, lambda source: values[source][0], [node.args, node.kwargs])
    if _is_view(node):
        return _view(node, arguments, keywords)
    call = Call(
        name=node.name,
        phase=_phase(node),
        module=module,
        function=node.target,
        arguments=arguments,
        keywords=keywords,
        returned=node.meta["val"],
    )
    if node.target is _aten.convolution_backward.default:
        return _split_convolution(call, builder)
    return builder.add(call)


def _is_view(node: Node) -> bool:
    source = node.args[0] if node.args else None
    if not isinstance(source, Node) or not isinstance(source.meta["val"], torch.Tensor):
        return False
    function = node.target
    assert isinstance(function, OpOverload)
    declared = function.is_view or function in (*_SAME, *_UNDECLARED_VIEWS)
    return declared and all(storage_of(fake) == storage_of(source.meta["val"]) for fake in _fakes(node))


def _view(node: Node, arguments: list[Any], keywords: dict[str, Any]) -> dict[int, Value]:
    source, *rest = arguments
    if node.target in _SAME:
        return {0: source}
    several = not isinstance(node.meta["val"], torch.Tensor)
    assert isinstance(node.target, OpOverload)
    views = {}
    for position, fake in enumerate(_fakes(node)):
        step = ViewStep(node.target, tuple(rest), keywords, position if several else None)
        views[position] = Value(source.tensor, View((*source.view.steps, step)), fake)
    return views


def _fakes(node: Node) -> list[torch.Tensor]:
    value = node.meta["val"]
    return [value] if isinstance(value, torch.Tensor) else list(value)


def _split_convolution(call: Call, builder: StepBuilder) -> dict[int, Value]:
    """One op for each gradient that is wanted. Each is bitwise what the joint call gives."""
    *rest, wanted = call.arguments
    outputs: dict[int, Value] = {}
    for position, (part, unread) in enumerate(_GRADIENTS_OF_CONVOLUTION):
        if wanted[position]:
            mask = [place == position for place in range(3)]
            split = replace(
                call,
                name=f"{call.name}.{part}",
                part=part,
                arguments=(*rest, mask),
                unread=unread,
                returned=[fake if chosen else None for fake, chosen in zip(call.returned, mask, strict=True)],
            )
            outputs |= builder.add(split)
    return outputs
