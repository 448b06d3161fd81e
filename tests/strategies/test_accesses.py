"""Gaps between the forward and the backward pass, and what swapping several tensors adds, on paper."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from proposing import MACHINE
from small_workloads import chain

from stepsim.costmodels import GivenCosts
from stepsim.strategies.memory.accesses import Gap, delay_s, gaps
from stepsim.strategies.memory.prices import Prices, prices_of
from stepsim.workloads import Workload


def prices(workload: Workload, op_s: float = 1.0) -> Prices:
    return prices_of(workload, MACHINE, GivenCosts(seconds={op.kind: op_s for op in workload.ops}))


def test_the_gap_of_a_layer_is_what_runs_after_it_in_both_passes() -> None:
    """A second for each op and each copy:  F0 F1 F2 F3 L B3 B2 B1 B0; F1 reads x0 last and B0 next."""
    workload = chain(4)

    found = gaps(workload, prices(workload))

    assert [(gap.made_s, gap.evicted_s, gap.back_s) for gap in found] == [(1, 2, 8), (2, 3, 7), (3, 4, 6), (4, 5, 5)]
    assert [gap.free_s for gap in found] == [4, 2, 0, -2]


def test_swaps_that_share_the_lanes_add_the_wait_of_the_last() -> None:
    """out 2-3 x0, 3-4 x1, 4-5 x2, 5-6 x3; in 6-7 x3, wanted at 5; 7-8 x2, wanted at 6; and so on: 2 s."""
    workload = chain(4)
    found = gaps(workload, prices(workload))

    assert delay_s(found[:3]) == 0
    assert delay_s(found) == 2
    assert delay_s(found[3:]) == 2


@given(st.lists(st.tuples(st.floats(0, 9), st.floats(0, 9), st.floats(0, 9), st.floats(0, 9)), max_size=6))
def test_another_swap_never_shortens_the_step(times: list[tuple[float, float, float, float]]) -> None:
    found = [
        Gap(
            tensor=number,
            size_bytes=1,
            after=0,
            before=0,
            made_s=evicted_s,
            evicted_s=evicted_s,
            back_s=evicted_s + away_s,
            out_s=out_s,
            in_s=in_s,
        )
        for number, (evicted_s, away_s, out_s, in_s) in enumerate(times)
    ]

    assert delay_s([]) == 0
    assert delay_s(found) >= delay_s(found[1:]) - 1e-9
    assert all(delay_s(found) >= -gap.free_s - 1e-9 for gap in found)


def test_a_lone_swap_adds_what_its_free_time_lacks() -> None:
    for op_s in (0.25, 0.5, 2.0):
        workload = chain(5)
        for gap in gaps(workload, prices(workload, op_s)):
            assert delay_s([gap]) == pytest.approx(max(0.0, -gap.free_s))
