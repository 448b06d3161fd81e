import math

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepsim.costmodels.transfers import InterpolatedTransferModel

SIZES = st.integers(1, 2**40)
SECONDS = st.floats(1e-9, 1e3)
pytestmark = pytest.mark.filterwarnings("ignore:.*lies outside the fitted range")

MEASURED = st.dictionaries(SIZES, SECONDS, min_size=2, max_size=12).filter(lambda found: len({*found.values()}) > 1)


def fitted(seconds_by_size, factors=(1.0,)):
    rows = [
        {"size_bytes": size, "seconds": seconds * factor}
        for size, seconds in seconds_by_size.items()
        for factor in factors
    ]
    return InterpolatedTransferModel().fit(pd.DataFrame(rows))


def seconds(model, sizes):
    return model.predict(pd.DataFrame({"size_bytes": sizes})).seconds


def rising(seconds_by_size):
    return dict(zip(sorted(seconds_by_size), sorted(seconds_by_size.values()), strict=True))


@given(MEASURED.map(rising))
def test_a_measured_size_takes_what_was_measured(measured):
    model = fitted(measured)

    predicted = seconds(model, list(measured))

    assert predicted == pytest.approx(list(measured.values()), rel=1e-12)


def test_of_several_samples_of_a_size_the_median_counts():
    model = fitted({10: 1.0, 1000: 3.0}, factors=(1.0, 0.5, 90.0))

    assert seconds(model, [10, 1000]) == pytest.approx([1.0, 3.0], rel=1e-12)


@given(latency_s=SECONDS, bytes_per_s=st.floats(1e6, 1e12), size=st.integers(4, 4**10))
def test_latency_and_bandwidth_are_recovered_between_the_measured_sizes(latency_s, bytes_per_s, size):
    """Seconds are latency + size / bandwidth (Hockney)."""
    model = fitted({4**k: latency_s + 4**k / bytes_per_s for k in range(1, 11)})

    assert seconds(model, [size]) == pytest.approx([latency_s + size / bytes_per_s], rel=1e-9)


def test_above_the_largest_size_the_last_bandwidth_holds():
    model = fitted({10: 1.0, 100: 5.0})

    assert seconds(model, [200, 10**6]) == pytest.approx([5.0 * 200 / 100, 5.0 * 10**6 / 100], rel=1e-12)


def test_below_the_smallest_size_time_is_constant():
    model = fitted({10: 1.0, 100: 5.0})

    assert seconds(model, [0, 1, 9, 10]) == pytest.approx([1.0] * 4, rel=1e-12)


@given(MEASURED, st.lists(st.integers(0, 2**42), min_size=2, max_size=20))
def test_a_larger_transfer_never_takes_less(measured, sizes):
    model = fitted(measured)

    predicted = seconds(model, sorted(sizes))

    assert (predicted[1:] >= predicted[:-1] * (1 - 1e-12)).all()


def test_sizes_out_of_order_share_the_geometric_mean_of_their_times():
    """
    bytes       1    2    4    8
    measured    8    1    8    16
    fitted      sqrt(8) each   8    16
    """
    model = fitted({1: 8.0, 2: 1.0, 4: 8.0, 8: 16.0})

    assert model.seconds_ == pytest.approx([math.sqrt(8.0), math.sqrt(8.0), 8.0, 16.0])


def test_one_slow_small_copy_does_not_slow_all_larger_ones():
    """The mean of 60, 10, 10, 10, 20 in logs is 60000^(1/4) where 20 stays above it."""
    model = fitted({1: 60.0, 2: 10.0, 4: 10.0, 8: 10.0, 16: 20.0})

    assert seconds(model, [8, 16]) == pytest.approx([60_000 ** (1 / 4), 20.0])


def test_the_error_is_that_of_a_size_guessed_from_its_neighbours():
    """A third of the way from 1 s to 4 s the guess is 2 s, half of what was measured."""
    model = fitted({1: 1.0, 2: 4.0, 4: 4.0})

    assert model.size_error_ == pytest.approx(0.5)


def test_with_two_sizes_none_can_be_left_out():
    assert fitted({1: 1.0, 2: 4.0}).size_error_ is None
