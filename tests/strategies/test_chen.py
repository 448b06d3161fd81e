"""Chen's checkpoints on chains, where the segments can be counted."""

import math

import pytest
from hypothesis import given, settings
from proposing import count, decisions, peak_bytes, propose
from random_workloads import workloads
from small_workloads import chain

from stepsim.plan import TaskKind
from stepsim.strategies.memory.remat.chen import Chen, split_points
from stepsim.strategies.memory.schedule import forward_only
from stepsim.workloads import Workload
from stepsim.workloads.shipped import load_workload


def kept_layers(chen: Chen, workload: Workload, layers: int) -> list[list[int]]:
    """Of each policy that is tried, the layers of a `chain` whose output is kept."""
    return [[layer for layer in range(layers) if layer + 1 not in policy] for policy in chen.policies(workload)]


def test_every_layer_of_a_chain_is_a_split_point() -> None:
    assert split_points(chain(5), all_ops=False) == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize(("layers", "every"), [(8, 3), (15, 4), (24, 5)])
def test_the_square_root_rule_keeps_one_layer_in_the_root(layers: int, every: int) -> None:
    """The loss is a split point too: n + 1 of them."""
    assert every == math.isqrt(layers + 1)

    kept = kept_layers(Chen(square_root=True), chain(layers), layers)

    assert kept == [list(range(layers)), list(range(every - 1, layers, every))]


def test_the_first_walk_keeps_everything_and_a_large_bound_keeps_little() -> None:
    kept = kept_layers(Chen(), chain(16), 16)

    assert len(kept[0]) == len(kept[1]) == 16
    assert 0 < min(map(len, kept)) < 8


def test_a_long_chain_takes_the_root_of_its_memory_for_one_more_forward_pass() -> None:
    """Keep-all holds n activations; with segments of sqrt(n): about 2 sqrt(n), gradients and input apart."""
    layers = 100
    workload = chain(layers)

    proposal = propose(Chen(square_root=True), workload, 10 * (2 * 10 + 8))

    assert proposal.feasible
    assert peak_bytes(workload, {}) > 10 * layers
    assert count(proposal, TaskKind.RECOMPUTE) <= layers


def test_it_keeps_everything_where_everything_fits() -> None:
    workload = chain(6)

    proposal = propose(Chen(), workload, peak_bytes(workload, {}))

    assert decisions(proposal.plan) == {}


def test_of_the_policies_that_fit_it_takes_the_one_of_least_work() -> None:
    workload = chain(12)
    policies = Chen().policies(workload)
    limit = 101
    least = min(len(policy) for policy in policies if peak_bytes(workload, policy) <= limit)

    proposal = propose(Chen(), workload, limit)

    assert proposal.feasible
    assert count(proposal, TaskKind.RECOMPUTE) == least


@settings(max_examples=40, deadline=None)
@given(workload=workloads())
def test_it_has_a_plan_for_any_graph_and_never_swaps(workload: Workload) -> None:
    for chen in (Chen(), Chen(square_root=True), Chen(all_ops=True)):
        proposal = propose(chen, workload, 40)

        assert proposal.feasible == (proposal.predicted_peak_bytes <= 40)
        assert count(proposal, TaskKind.SWAP_OUT) == 0


def test_dropping_what_only_the_forward_pass_reads_takes_a_policy_to_a_lower_peak() -> None:
    """Outputs of batch norms: segments that are computed again from them would hold them all along."""
    workload = load_workload("resnet50").at_batch(8)
    passing = forward_only(workload)
    outside = sum(t.size_bytes for i, t in enumerate(workload.tensors) if i not in workload.producer)

    proposal = propose(Chen(), workload, outside)
    staying = [policy for policy in Chen().policies(workload) if not policy.keys() & passing]

    least_bytes = min(peak_bytes(workload, policy) for policy in staying)
    assert proposal.predicted_peak_bytes - outside < 0.9 * (least_bytes - outside)
