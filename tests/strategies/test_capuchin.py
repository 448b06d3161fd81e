"""What Capuchin decides, in which order, and what its plans take, on chains that can be added up on paper."""

from dataclasses import replace
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from proposing import MACHINE, count, propose
from random_workloads import workloads
from small_machines import gpus
from small_workloads import chain
from test_accesses import prices

from stepsim.costmodels import GivenCosts
from stepsim.plan import TaskKind
from stepsim.report import report
from stepsim.simulator import simulate
from stepsim.strategies import KeepAll, Proposal
from stepsim.strategies.memory.capuchin import Capuchin
from stepsim.strategies.memory.schedule import Action
from stepsim.workloads import Workload

SWAP, RECOMPUTE = Action.SWAP, Action.RECOMPUTE


def decided(capuchin: Capuchin, workload: Workload, op_s: float = 1.0) -> list[tuple[str, Action]]:
    """All that can be decided, with next to no memory."""
    found = capuchin.decisions(workload, prices(workload, op_s), 1)
    return [(workload.tensors[gap.tensor].name, action) for gap, action in found]


def keep_all_bytes(workload: Workload) -> int:
    return propose(KeepAll(), workload, 0).predicted_peak_bytes


def test_the_most_free_time_is_swapped_first() -> None:
    """Free times are 4, 2 and 0 s. No op runs between the last use of x3 and the next: it has no place here."""
    assert decided(Capuchin(), chain(4)) == [("x0", SWAP), ("x1", SWAP), ("x2", SWAP)]


def test_what_cannot_be_hidden_is_recomputed_where_that_is_cheaper() -> None:
    """Ops of 0.25 s, copies of 1 s: x0 lacks 0.5 s. Once x0 is gone, x1 takes two ops, then x2 counts for x1 again."""
    assert decided(Capuchin(), chain(4), 0.25) == [("x0", RECOMPUTE), ("x2", RECOMPUTE), ("x1", RECOMPUTE)]


def test_most_bytes_a_second_of_recomputing_come_first_among_the_rest() -> None:
    workload = chain(4)
    tensors = list(workload.tensors)
    tensors[2] = replace(tensors[2], size_bytes=20)
    workload = replace(workload, tensors=tuple(tensors))

    ways = {rest: decided(Capuchin(rest=rest), workload, 0.25) for rest in ("msps", "free-time")}

    assert ways["msps"][0] == ("x1", RECOMPUTE)
    assert ways["free-time"][0] == ("x0", RECOMPUTE)


def test_what_gives_no_room_is_not_looked_at() -> None:
    """Of four layers of 10,000 bytes each, x0 has 1 byte: the most free time, and nothing to gain."""
    workload = chain(4, size_bytes=10_000)
    tensors = list(workload.tensors)
    tensors[1] = replace(tensors[1], size_bytes=1)
    workload = replace(workload, tensors=tuple(tensors))

    assert decided(Capuchin(), workload, 1000.0) == [("x1", SWAP), ("x2", SWAP)]


def test_an_action_that_is_not_allowed_is_not_taken() -> None:
    assert {action for _, action in decided(Capuchin(actions=(SWAP,)), chain(6), 0.25)} == {SWAP}
    assert {action for _, action in decided(Capuchin(actions=(RECOMPUTE,)), chain(6))} == {RECOMPUTE}


def test_what_cannot_run_again_is_swapped_even_where_that_waits() -> None:
    workload = chain(4, in_place=frozenset({0, 1, 2}))

    assert {action for _, action in decided(Capuchin(), workload, 0.25)} == {SWAP}


def test_without_lanes_each_tensor_is_judged_by_its_own_free_time() -> None:
    """Ten layers, ops of half a second: 4 copies out and 4 back fill the lanes; by themselves 8 tensors have time."""
    swaps = {
        lanes: sum(action is SWAP for _, action in decided(Capuchin(lanes=lanes), chain(10), 0.5))
        for lanes in (True, False)
    }

    assert swaps[True] < swaps[False] == 8


def test_it_stops_when_the_required_saving_is_met() -> None:
    """One tensor of 10 bytes is enough; twice that is asked for with a slack of 1. Both hide behind computing."""
    workload = chain(8)
    limit_bytes = keep_all_bytes(workload) - 10

    proposals = [propose(Capuchin(slack=slack), workload, limit_bytes) for slack in (0.0, 1.0)]

    assert [count(proposal, TaskKind.SWAP_OUT) for proposal in proposals] == [1, 2]
    assert [proposal.predicted_s for proposal in proposals] == [17.0, 17.0]
    assert all(proposal.feasible for proposal in proposals)


def test_nothing_is_done_where_everything_fits() -> None:
    workload = chain(8)

    proposal = propose(Capuchin(slack="best"), workload, keep_all_bytes(workload))

    assert proposal.plan == propose(KeepAll(), workload, 0).plan
    assert proposal.feasible
    assert proposal.complete


def test_a_tensor_that_comes_too_late_is_asked_for_earlier() -> None:
    """Predicted to take 1 s, a copy takes 1.2 s: too late by 0.2 s, until it is asked for one op earlier."""
    workload = chain(8)
    costs = GivenCosts(seconds={op.kind: 1.0 for op in workload.ops})
    slower = gpus(bandwidth_bytes_per_s=10 / 1.2)

    def guided(feedback: int) -> Proposal:
        return Capuchin(feedback=feedback).plan(
            workload,
            MACHINE,
            costs,
            memory_bytes=keep_all_bytes(workload) - 10,
            evaluate=lambda plan: report(simulate(plan, slower, costs), plan),
            time_limit_s=60,
        )

    assert guided(0).predicted_s == pytest.approx(17.2)
    assert guided(1).predicted_s == pytest.approx(17.0)


def test_too_little_time_gives_a_plan_that_says_so() -> None:
    workload = chain(8)

    proposal = propose(Capuchin(slack="best"), workload, keep_all_bytes(workload) - 10, time_limit_s=0.0)

    assert not proposal.complete
    assert proposal.feasible


def test_a_lower_limit_never_gives_a_higher_peak_on_a_chain() -> None:
    workload = chain(8)
    most = keep_all_bytes(workload)

    peaks = [propose(Capuchin(), workload, most - 10 * number).predicted_peak_bytes for number in range(6)]

    assert peaks == sorted(peaks, reverse=True)


@settings(max_examples=25, deadline=None)
@given(workload=workloads(), memory_bytes=st.integers(0, 120))
def test_any_graph_has_a_plan_that_keeps_its_word_and_slack_that_is_chosen_is_no_worse(
    workload: Workload, memory_bytes: int
) -> None:
    ask = partial(propose, workload=workload, memory_bytes=memory_bytes)

    plain, best = ask(Capuchin()), ask(Capuchin(slack="best"))

    for proposal in (plain, best):
        assert proposal.feasible == (proposal.predicted_peak_bytes <= memory_bytes)
        assert proposal.predicted_s >= len(workload.ops)
    assert best.feasible >= plain.feasible
    assert best.predicted_s <= plain.predicted_s or not plain.feasible
