"""Promises of every memory strategy, and what the greedy one finds on cases that can be worked out by hand."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_machines import gpus
from small_workloads import chain

from stepsim.costmodels import GivenCosts
from stepsim.plan import TaskKind
from stepsim.report import report
from stepsim.simulator import simulate
from stepsim.strategies import STRATEGIES, Greedy, Proposal
from stepsim.strategies.memory.schedule import Action
from stepsim.workloads import Workload

BANDWIDTH_BYTES_PER_S = 10.0
MACHINE = gpus(bandwidth_bytes_per_s=BANDWIDTH_BYTES_PER_S)


def costs_for(workload: Workload, op_s: float = 1.0) -> GivenCosts:
    return GivenCosts(seconds={op.kind: op_s for op in workload.ops})


def propose(strategy, workload, memory_bytes, *, op_s=1.0, time_limit_s=60.0) -> Proposal:
    costs = costs_for(workload, op_s)
    return strategy.plan(
        workload,
        MACHINE,
        costs,
        memory_bytes=memory_bytes,
        evaluate=lambda plan: report(simulate(plan, MACHINE, costs), plan),
        time_limit_s=time_limit_s,
    )


def count(proposal: Proposal, kind: TaskKind) -> int:
    return int((proposal.plan.tasks.kind == kind).sum())


@pytest.mark.parametrize("name", STRATEGIES)
def test_with_room_for_everything_every_strategy_keeps_everything(name):
    proposal = propose(STRATEGIES[name], chain(6), 1000)

    assert (proposal.feasible, proposal.complete) == (True, True)
    assert len(proposal.plan) == len(chain(6).ops) + 1
    assert proposal.predicted_s == 13.0


@pytest.mark.parametrize("name", STRATEGIES)
def test_a_limit_that_nothing_meets_gives_an_infeasible_proposal_with_the_peak_it_reaches(name):
    proposal = propose(STRATEGIES[name], chain(6), 15)

    assert not proposal.feasible
    assert proposal.predicted_peak_bytes > 15


def test_keep_all_is_feasible_down_to_its_peak_and_no_further():
    """Input, six activations, the loss and the first gradient are there at once."""
    peak_bytes = propose(STRATEGIES["keep-all"], chain(6), 1000).predicted_peak_bytes

    assert peak_bytes == 10 + 60 + 1 + 10
    assert propose(STRATEGIES["keep-all"], chain(6), peak_bytes).feasible
    assert not propose(STRATEGIES["keep-all"], chain(6), peak_bytes - 1).feasible


def test_greedy_recomputes_what_is_cheaper_to_make_than_to_move():
    """A copy out and in takes 2 s; an op takes 0.1 s."""
    proposal = propose(Greedy(), chain(6), 71, op_s=0.1)

    assert proposal.feasible
    assert (count(proposal, TaskKind.RECOMPUTE), count(proposal, TaskKind.SWAP_OUT)) == (1, 0)


def test_greedy_swaps_what_is_cheaper_to_move_than_to_make():
    """A copy out and in takes 2 s; an op takes 10 s."""
    proposal = propose(Greedy(), chain(6), 71, op_s=10.0)

    assert proposal.feasible
    assert (count(proposal, TaskKind.RECOMPUTE), count(proposal, TaskKind.SWAP_OUT)) == (0, 1)


@pytest.mark.parametrize(
    ("action", "never"), [(Action.SWAP, TaskKind.RECOMPUTE), (Action.RECOMPUTE, TaskKind.SWAP_OUT)]
)
def test_greedy_takes_only_the_actions_that_it_is_given(action, never):
    proposal = propose(Greedy(actions=(action,)), chain(6), 61)

    assert proposal.feasible
    assert count(proposal, never) == 0


def test_a_search_without_time_says_that_it_is_not_complete():
    proposal = propose(Greedy(), chain(6), 41, time_limit_s=0.0)

    assert (proposal.feasible, proposal.complete) == (False, False)


@settings(max_examples=60)
@given(length=st.integers(2, 8), share=st.floats(0.3, 1.0), op_s=st.sampled_from([0.1, 1.0, 10.0]))
def test_a_feasible_proposal_stays_within_its_limit_and_repeats_itself(length, share, op_s):
    workload = chain(length)
    limit_bytes = int(share * propose(STRATEGIES["keep-all"], workload, 0).predicted_peak_bytes)

    proposal = propose(Greedy(), workload, limit_bytes, op_s=op_s)

    assert proposal.feasible == (proposal.predicted_peak_bytes <= limit_bytes)
    assert proposal.plan == propose(Greedy(), workload, limit_bytes, op_s=op_s).plan
    assert proposal.predicted_s >= len(workload.ops) * op_s * (1 - 1e-12)
