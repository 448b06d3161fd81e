"""A step as arrays: what is a layer, what a stage, and what stays however a policy decides."""

from dataclasses import replace

import numpy as np
import pytest
from home_rules import named_prices, sized
from hypothesis import given
from random_workloads import workloads
from small_workloads import chain, op, tensor

from stepsim.strategies.memory.home.building import feature_maps, home_problem
from stepsim.strategies.memory.home.problem import KEEP, RECOMPUTE, SWAP, HomeProblem
from stepsim.strategies.memory.schedule import Action
from stepsim.tables import Ragged
from stepsim.workloads import Phase, Role, Workload


def problem_of(workload: Workload) -> HomeProblem:
    return home_problem(workload, named_prices(workload, 2.0, 3.0))


def lists(ragged: Ragged) -> list[list[int]]:
    return [ragged[index].tolist() for index in range(len(ragged))]


def test_a_chain_stage_by_stage() -> None:
    """F0 F1 L B1 B0, with 10 bytes each: x0 leaves after F1, and B0 is the last to read it."""
    problem = problem_of(chain(2))

    assert (problem.base_bytes, problem.turn, problem.num_layers) == (10, 3, 2)
    assert problem.tensor.tolist() == [1, 2]
    assert problem.allocates.tolist() == [10, 10, 1, 10, 10]
    assert problem.frees.tolist() == [0, 0, 0, 0, 10 + 10]  # the gradients; the loss is a result
    assert lists(problem.leaves) == [[], [0], [1], [], []]
    assert lists(problem.reads) == [[], [0], [1], [1], [0]]
    assert lists(problem.dies) == [[], [], [], [1], [0]]
    assert problem.first_effect.tolist() == [1, 2]
    assert (problem.stage_ticks * problem.tick_s).tolist() == [1.0] * 5
    assert (problem.later_ticks * problem.tick_s).tolist() == [4.0, 3.0, 2.0, 1.0, 0.0]
    assert (problem.out_ticks * problem.tick_s).tolist() == [2.0, 2.0]
    assert (problem.in_ticks * problem.tick_s).tolist() == [3.0, 3.0]


def test_actions_are_named_for_the_tensors_of_their_layers() -> None:
    problem = problem_of(chain(3))

    assert problem.policy(np.array([SWAP, KEEP, RECOMPUTE], np.int8)) == {1: Action.SWAP, 3: Action.RECOMPUTE}


def norm_chain(statistics_bytes: int) -> Workload:
    """C makes c, N makes n and its statistics s, R makes r; backward reads r, then c and s. Nobody saves n."""
    return Workload(
        name="norm",
        batch=1,
        tensors=(
            tensor("input", Role.INPUT, 1),
            tensor("c", Role.ACTIVATION, 50_000, saved=True),
            tensor("n", Role.ACTIVATION, 50_000),
            tensor("s", Role.ACTIVATION, statistics_bytes, saved=True),
            tensor("r", Role.ACTIVATION, 50_000, saved=True),
            tensor("loss", Role.ACTIVATION, 1),
            tensor("dn", Role.GRADIENT, 50_000),
            tensor("dc", Role.GRADIENT, 50_000),
        ),
        ops=(
            op("C", Phase.FORWARD, (0,), (1,)),
            op("N", Phase.FORWARD, (1,), (2, 3)),
            op("R", Phase.FORWARD, (2,), (4,)),
            op("L", Phase.FORWARD, (4,), (5,)),
            op("BR", Phase.BACKWARD, (4, 5), (6,)),
            op("BN", Phase.BACKWARD, (1, 3, 6), (7,)),
        ),
        loss=5,
    )


def test_statistics_are_no_feature_maps() -> None:
    assert feature_maps(norm_chain(5)) == {0: [1], 2: [4]}
    assert feature_maps(norm_chain(500)) == {0: [1], 1: [3], 2: [4]}


def test_an_output_that_nobody_saved_is_there_for_a_recomputation_that_reads_it() -> None:
    """It can only be kept: R is made again from n, which N does not make again."""
    problem = problem_of(norm_chain(5))

    assert problem.tensor.tolist() == [1, 4, 2]
    assert problem.layer.tolist() == [0, 1, problem.num_layers]
    assert lists(problem.needs) == [[], [2]]
    assert lists(problem.dies) == [[], [], [2], [], [1], [0]]
    assert problem.first_effect.tolist() == [1, 2]


def test_all_maps_of_an_op_are_one_layer() -> None:
    workload = norm_chain(500)
    first, *rest = workload.ops
    second = replace(rest[0], inputs=(1, 2), outputs=(3,))
    both = replace(workload, ops=(replace(first, outputs=(1, 2)), second, *rest[1:]))
    saved = replace(both, tensors=tuple(replace(t, saved=t.saved or t.name == "n") for t in both.tensors))
    read = replace(saved, ops=(*saved.ops[:-1], replace(saved.ops[-1], inputs=(1, 2, 3, 6))))

    problem = problem_of(read)

    assert feature_maps(read)[0] == [1, 2]
    assert lists(problem.members)[0] == [0, 1]
    assert problem.makes_bytes[0] == 100_000
    assert problem.policy(np.array([SWAP, KEEP, KEEP], np.int8)) == {1: Action.SWAP, 2: Action.SWAP}


def test_a_map_with_several_readers_leaves_after_the_last_forward_one() -> None:
    workload = chain(3)
    ops = (*workload.ops[:2], replace(workload.ops[2], inputs=(2, 1)), *workload.ops[3:])

    problem = problem_of(replace(workload, ops=ops))

    assert lists(problem.leaves)[:4] == [[], [], [0, 1], [2]]


def test_what_an_op_that_writes_in_place_made_can_be_kept_or_swapped() -> None:
    assert problem_of(chain(3, in_place=frozenset({1}))).num_actions.tolist() == [3, 2, 3]


def test_what_the_backward_pass_reads_before_the_forward_pass_is_done_with_it_is_kept() -> None:
    """As with gradient accumulation: the second forward pass reads x0 after the first backward pass did."""
    workload = chain(2)
    late = op("F", Phase.FORWARD, (1,), ())

    assert feature_maps(replace(workload, ops=(*workload.ops, late))) == {1: [2]}


def test_all_ops_after_the_last_that_touches_a_map_are_one_stage_that_needs_as_much_as_any_of_them() -> None:
    """Two ops follow: the first makes 7 bytes that the second drops, which makes 40."""
    workload = chain(2)
    extra = (tensor("a", Role.GRADIENT, 7), tensor("b", Role.GRADIENT, 40))
    ops = (op("U", Phase.UPDATE, (), (6,)), op("V", Phase.UPDATE, (6,), (7,)))
    longer = replace(workload, tensors=(*workload.tensors, *extra), ops=(*workload.ops, *ops))

    problem = problem_of(longer)

    assert len(problem.stage_ticks) == 6
    assert problem.stage_ticks[-1] * problem.tick_s == 2.0
    assert (problem.allocates[-1], problem.frees[-1]) == (47, 47)


def test_a_step_with_nothing_to_decide_is_a_single_stage() -> None:
    nothing = sized(chain(1), {1: 0})

    problem = problem_of(nothing)

    assert (problem.num_layers, len(problem.stage_ticks)) == (0, 1)
    assert problem.policy(np.zeros(0, np.int8)) == {}


@given(workloads())
def test_stages_take_the_time_of_their_ops_and_give_back_what_they_allocate(workload: Workload) -> None:
    """But for the results: the loss and the gradients of the weights."""
    problem = problem_of(workload)

    results = {workload.loss, *workload.gradients.values()}
    left = sum(workload.tensors[index].size_bytes for index in results)
    assert problem.compute_ticks * problem.tick_s == pytest.approx(len(workload.ops), rel=1e-15)
    assert problem.allocates.sum() - problem.frees.sum() - problem.size_bytes.sum() == left
