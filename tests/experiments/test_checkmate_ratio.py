"""The control experiment on Checkmate: layers as nodes, Chen's rule as a table, and its smallest run."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from experiments import checkmate_ratio
from experiments.control_layers import cut_nodes, forward_nodes, kept_of, layer_problem, layers_of
from stepsim.strategies.memory.remat.problem import Recomputation, peak_bytes, with_least_work
from stepsim.workloads import Op, Phase, Role, Tensor, Workload


def tensor(name: str, role: Role, size_bytes: int, dtype: str = "float32") -> Tensor:
    return Tensor(name=name, role=role, size_bytes=size_bytes, shape=(size_bytes // 4,), dtype=dtype)


def op(phase: Phase, kind: str, module: str, reads: tuple[int, ...], writes: tuple[int, ...], flop: int = 0) -> Op:
    return Op(
        name=f"{kind} {module}",
        phase=phase,
        kind=kind,
        module=module,
        inputs=reads,
        outputs=writes,
        flop=flop,
        bytes_read=0,
        bytes_written=0,
        input_shapes=(),
        output_shapes=((3,),) * len(writes),
        dtype="float32",
        arguments="",
        signature=f"{kind} {module}",
    )


def step() -> Workload:
    """conv, ReLU, pool (with indices) and loss, and back; the ReLU joins the convolution."""
    tensors = (
        tensor("x", Role.INPUT, 400),
        tensor("w", Role.PARAMETER, 40),
        tensor("conv", Role.ACTIVATION, 80),
        tensor("relu", Role.ACTIVATION, 80),
        tensor("pool", Role.ACTIVATION, 20),
        tensor("where", Role.ACTIVATION, 160, "int64"),
        tensor("loss", Role.ACTIVATION, 4),
        tensor("dpool", Role.GRADIENT, 20),
        tensor("drelu", Role.GRADIENT, 80),
        tensor("dconv", Role.GRADIENT, 80),
        tensor("dw", Role.GRADIENT, 40),
    )
    forward, backward = Phase.FORWARD, Phase.BACKWARD
    ops = (
        op(forward, "aten.convolution", "conv", (0, 1), (2,), flop=1000),
        op(forward, "aten.relu", "relu", (2,), (3,)),
        op(forward, "aten.max_pool2d_with_indices", "pool", (3,), (4, 5)),
        op(forward, "aten._log_softmax", "", (4,), (6,)),
        op(backward, "aten._log_softmax_backward_data", "", (6, 4), (7,)),
        op(backward, "aten.max_pool2d_with_indices_backward", "pool", (7, 3, 5), (8,)),
        op(backward, "aten.threshold_backward", "relu", (8, 3), (9,)),
        op(backward, "aten.convolution_backward.filter", "conv", (9, 0), (10,), flop=1000),
    )
    return Workload(name="step", batch=1, tensors=tensors, ops=ops, loss=6, gradients={1: 10})


def mirrored(num_layers: int) -> Recomputation:
    """A chain: each layer one second and one byte, its gradient two seconds and no byte.

    Forward node i reads i - 1; the gradient of i reads i - 1, i and the gradient of i + 1.
    """
    forward = [(node - 1,) if node else () for node in range(num_layers)]
    backward = [
        tuple(sorted({*((node - 1,) if node else ()), node, *((last,) if last >= num_layers else ())}))
        for last, node in enumerate(reversed(range(num_layers)), start=num_layers - 1)
    ]
    size = 2 * num_layers
    return Recomputation(
        seconds=np.array([1.0] * num_layers + [2.0] * num_layers),
        size_bytes=np.array([1] * num_layers + [0] * num_layers),
        parents=[*forward, *backward],
        staying_bytes=np.zeros(size, np.int64),
        last_run=np.full(size, size - 1),
        fixed_bytes=0,
    )


def test_a_relu_joins_the_convolution_before_it_and_a_pooling_does_not() -> None:
    assert layers_of(step()) == {"conv": 0, "relu": 0, "pool": 1, "": 2}
    assert forward_nodes(step()) == 3


def test_a_batch_counter_starts_no_layer() -> None:
    workload = step()
    counter = op(Phase.FORWARD, "aten.add", "norm", (11,), (12,))
    tensors = (*workload.tensors, tensor("count", Role.BUFFER, 4), tensor("counted", Role.ACTIVATION, 4))
    ops = (*workload.ops[:2], counter, *workload.ops[2:])

    assert layers_of(replace(workload, tensors=tensors, ops=ops))["norm"] == 0


def test_a_nodes_result_is_what_others_read_without_indices_and_gradients_of_weights() -> None:
    problem = layer_problem(step())

    assert problem.size_bytes.tolist() == [80, 20, 4, 20, 80, 0]
    assert problem.parents == [(), (0,), (1,), (1, 2), (0, 1, 3), (0, 4)]
    assert problem.fixed_bytes == 400 + 40 + 40


def test_a_layer_costs_its_flop_and_what_it_writes_without_products_and_its_gradient_twice_as_much() -> None:
    """ReLU writes 3 values, the pooling 3 and 3 indices, the loss 3."""
    assert layer_problem(step()).seconds.tolist() == [1003, 6, 3, 6, 12, 2006]


@pytest.mark.parametrize("num_layers", [4, 9, 16])
def test_without_checkpoints_everything_is_the_last_segment_and_stays(num_layers: int) -> None:
    problem = mirrored(num_layers)

    found = with_least_work(problem, kept_of(problem, num_layers, frozenset()))

    assert found.seconds(problem) == 3 * num_layers


@pytest.mark.parametrize(("num_layers", "every"), [(9, 3), (16, 4), (12, 5)])
def test_checkpoints_on_a_chain_run_what_lies_between_them_once_more(num_layers: int, every: int) -> None:
    """But for what comes after the last one, where the backward pass begins."""
    problem = mirrored(num_layers)
    checkpoints = frozenset(range(every - 1, num_layers, every))

    found = with_least_work(problem, kept_of(problem, num_layers, checkpoints))

    between = max(checkpoints) + 1 - len(checkpoints)
    assert found.seconds(problem) == 3 * num_layers + between
    assert found.computed.sum(axis=0).max() == 2


def test_all_layers_checkpoints_run_everything_once() -> None:
    problem = mirrored(6)

    found = with_least_work(problem, kept_of(problem, 6, frozenset(range(6))))

    assert found.seconds(problem) == 18
    assert peak_bytes(problem, found) == 6


def test_a_chain_can_be_cut_everywhere_and_a_shortcut_at_its_ends_only() -> None:
    """With 0 -> 3 besides, nothing between 0 and 3 is all that is read later."""
    chain = mirrored(6)
    parents = [*chain.parents]
    parents[3] = (0, 2)

    assert cut_nodes(chain, 6) == [0, 1, 2, 3, 4, 5]
    assert cut_nodes(replace(chain, parents=parents), 6) == [0, 3, 4, 5]


def test_the_square_root_rule_keeps_every_third_of_nine() -> None:
    problem = mirrored(9)

    found = checkmate_ratio.square_root(problem, 9)

    assert found.computed.sum(axis=0)[:9].tolist() == [2, 2, 1, 2, 2, 1, 2, 2, 1]


def test_the_greedy_walk_with_no_bound_keeps_everything() -> None:
    problem = mirrored(9)

    costs = [schedule.seconds(problem) for schedule in checkmate_ratio.greedy(problem, 9)]

    assert costs[0] == 27
    assert min(costs[1:]) > 27


@pytest.mark.parametrize(("share", "budget_bytes"), [(0.0, 2), (0.5, 4), (1.0, 6)])
def test_budgets_lie_between_what_a_gradient_reads_and_what_keeping_everything_takes(share, budget_bytes) -> None:
    """Of six layers of a byte each a gradient reads two."""
    assert checkmate_ratio.budget(mirrored(6), 6, share) == budget_bytes


def test_a_mean_is_geometric_and_over_the_budgets_at_which_a_rule_fits() -> None:
    table = pd.DataFrame({"model": "m", "bound": [1.0, 1.0, 2.0], "rule": [np.nan, 2.0, 16.0]})

    assert checkmate_ratio.mean_ratio(table, "m", "rule") == pytest.approx(4.0)


def test_a_rule_that_fits_nowhere_holds_nothing() -> None:
    columns = {rule: [1.0] for rule in checkmate_ratio.RULES} | {"rounded": [np.nan]}
    table = pd.DataFrame({"model": "vgg16", "complete": True} | columns)

    found = {claim.claim: claim for claim in checkmate_ratio.claims(table, ["vgg16"])}

    rounded = found["vgg16: rounded over the optimum is from 1.0 to 1.06"]
    assert (rounded.ours, rounded.holds) == (None, False)
    assert found["vgg16: rounded once over the optimum is from 1.0 to 1.06"].holds


def test_the_smallest_run_goes_through_every_part(tmp_path) -> None:
    claims = checkmate_ratio.run(tmp_path, quick=True)

    assert {path.name for path in tmp_path.iterdir()} == {"checkmate_ratio.csv", "checkmate_ratio.png"}
    assert any("square root" in claim.claim and claim.holds for claim in claims)
