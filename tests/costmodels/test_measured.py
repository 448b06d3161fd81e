import numpy as np
import pandas as pd
import pytest

from stepsim.costmodels.measured import Entry, MeasuredTable


def samples(**seconds_by_work):
    rows = [
        {"work": work, "name": f"op.{work}", "seconds": seconds}
        for work, all_seconds in seconds_by_work.items()
        for seconds in all_seconds
    ]
    return pd.DataFrame(rows)


def test_timed_work_costs_its_median_and_other_work_is_unknown():
    table = MeasuredTable().fit(samples(a=[3.0, 1.0, 100.0], b=[2.0, 4.0]))

    predicted = table.predict(pd.DataFrame({"work": ["b", "a", "never timed", "a"]})).seconds

    assert predicted[[0, 1, 3]].tolist() == [3.0, 3.0, 3.0]
    assert np.isnan(predicted[2])


def test_an_entry_tells_kind_spread_and_count():
    """Quartiles of 1, 2, 3, 4, 5 are 2, 3 and 4."""
    table = MeasuredTable().fit(samples(a=[5.0, 1.0, 4.0, 2.0, 3.0]))

    assert table.entries_ == {"a": Entry(kind="op.a", seconds=3.0, spread_s=1.0, count=5)}


def test_the_error_is_that_of_even_repeats_as_a_forecast_of_odd_ones():
    """For a: even 3, 3 forecast odd 2, 2: an error of 1/2. For b, whose repeats agree: 0. c has no repeats."""
    table = MeasuredTable().fit(samples(a=[3.0, 2.0, 3.0, 2.0], b=[7.0, 7.0], c=[1.0]))

    assert table.repeat_error_ == pytest.approx((1 / 2 + 0) / 2)


def test_without_repeats_there_is_no_error_to_tell():
    table = MeasuredTable().fit(samples(a=[3.0], b=[7.0]))

    assert table.repeat_error_ is None


def test_the_spread_is_that_of_a_log_normal_with_the_measured_quartiles():
    """Quartiles of 1, 2, 3, 4, 5 are 2 and 4 about 3; those of a normal lie 0.6745 standard deviations off."""
    table = MeasuredTable().fit(samples(a=[5.0, 1.0, 4.0, 2.0, 3.0], b=[7.0]))

    predicted = table.predict(pd.DataFrame({"work": ["a", "b"]}))

    assert predicted.spread == pytest.approx([1 / 3 / 0.6745, 0.0])


def test_work_that_was_never_timed_is_out_of_range():
    table = MeasuredTable().fit(samples(a=[3.0]))

    assert table.predict(pd.DataFrame({"work": ["a", "never timed"]})).in_range.tolist() == [True, False]
