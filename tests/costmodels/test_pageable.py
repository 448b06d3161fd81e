import json

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stepsim.costmodels.copies import CopyModel
from stepsim.costmodels.pageable import StagedCopy

pytestmark = pytest.mark.filterwarnings("ignore:.*lies outside the fitted range")

SIZES = [4**k for k in range(5, 15)]

FEW = settings(max_examples=20)
"""Each example fits anew."""


def staged(size_bytes):
    """10 us, 10 GB/s for the first MiB, 5 GB/s for the rest."""
    return 1e-5 + min(size_bytes, 2**20) / 1e10 + max(size_bytes - 2**20, 0) / 5e9


def copies(seconds_of, sizes=tuple(SIZES)):
    return pd.DataFrame({"size_bytes": sizes, "seconds": [seconds_of(size) for size in sizes]})


def test_latency_both_rates_and_where_they_change_are_recovered():
    model = StagedCopy().fit(copies(staged))

    assert model.latency_s_ == pytest.approx(1e-5)
    assert model.first_bytes_ == 2**20
    assert [model.s_per_byte_, model.rest_s_per_byte_] == pytest.approx([1e-10, 2e-10])
    assert model.fit_error_ == pytest.approx(0.0, abs=1e-9)


@pytest.mark.parametrize("size", [1, 5_000, 3 * 2**20, 2**33])
def test_any_size_takes_what_the_first_bytes_and_the_rest_take(size):
    model = StagedCopy().fit(copies(staged))

    assert model.predict(pd.DataFrame({"size_bytes": [size]})).seconds == pytest.approx([staged(size)])


def test_two_sizes_make_one_line():
    model = StagedCopy().fit(copies(staged, sizes=(1_000, 2_000)))

    assert model.s_per_byte_ == model.rest_s_per_byte_ == pytest.approx(1e-10)
    assert model.size_error_ is None


def test_a_rate_that_rises_with_the_size_is_taken_to_be_one():
    """A larger latency with a larger rate is the matter of pinned memory: here the rest is never faster."""
    model = StagedCopy().fit(copies(lambda size: 1e-5 + min(size, 2**20) / 5e9 + max(size - 2**20, 0) / 1e10))

    assert model.rest_s_per_byte_ >= model.s_per_byte_


@FEW
@given(
    st.lists(st.floats(1e-6, 1.0), min_size=2, max_size=9, unique=True),
    st.lists(st.integers(0, 2**42), min_size=2, max_size=12),
)
def test_a_larger_copy_never_takes_less_whatever_was_measured(measured_s, sizes):
    samples = copies(lambda size: measured_s[SIZES.index(size)], sizes=SIZES[: len(measured_s)])
    model = StagedCopy().fit(samples)

    predicted = model.seconds_of(np.array(sorted(sizes), dtype=float))

    assert (predicted[1:] >= predicted[:-1] * (1 - 1e-12)).all()


def test_copies_of_pageable_memory_come_back_from_json_as_what_they_were():
    facts = {"source": "pageable", "destination": "device", "opposite": False, "at_once": 1}
    model = CopyModel().fit(copies(staged).assign(**facts))

    again = CopyModel.from_json(json.loads(json.dumps(model.as_json(), allow_nan=False)))

    asked = pd.DataFrame([{**facts, "size_bytes": 3 * 2**20}])
    assert isinstance(again.curves_["pageable to device"], StagedCopy)
    assert again.predict(asked).seconds.tolist() == model.predict(asked).seconds.tolist()
