"""The search over whole plans: never worse than its rivals, and near the bound."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from proposing import propose
from random_workloads import workloads
from small_workloads import chain

from stepsim.memory import memory_profile
from stepsim.strategies import Greedy, KeepAll, Proposal
from stepsim.strategies.memory.capuchin import Capuchin
from stepsim.strategies.memory.exhaustive import Exhaustive
from stepsim.strategies.memory.refined import Refined
from stepsim.workloads import Workload


@settings(max_examples=20, deadline=None)
@given(workload=workloads(max_layers=4), room=st.integers(0, 60), op_s=st.sampled_from([0.1, 1.0, 10.0]))
def test_it_is_never_worse_than_a_rival(workload: Workload, room: int, op_s: float) -> None:
    limit = 20 + room
    rival = propose(Greedy(), workload, limit, op_s=op_s)

    ours = propose(Refined(rivals=(Greedy(),)), workload, limit, op_s=op_s)

    assert ours.feasible >= rival.feasible
    if rival.feasible:
        assert ours.predicted_s <= rival.predicted_s
    assert ours.feasible == (ours.predicted_peak_bytes <= limit)
    if ours.feasible and ours.lower_bound_s is not None:
        assert ours.lower_bound_s <= ours.predicted_s * (1 + 1e-9)


@settings(max_examples=15, deadline=None)
@given(
    workload=workloads(max_layers=4),
    room=st.integers(0, 60),
    more=st.integers(1, 40),
    op_s=st.sampled_from([0.1, 10.0]),
)
def test_a_lower_limit_never_gives_a_higher_peak(workload: Workload, room: int, more: int, op_s: float) -> None:
    low, high = (propose(Refined(), workload, limit, op_s=op_s) for limit in (20 + room, 20 + room + more))

    assert low.predicted_peak_bytes <= high.predicted_peak_bytes


@pytest.mark.parametrize("op_s", [0.1, 1.0, 10.0])
@pytest.mark.parametrize("limit", [51, 61, 71])
def test_on_a_short_chain_it_finds_what_all_policies_together_have(op_s: float, limit: int) -> None:
    """All policies ask for a swapped tensor one op ahead; the search may find a better window."""
    workload = chain(5)

    ours, best = (propose(search, workload, limit, op_s=op_s) for search in (Refined(), Exhaustive()))

    assert ours.feasible
    assert ours.predicted_s <= best.predicted_s * (1 + 1e-9)


def test_where_everything_fits_it_keeps_everything() -> None:
    ours, kept = (propose(search, chain(4), 10**6) for search in (Refined(rivals=()), KeepAll()))

    assert ours.predicted_s == kept.predicted_s


def test_the_same_seed_gives_the_same_plan() -> None:
    first, second = (propose(Refined(seed=3), chain(8), 61, op_s=0.7) for _ in range(2))

    assert first.plan == second.plan


def test_with_caching_accounting_what_the_allocator_reserves_fits() -> None:
    """Blocks are of 2 MiB at least, so that a limit of 4 MiB leaves two of them."""
    proposal = propose(Refined(accounting="caching"), chain(6), 4 * 2**20)

    assert proposal.feasible
    assert memory_profile(proposal.plan, "caching").peak_reserved_bytes("gpu0") <= 4 * 2**20


def test_a_search_out_of_time_gives_the_best_so_far_and_says_so() -> None:
    proposal = propose(Refined(rivals=(KeepAll(),)), chain(10), 71, time_limit_s=0.0)

    assert not proposal.complete
    assert proposal.plan is not None


def test_out_of_time_no_further_rival_is_asked_once_something_fits() -> None:
    class Slow(KeepAll):
        def plan(self, *_: object, **__: object) -> Proposal:
            raise AssertionError("was asked")

    proposal = propose(Refined(rivals=(Capuchin(), Slow())), chain(10), 111, time_limit_s=0.0)

    assert proposal.feasible
    assert not proposal.complete
