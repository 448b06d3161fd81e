"""A search like SwapAdvisor's: orders stay possible, Belady chooses, and the walk agrees with the simulator."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from proposing import MACHINE, count, peak_bytes, propose
from random_workloads import workloads
from small_workloads import chain

from stepsim.costmodels import GivenCosts
from stepsim.memory import memory_profile
from stepsim.plan import TaskKind
from stepsim.simulator import simulate
from stepsim.strategies.memory.lowering import plan_for_rows
from stepsim.strategies.memory.prices import prices_of
from stepsim.strategies.memory.rows import settle
from stepsim.strategies.memory.swapadvisor.belady import Leaving, leaving
from stepsim.strategies.memory.swapadvisor.genes import Genes, cross, mutate, needs, reordered
from stepsim.strategies.memory.swapadvisor.strategy import SwapAdvisor
from stepsim.strategies.memory.swapadvisor.uses import Problem, Uses
from stepsim.strategies.memory.swapadvisor.walk import rows_of, walk
from stepsim.workloads import Workload

X0, X1, X2 = 1, 2, 3

NO_LIMIT = 10**9


def problem_of(workload: Workload) -> Problem:
    costs = GivenCosts(seconds={op.kind: 1.0 for op in workload.ops})
    return Problem.of(workload, prices_of(workload, MACHINE, costs))


def same(workload: Workload) -> tuple[int, ...]:
    return tuple(range(len(workload.ops)))


def left(problem: Problem, counts: tuple[int, ...], memory_bytes: int, threshold_ops: int = 1) -> list[int]:
    uses = Uses.of(problem, same(problem.workload))
    return uses.tensor[leaving(problem, uses, counts, memory_bytes, threshold_ops).gaps].tolist()


def possible(workload: Workload, order: tuple[int, ...]) -> bool:
    """What is read was written, and ops that write the same tensor in place, or draw, keep their turn."""
    written = {i for i in range(len(workload.tensors)) if i not in workload.producer}
    for op in (workload.ops[index] for index in order):
        if not {*op.inputs} <= written:
            return False
        written.update(op.outputs)
    drawn = [index for index in order if workload.ops[index].random]
    place = {index: number for number, index in enumerate(order)}
    in_time = all(
        place[reader] < place[index]
        for index, op in enumerate(workload.ops)
        for tensor in op.mutates
        for reader in workload.consumers[tensor]
        if reader < index
    )
    return sorted(order) == list(range(len(workload.ops))) and drawn == sorted(drawn) and in_time


@settings(max_examples=40, deadline=None)
@given(workload=workloads(), seed=st.integers(0, 99))
def test_children_keep_every_op_after_what_it_needs(workload: Workload, seed: int) -> None:
    generator, needed, most = np.random.default_rng(seed), needs(workload), problem_of(workload).most
    plain = Genes(same(workload), most)

    first, second = (mutate(plain, needed, most, 0.7, generator) for _ in range(2))
    child = cross(first, second, generator)

    assert all(possible(workload, genes.order) for genes in (first, second, child))
    assert all(0 <= n <= top for genes in (first, second, child) for n, top in zip(genes.counts, most, strict=True))


def test_a_child_has_the_head_of_one_parent_and_the_order_of_the_other() -> None:
    first, second = Genes((0, 1, 2, 3), (1, 1, 1)), Genes((3, 2, 1, 0), (2, 2, 2))

    children = {cross(first, second, np.random.default_rng(seed)) for seed in range(200)}

    heads = [(3, 2, 1, 0), (0, 3, 2, 1), (0, 1, 3, 2), (0, 1, 2, 3)]
    tails = [(2, 2, 2), (1, 2, 2), (1, 1, 2), (1, 1, 1)]
    assert children == {Genes(order, counts) for order in heads for counts in tails}


@given(workload=workloads(), seed=st.integers(0, 9))
def test_without_chance_the_old_order_stays(workload: Workload, seed: int) -> None:
    generator, needed = np.random.default_rng(seed), needs(workload)
    order = reordered(same(workload), needed, 0.7, generator)

    assert reordered(order, needed, 0.0, generator) == order


@pytest.mark.parametrize(("memory_bytes", "expected"), [(101, []), (100, [X0]), (91, [X0]), (90, [X0, X1])])
def test_where_bytes_are_too_many_what_is_used_again_last_leaves_and_only_that(
    memory_bytes: int, expected: list[int]
) -> None:
    """Input, eight activations of ten bytes, the loss, and one gradient: 101 bytes at the first backward op."""
    assert left(problem_of(chain(8)), (8,), memory_bytes) == expected


def test_of_a_size_no_more_tensors_stay_than_its_count_but_for_those_in_use() -> None:
    """A layer and the next are in use at once; x3 and x4 stand beside the loss."""
    problem = problem_of(chain(5))

    assert left(problem, (5,), NO_LIMIT) == []
    assert left(problem, (4,), NO_LIMIT) == [X0]
    assert left(problem, (3,), NO_LIMIT) == [X0, X1]
    assert {X0, X1, X2} <= {*left(problem, (0,), NO_LIMIT)}


def test_where_none_has_rested_long_enough_any_idle_tensor_leaves() -> None:
    assert left(problem_of(chain(5)), (3,), NO_LIMIT, threshold_ops=100) == [X0, X1]


def test_a_tensor_comes_back_as_soon_as_it_is_out_if_there_is_room() -> None:
    """x0, made by F0, is out when F1, its last reader, ends; with room it comes back at once, without later."""
    workload = chain(3)
    problem, uses = problem_of(workload), Uses.of(problem_of(workload), same(workload))
    gap = uses.tensor.tolist().index(X0)
    out = slice(uses.after[gap] + 1, uses.before[gap])
    level_bytes = uses.level_bytes.copy()
    level_bytes[out] -= 10
    leaves = Leaving([gap], level_bytes)

    roomy = walk(problem, same(workload), uses, leaves, NO_LIMIT)
    tight = walk(problem, same(workload), uses, leaves, int(level_bytes.max()))

    assert (roomy.returns, roomy.seconds) == (((2, gap),), 7.0)
    assert tight.returns[0][0] > 2


@settings(max_examples=100, deadline=None)
@given(workload=workloads(), seed=st.integers(0, 999), share=st.floats(0, 1.1))
def test_the_walk_says_what_the_simulator_says_of_the_plan(workload: Workload, seed: int, share: float) -> None:
    problem, generator = problem_of(workload), np.random.default_rng(seed)
    order = reordered(same(workload), needs(workload), 0.4, generator)
    counts = generator.integers(np.add(problem.most, 1)).tolist()
    memory_bytes = int(share * peak_bytes(workload, {}))

    uses = Uses.of(problem, order)
    leaves = leaving(problem, uses, counts, memory_bytes, 2)
    walked = walk(problem, order, uses, leaves, memory_bytes)
    rows = settle(workload, rows_of(problem, order, uses, leaves, walked), memory_bytes)
    plan = plan_for_rows(workload, MACHINE, rows)

    costs = GivenCosts(seconds={op.kind: 1.0 for op in workload.ops})
    assert memory_profile(plan).peak_bytes("gpu0") == walked.peak_bytes
    assert simulate(plan, MACHINE, costs).makespan_s == pytest.approx(walked.seconds, rel=1e-12)


def test_evolution_is_never_worse_than_belady_in_the_order_of_the_workload() -> None:
    workload = chain(10)
    begun = propose(SwapAdvisor(generations=1, population=2), workload, 80)

    evolved = propose(SwapAdvisor(), workload, 80)

    assert begun.feasible
    assert evolved.feasible
    assert len(workload.ops) <= evolved.predicted_s <= begun.predicted_s
    assert count(evolved, TaskKind.SWAP_OUT) == count(evolved, TaskKind.SWAP_IN) > 0
    assert count(evolved, TaskKind.RECOMPUTE) == 0


def test_without_time_the_first_plan_is_given_and_marked() -> None:
    proposal = propose(SwapAdvisor(), chain(10), 80, op_s=0.1, time_limit_s=0.0)

    assert (proposal.feasible, proposal.complete) == (True, False)
