"""The bound against closed forms, and against every policy of small graphs."""

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from proposing import MACHINE, propose
from random_workloads import workloads
from small_workloads import chain

from stepsim.costmodels import GivenCosts
from stepsim.errors import WorkloadError
from stepsim.strategies import Greedy
from stepsim.strategies.memory.exhaustive import MOST_TENSORS, Exhaustive
from stepsim.strategies.memory.lower_bound import lower_bound_s
from stepsim.strategies.memory.prices import prices_of
from stepsim.strategies.memory.schedule import candidates
from stepsim.workloads import Workload


def bound(workload: Workload, memory_bytes: int, op_s: float = 1.0) -> float:
    costs = GivenCosts(seconds={op.kind: op_s for op in workload.ops})
    return lower_bound_s(workload, prices_of(workload, MACHINE, costs), memory_bytes)


def test_with_room_for_all_it_is_the_sum_of_the_ops() -> None:
    assert bound(chain(6), 10**6) == 13.0


def test_less_room_never_makes_it_smaller() -> None:
    found = [bound(chain(6), limit, op_s=0.1) for limit in range(45, 120, 5)]

    assert found == sorted(found, reverse=True)
    assert found[0] > found[-1]


def test_an_op_that_does_not_fit_alone_is_named() -> None:
    """The gradient of the last layer reads its output and the loss, and makes 10 bytes, beside the input: 31."""
    with pytest.raises(WorkloadError, match=r"op 'B2' needs 20 bytes more than the memory limit"):
        bound(chain(3), 11)


def test_where_nothing_can_be_made_again_the_copies_must_fit_around_the_ops() -> None:
    """Ops take next to no time. A chain of 6 peaks at 81 bytes: two tensors move out and in, 1 s each way."""
    workload = chain(6, in_place=frozenset(range(6)))

    assert bound(workload, 61, op_s=1e-9) == pytest.approx(4.0)


@settings(max_examples=25, deadline=None)
@given(workload=workloads(max_layers=3), room=st.integers(0, 60), op_s=st.sampled_from([0.1, 1.0, 10.0]))
def test_no_policy_at_all_beats_the_bound(workload: Workload, room: int, op_s: float) -> None:
    assume(len(candidates(workload)) <= 6)
    limit = 30 + room

    best = propose(Exhaustive(), workload, limit, op_s=op_s)

    if best.feasible:
        assert bound(workload, limit, op_s=op_s) <= best.predicted_s * (1 + 1e-9)


@pytest.mark.parametrize("op_s", [0.1, 1.0, 10.0])
def test_the_greedy_search_never_beats_all_policies(op_s: float) -> None:
    workload = chain(5)
    for limit in (51, 61, 71):
        best, greedy = (propose(search, workload, limit, op_s=op_s) for search in (Exhaustive(), Greedy()))
        assert best.feasible
        assert best.predicted_s <= greedy.predicted_s * (1 + 1e-9)


def test_too_many_tensors_for_an_exhaustive_search_are_refused() -> None:
    with pytest.raises(WorkloadError, match=f"at most {MOST_TENSORS} tensors, got 13"):
        propose(Exhaustive(), chain(13), 100)


def test_an_exhaustive_search_out_of_time_says_so() -> None:
    proposal = propose(Exhaustive(), chain(8), 71, time_limit_s=0.05)

    assert not proposal.complete
