"""What the greedy search finds, on cases that can be worked out by hand or tried out in full."""

from dataclasses import replace
from itertools import count as count_up
from itertools import product
from types import SimpleNamespace

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from proposing import MACHINE, count, decisions, peak_bytes, propose
from random_workloads import workloads
from small_workloads import chain, op, tensor

from stepsim.costmodels import GivenCosts
from stepsim.plan import TaskKind
from stepsim.strategies import Greedy
from stepsim.strategies.memory import greedy
from stepsim.strategies.memory import propose as beginning
from stepsim.strategies.memory.lowering import plan_for_policy
from stepsim.strategies.memory.schedule import Action, candidates
from stepsim.workloads import Phase, Role, Workload


def test_it_recomputes_what_is_cheaper_to_make_than_to_move() -> None:
    """A copy out and in takes 2 s; an op takes 0.1 s."""
    proposal = propose(Greedy(), chain(6), 71, op_s=0.1)

    assert proposal.feasible
    assert (count(proposal, TaskKind.RECOMPUTE), count(proposal, TaskKind.SWAP_OUT)) == (1, 0)


def test_it_swaps_what_is_cheaper_to_move_than_to_make() -> None:
    """A copy out and in takes 2 s; an op takes 10 s."""
    proposal = propose(Greedy(), chain(6), 71, op_s=10.0)

    assert proposal.feasible
    assert (count(proposal, TaskKind.RECOMPUTE), count(proposal, TaskKind.SWAP_OUT)) == (0, 1)


@pytest.mark.parametrize("action", [Action.SWAP, Action.RECOMPUTE])
def test_it_takes_only_the_actions_that_it_is_given(action: Action) -> None:
    proposal = propose(Greedy(actions=(action,)), chain(6), 61)

    assert proposal.feasible
    assert set(decisions(proposal.plan).values()) == {action}


def test_one_byte_under_the_peak_takes_one_decision() -> None:
    peak = peak_bytes(chain(6), {})

    found = [len(decisions(propose(Greedy(), chain(6), limit).plan)) for limit in (peak, peak - 1)]

    assert found == [0, 1]


@pytest.mark.parametrize("op_s", [0.1, 1.0, 10.0])
def test_on_a_chain_of_equal_layers_no_policy_at_all_is_cheaper(op_s: float) -> None:
    """All 3 ** 4 policies, by the seconds of their rows one after another."""
    workload = chain(4)
    costs = GivenCosts(seconds={op.kind: op_s for op in workload.ops})

    def seconds(plan) -> float:
        return costs.task_costs(plan, MACHINE).seconds_alone(plan, MACHINE).sum()

    for limit_bytes in range(25, 65, 13):
        policies = [dict(zip(candidates(workload), actions, strict=True)) for actions in product(Action, repeat=4)]
        fitting = [policy for policy in policies if peak_bytes(workload, policy, limit_bytes) <= limit_bytes]
        best_s = min(
            (seconds(plan_for_policy(workload, MACHINE, policy, limit_bytes)) for policy in fitting), default=None
        )

        proposal = propose(Greedy(), workload, limit_bytes, op_s=op_s)

        assert proposal.feasible == (best_s is not None)
        assert best_s is None or seconds(proposal.plan) == pytest.approx(best_s, rel=1e-12)


def dear_and_useless(num_layers: int) -> Workload:
    """Layer ``i``: C_i makes u_i from x_(i-1), R_i makes x_i from u_i; backward reads x_i and nothing of u_i.

    To recompute x_i with R_i means to keep u_i instead, which is just as large.
    """
    tensors = [tensor("input", Role.INPUT, 10)]
    ops = []
    for layer in range(num_layers):
        u, x = len(tensors), len(tensors) + 1
        tensors += [tensor(f"u{layer}", Role.ACTIVATION, 10), tensor(f"x{layer}", Role.ACTIVATION, 10, saved=True)]
        ops += [op(f"C{layer}", Phase.FORWARD, (u - 1,), (u,)), op(f"R{layer}", Phase.FORWARD, (u,), (x,))]
    loss = len(tensors)
    tensors.append(tensor("loss", Role.ACTIVATION, 1))
    ops.append(op("L", Phase.FORWARD, (loss - 1,), (loss,)))
    gradient = loss
    for layer in reversed(range(num_layers)):
        tensors.append(tensor(f"g{layer}", Role.GRADIENT, 10))
        ops.append(op(f"B{layer}", Phase.BACKWARD, (2 * layer + 2, gradient), (len(tensors) - 1,)))
        gradient = len(tensors) - 1
    return Workload(name="useless", batch=1, tensors=tuple(tensors), ops=tuple(ops), loss=loss)


@pytest.mark.parametrize("num_layers", [5, 20])
def test_any_number_of_cheap_decisions_that_help_nothing_do_not_hide_the_ones_that_do(num_layers: int) -> None:
    """Recomputing is a hundred times cheaper than swapping, and frees nothing."""
    workload = dear_and_useless(num_layers)

    proposal = propose(Greedy(shortlist=3), workload, peak_bytes(workload, {}) - 20, op_s=0.02)

    assert proposal.feasible
    assert set(decisions(proposal.plan).values()) == {Action.SWAP}


@settings(max_examples=80)
@given(workload=workloads(), share=st.floats(0, 1), op_s=st.sampled_from([0.1, 1.0, 10.0]))
def test_no_decision_of_a_plan_that_fits_can_be_taken_back(workload: Workload, share: float, op_s: float) -> None:
    """Of limits between what swapping everything and what keeping everything needs."""
    most = peak_bytes(workload, {})
    least = peak_bytes(workload, dict.fromkeys(candidates(workload), Action.SWAP))
    assume(least < most)
    limit_bytes = int(least + share * (most - least))
    proposal = propose(Greedy(), workload, limit_bytes, op_s=op_s)
    assume(proposal.feasible)

    policy = decisions(proposal.plan)

    assert proposal.plan == plan_for_policy(workload, MACHINE, policy, limit_bytes)
    for kept in policy:
        rest = {tensor: action for tensor, action in policy.items() if tensor != kept}
        assert peak_bytes(workload, rest, limit_bytes) > limit_bytes


def test_tensors_of_no_bytes_are_left_alone() -> None:
    workload = chain(4)
    tensors = tuple(replace(each, size_bytes=0) if each.name == "x1" else each for each in workload.tensors)

    proposal = propose(Greedy(), replace(workload, tensors=tensors), 50)

    assert proposal.feasible
    assert 2 not in decisions(proposal.plan)


def test_a_search_without_time_decides_nothing_and_says_that_it_is_not_complete() -> None:
    proposal = propose(Greedy(), chain(6), 41, time_limit_s=0.0)

    assert (proposal.feasible, proposal.complete) == (False, False)
    assert decisions(proposal.plan) == {}


def test_where_everything_fits_no_time_is_needed() -> None:
    proposal = propose(Greedy(), chain(6), 1000, time_limit_s=0.0)

    assert (proposal.feasible, proposal.complete) == (True, True)


def test_a_search_that_runs_out_of_time_keeps_what_it_decided_until_then(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock that ticks once each time it is looked at."""
    found = []
    for limit_s in range(0, 400, 8):
        ticks = count_up()
        for module in (greedy, beginning):
            monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=ticks.__next__))
        proposal = propose(Greedy(), chain(6), 51, time_limit_s=limit_s)
        found.append((proposal.complete, len(decisions(proposal.plan)), proposal.feasible))

    stopped = [decided for complete, decided, _ in found if not complete]
    assert stopped == sorted(stopped)
    assert len(set(stopped)) > 2
    assert [complete for complete, *_ in found] == sorted(complete for complete, *_ in found)
    assert all(feasible == complete for complete, _, feasible in found)
    assert found[-1][0]
