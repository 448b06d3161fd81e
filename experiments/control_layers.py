"""Layers as nodes: the captured ops of a layer and what hangs on it as one, forward and backward.

The graphs of Checkmate's paper are layers of Keras; a captured workload has more ops, and only one time limit.

    conv -> norm -> relu -> pool -> linear -> dropout -> loss        forward ops
    [      layer       ] [pool] [      layer       ] [loss]          forward nodes; backward nodes mirror them
"""

from collections.abc import Mapping
from math import prod

import numpy as np

from experiments.control_setting import GRADIENT_OVER_FORWARD
from stepsim.strategies.memory.remat.problem import Recomputation, Table
from stepsim.workloads import Op, Phase, Role, Workload
from stepsim.workloads.storage import NORM, RELU

LOSS = "aten.nll_loss_forward"

_JOINS = (NORM, RELU, "aten.native_dropout", LOSS)
"""Kinds of forward ops that belong to the layer before them."""

_COUNTED_DTYPE = "float32"
"""Of results: indices of a pooling and masks of a dropout are left out, because the paper's layers have none."""


def layers_of(workload: Workload) -> dict[str, int]:
    """Module to the number of its layer: what joins a layer (norm, ReLU, dropout) stands in modules of its own."""
    layer, found = -1, dict[str, int]()
    for op in workload.ops:
        if op.phase is Phase.FORWARD and op.module not in found:
            layer += not _joins(workload, op)
            found[op.module] = max(layer, 0)
    return found


def _joins(workload: Workload, op: Op) -> bool:
    """What has no activation and no input of the step among its inputs only counts batches."""
    roles = {workload.tensors[tensor].role for tensor in op.inputs}
    return op.kind in _JOINS or not roles & {Role.ACTIVATION, Role.INPUT}


def layer_problem(workload: Workload) -> Recomputation:
    """One node for each layer forward, and one for each of its gradients, in order of their first ops.

    A node's result are its values that other nodes read, but for gradients of parameters, which lie on the device all
    the time, as parameters do. It costs its FLOP, or one for each value that an op without products writes; a gradient
    costs `GRADIENT_OVER_FORWARD` times its layer. Every node may run twice: dropout draws the same again.
    """
    layer, node_of, costs = layers_of(workload), dict[tuple[Phase, int], int](), list[float]()
    place: dict[int, int] = {}
    for index, op in enumerate(workload.ops):
        if op.phase is not Phase.UPDATE:
            key = (op.phase, layer[op.module])
            place[index] = node_of.setdefault(key, len(node_of))
            costs += [0.0] * (len(node_of) - len(costs))
            costs[place[index]] += (op.flop or sum(map(prod, op.output_shapes))) * (op.phase is Phase.FORWARD)
    for (phase, number), node in node_of.items():
        if phase is Phase.BACKWARD:
            costs[node] = GRADIENT_OVER_FORWARD * costs[node_of[Phase.FORWARD, number]]
    return _recomputation(workload, place, costs)


def _recomputation(workload: Workload, place: Mapping[int, int], costs: list[float]) -> Recomputation:
    read_by = {
        tensor: {place[op] for op in ops if op in place} - {place.get(workload.producer.get(tensor, -1), -1)}
        for tensor, ops in workload.consumers.items()
    }
    weights = {*workload.gradients.values()}
    made = {tensor: place[op] for tensor, op in workload.producer.items() if op in place and read_by[tensor]}
    sizes, parents = [0] * len(costs), [set[int]() for _ in costs]
    for tensor, node in made.items():
        counts = workload.tensors[tensor].dtype == _COUNTED_DTYPE and tensor not in weights
        sizes[node] += workload.tensors[tensor].size_bytes * counts
        for reader in read_by[tensor]:
            assert node < reader, "a layer reads what a later one makes"
            parents[reader].add(node)
    return Recomputation(
        seconds=np.array(costs),
        size_bytes=np.array(sizes, dtype=np.int64),
        staying_bytes=np.zeros(len(costs), np.int64),
        parents=[tuple(sorted(nodes)) for nodes in parents],
        last_run=np.full(len(costs), len(costs) - 1),
        fixed_bytes=_fixed_bytes(workload),
    )


def _fixed_bytes(workload: Workload) -> int:
    """The input, parameters and buffers, and a gradient for each parameter."""
    outside = (Role.INPUT, Role.PARAMETER, Role.BUFFER)
    return sum(t.size_bytes for t in workload.tensors if t.role in outside) + sum(
        workload.tensors[gradient].size_bytes for gradient in workload.gradients.values()
    )


def forward_nodes(workload: Workload) -> int:
    """How many of the nodes, the first ones, are of the forward pass."""
    return len({*layers_of(workload).values()})


def cut_nodes(problem: Recomputation, num_forward: int) -> list[int]:
    """Forward nodes whose result is all that later forward nodes read."""
    last = [
        max((child for child in children if child < num_forward), default=node)
        for node, children in enumerate(problem.children[:num_forward])
    ]
    return [node for node in range(num_forward) if all(reader <= node for reader in last[:node])]


def kept_of(problem: Recomputation, num_forward: int, checkpoints: frozenset[int]) -> Table:
    """Chen's rule as a table of what is kept: shape (nodes, nodes), as `Schedule` has it.

    Checkpoints and gradients stay until their last reader; so does what comes after the last checkpoint, because the
    backward pass begins there. Every other result stays until its last reader of the forward pass, is there again from
    when the backward pass first reads something of its segment, and then stays.
    """
    size = len(problem)
    kept, stage = np.zeros((size, size), np.bool_), np.arange(size)
    last = [max(children, default=node) for node, children in enumerate(problem.children)]
    again = _first_backward_reader(problem, num_forward, checkpoints)
    for node in range(size):
        if node in checkpoints or node > max(checkpoints, default=-1):
            kept[:, node] = (node < stage) & (stage <= last[node])
        else:
            forward = max((child for child in problem.children[node] if child < num_forward), default=node)
            kept[:, node] = ((node < stage) & (stage <= forward)) | ((again[node] < stage) & (stage <= last[node]))
    return kept


def _first_backward_reader(problem: Recomputation, num_forward: int, checkpoints: frozenset[int]) -> list[int]:
    """For each forward node the first stage of the backward pass that reads a result of its segment."""
    first, begin = [len(problem)] * num_forward, 0
    for end in sorted(checkpoints):
        segment = range(begin, end)
        readers = [child for node in segment for child in problem.children[node] if child >= num_forward]
        for node in segment:
            first[node] = min(readers, default=len(problem))
        begin = end + 1
    return first
