import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepsim.costmodels.roofline import Roofline

pytestmark = pytest.mark.filterwarnings("ignore:.*lies outside the fitted range")

RATES = st.floats(1e3, 1e15)


def fitted(*work):
    return Roofline().fit(pd.DataFrame(work, columns=["flop", "size_bytes", "seconds"], dtype=float))


def bound_s(model, flop, size_bytes):
    return model.predict(pd.DataFrame({"flop": flop, "size_bytes": size_bytes})).seconds


@given(flop_per_s=RATES, bytes_per_s=RATES, sizes=st.lists(st.integers(1, 10**12), min_size=2, max_size=8))
def test_the_rates_of_a_machine_are_recovered_from_work_on_either_side(flop_per_s, bytes_per_s, sizes):
    """Half of the work only moves bytes; the other half computes twice as long as its bytes take."""
    moving = [(0, size, size / bytes_per_s) for size in sizes]
    computing = [(2 * flop_per_s * size / bytes_per_s, size, 2 * size / bytes_per_s) for size in sizes]

    model = fitted(*moving, *computing)

    assert model.flop_per_s_ == pytest.approx(flop_per_s, rel=1e-9)
    assert model.bytes_per_s_ == pytest.approx(bytes_per_s, rel=1e-9)
    assert model.left_out_error_ == pytest.approx(0.0, abs=1e-9)


def test_work_takes_the_longer_of_its_flop_and_its_bytes():
    model = fitted((0, 100, 10.0), (600, 0, 2.0))  # 10 bytes/s, 300 FLOP/s

    predicted = bound_s(model, [300.0, 3000.0, 0.0], [50.0, 50.0, 20.0])

    assert predicted == pytest.approx([5.0, 10.0, 2.0])


def test_the_rates_are_medians():
    model = fitted((0, 10, 1.0), (0, 40, 2.0), (0, 900, 1.0), (5, 0, 1.0), (14, 0, 2.0), (900, 0, 1.0))

    assert (model.bytes_per_s_, model.flop_per_s_) == (20.0, 7.0)


def test_work_with_flop_that_is_bound_by_its_bytes_says_nothing_of_the_flop_rate():
    """10 bytes/s: the last needs 30 s for its bytes and took 20."""
    model = fitted((0, 100, 10.0), (600, 0, 2.0), (1, 300, 20.0))

    assert model.flop_per_s_ == 300.0


def test_a_rate_that_no_work_has_shown_bounds_nothing():
    model = fitted((0, 100, 10.0), (0, 200, 20.0))

    assert bound_s(model, [1e30], [50.0]) == pytest.approx([5.0])


def test_the_error_is_that_of_work_left_out():
    """From the other alone, 100 bytes in 10 s and 100 bytes in 5 s are guessed as 5 s and 10 s: off by 1/2 and by 1."""
    model = fitted((0, 100, 10.0), (0, 100, 5.0))

    assert model.left_out_error_ == pytest.approx((1 / 2 + 1) / 2)
