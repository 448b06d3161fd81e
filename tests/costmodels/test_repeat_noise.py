import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepsim.costmodels.noise import repeat_noise, spread_of


def repeated(*seconds, size_bytes=1):
    return pd.DataFrame({"size_bytes": size_bytes, "seconds": seconds})


def test_spread_adds_the_squares_of_error_and_noise():
    """log1p(e^0.3 - 1) is 0.3; with 0.4 of noise that makes 0.5."""
    assert spread_of(np.expm1(0.3), 0.4) == pytest.approx(0.5)
    assert spread_of(None, 0.4) == pytest.approx(0.4)
    assert spread_of(np.expm1(0.3)) == pytest.approx(0.3)


def test_the_noise_of_log_normal_repeats_is_their_sigma():
    random = np.random.default_rng(0)
    seconds = np.exp(random.normal(0, 0.1, (2000, 3))) * np.arange(1, 2001)[:, None]
    samples = pd.concat([repeated(*row, size_bytes=size) for size, row in enumerate(seconds.tolist())])

    assert repeat_noise(samples, ["size_bytes"]) == pytest.approx(0.1, rel=0.05)


def test_of_two_repeats_each_lies_half_their_distance_from_the_middle():
    """Deviations of log 2 / 2 each; of two the standard deviation is sqrt 2 times that."""
    assert repeat_noise(repeated(1.0, 2.0), ["size_bytes"]) == pytest.approx(np.log(2) / np.sqrt(2))


def test_samples_that_were_never_repeated_tell_of_no_noise():
    assert repeat_noise(pd.concat([repeated(1.0), repeated(5.0, size_bytes=2)]), ["size_bytes"]) == 0.0


def test_the_ends_of_repeats_tell_the_noise_as_the_repeats_themselves_do():
    told = repeated(2.0).assign(least_seconds=1.0, most_seconds=3.0)

    assert repeat_noise(told, ["size_bytes"]) == repeat_noise(repeated(1.0, 2.0, 3.0), ["size_bytes"])
    assert repeat_noise(told.assign(least_seconds=np.nan, most_seconds=np.nan), ["size_bytes"]) == 0.0


def test_one_repeat_in_six_that_takes_a_hundred_times_as_long_is_no_noise_of_the_others():
    steady = [repeated(1.0, 1.0, 1.0, size_bytes=size) for size in range(5)]

    assert repeat_noise(pd.concat([*steady, repeated(1.0, 1.0, 100.0, size_bytes=9)]), ["size_bytes"]) == 0.0


@given(st.lists(st.floats(1e-6, 1.0), min_size=2, max_size=9), st.sampled_from([0.25, 2.0, 1024.0]))
def test_noise_does_not_depend_on_the_unit_of_time(seconds, unit):
    there, here = repeated(*seconds), repeated(*(unit * value for value in seconds))

    assert repeat_noise(here, ["size_bytes"]) == pytest.approx(repeat_noise(there, ["size_bytes"]), abs=1e-9)
