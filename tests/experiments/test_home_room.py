"""What room a step takes at the least, how it shrinks with the reserve, and the largest batch in it."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.home_costs import limit_bytes
from experiments.home_room import constants_at, floor_batch, floor_bytes, kept_batch, kept_bytes, largest
from experiments.home_setting import step
from stepsim.strategies.memory.rows import resident_bytes
from stepsim.strategies.memory.schedule import Action, can_recompute, candidates, schedule

RESERVES = ("fixed", "growing")


@given(st.integers(1, 10_000), st.integers(1, 10_000))
def test_bisection_finds_the_last_batch_that_fits(last: int, more: int) -> None:
    assert largest(lambda batch: batch <= last, least=1, most=last + more, tolerance=0) == last


@given(st.integers(1, 10_000), st.integers(1, 10_000), st.floats(0, 0.5))
def test_with_a_tolerance_it_fits_and_is_at_most_so_much_too_small(last: int, more: int, tolerance: float) -> None:
    found = largest(lambda batch: batch <= last, least=1, most=last + more, tolerance=tolerance)

    assert found <= last <= found + tolerance * found


@settings(max_examples=20)
@given(st.sampled_from(["vgg16", "squeezenet"]), st.integers(0, 2**32 - 1), st.integers(0, 4))
def test_no_policy_takes_less_than_the_floor(model: str, seed: int, prefetch_ops: int) -> None:
    workload, rng = step(model, 16), np.random.default_rng(seed)
    actions = (Action.KEEP, Action.SWAP, Action.RECOMPUTE)
    policy = {
        tensor: actions[rng.integers(3 if can_recompute(workload, tensor) else 2)] for tensor in candidates(workload)
    }

    peak_bytes = max(resident_bytes(workload, schedule(workload, policy, 0, prefetch_ops)))

    assert floor_bytes(model, 16) <= peak_bytes


@pytest.mark.parametrize("reserve", RESERVES)
@pytest.mark.parametrize(("batch_of", "needed_bytes"), [(kept_batch, kept_bytes), (floor_batch, floor_bytes)])
def test_the_largest_batch_fits_and_the_next_does_not(reserve, batch_of, needed_bytes) -> None:
    last = batch_of(reserve, "vgg16")

    for batch, fits in ((last, True), (last + 1, False)):
        limit = limit_bytes(constants_at(reserve, "vgg16", batch))
        assert (needed_bytes("vgg16", batch) <= limit) is fits


@pytest.mark.parametrize("model", ["vgg16", "resnet"])
def test_both_reserves_are_the_same_at_the_largest_batch_of_pytorch(model: str) -> None:
    assert kept_batch("growing", model) == pytest.approx(kept_batch("fixed", model), rel=2e-3)


def test_beyond_it_the_growing_reserve_leaves_less() -> None:
    batch = kept_batch("fixed", "vgg16")
    fixed, at_twice, at_thrice = (
        limit_bytes(constants_at(*point))
        for point in (
            ("fixed", "vgg16", 2 * batch),
            ("growing", "vgg16", 2 * batch),
            ("growing", "vgg16", 3 * batch),
        )
    )

    assert fixed > at_twice > at_thrice
    assert floor_batch("growing", "vgg16") < floor_batch("fixed", "vgg16")
