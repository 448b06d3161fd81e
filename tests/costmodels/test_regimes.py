import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepsim.costmodels.regimes import fastest, fit_regimes, least_squares

POSITIVE = st.floats(0.01, 100.0)


def design(*sizes):
    return np.column_stack([np.ones(len(sizes)), np.array(sizes, dtype=float)])


@given(fixed=POSITIVE, slope=POSITIVE)
def test_two_weights_are_recovered_from_samples_without_noise(fixed, slope):
    terms = design(1, 10, 100)
    seconds = terms @ [fixed, slope]

    assert least_squares(terms / seconds[:, None]) == pytest.approx([fixed, slope], rel=1e-6)


def test_a_weight_that_would_be_negative_is_zero_and_the_other_fits_alone():
    """Times 1, 3 at sizes 1, 2 ask for a fixed cost of -1. Alone, a slope w errs by (w - 1) and (2 w / 3 - 1)."""
    terms = design(1, 2) / np.array([[1.0], [3.0]])

    assert least_squares(terms) == pytest.approx([0.0, (1 + 2 / 3) / (1 + 4 / 9)])


def test_a_term_that_no_sample_has_gets_no_weight():
    terms = np.column_stack([np.ones(3), np.zeros(3)])

    assert least_squares(terms) == pytest.approx([1.0, 0.0])
    assert least_squares(terms)[1] == 0.0


def test_samples_of_one_size_are_put_down_to_their_bytes():
    assert least_squares(design(10, 10) / 5.0) == pytest.approx([0.0, 0.5])


@given(st.lists(POSITIVE, min_size=6, max_size=18))
def test_weights_are_never_negative(values):
    terms = np.array(values[: len(values) // 3 * 3]).reshape(-1, 3)

    assert (least_squares(terms) >= 0).all()


def test_the_fastest_regime_counts():
    regimes = np.array([[1.0, 2.0], [10.0, 1.0]])

    assert fastest(design(1, 9, 20), regimes).tolist() == [3.0, 19.0, 30.0]


def test_three_protocols_are_recovered_from_times_without_noise():
    """Latencies 1, 5, 40 and slopes 1, 1/4, 1/16 cross at sizes 5.3 and 187."""
    lines = np.array([[1.0, 1.0], [5.0, 0.25], [40.0, 0.0625]])
    sizes = 2.0 ** np.arange(14)

    found = fit_regimes(design(*sizes), fastest(design(*sizes), lines), sizes, 3)

    assert found[np.argsort(found[:, 0])] == pytest.approx(lines, rel=1e-6)


def test_fewer_regimes_than_asked_for_serve_where_one_fits():
    sizes = 2.0 ** np.arange(12)

    found = fit_regimes(design(*sizes), 3 + 2 * sizes, sizes, 3)

    assert fastest(design(*sizes), found) == pytest.approx(3 + 2 * sizes)
