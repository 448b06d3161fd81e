import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepsim.costmodels.demands import DemandModel, bandwidth_share, collective_sm_share, slowdown
from stepsim.errors import CalibrationError, NotFittedError


def grids(per_block, *, op_class="add", sizes=(1_000, 10_000, 30_000, 100_000, 1_000_000), num_sms=80):
    """What an op class with one block for ``per_block`` elements launches."""
    rows = [
        {"op_class": op_class, "output_elements": size, "num_sms": num_sms, "blocks": -(-size // per_block)}
        for size in sizes
    ]
    return pd.DataFrame(rows)


def tasks(*output_elements, op_class="add", num_sms=80):
    return pd.DataFrame({"op_class": op_class, "output_elements": output_elements, "num_sms": num_sms})


def test_a_kernel_of_fewer_blocks_than_sms_needs_their_share():
    model = DemandModel().fit(grids(100))

    assert model.sm_share(tasks(100, 101, 4_000, 8_000, 10**9)) == pytest.approx([1 / 80, 2 / 80, 0.5, 1.0, 1.0])


def test_the_same_kernel_needs_more_of_a_smaller_gpu():
    model = DemandModel().fit(grids(100))

    assert model.sm_share(tasks(2_000, num_sms=40)) == pytest.approx([0.5])


def test_each_op_class_has_blocks_of_its_own():
    model = DemandModel().fit(pd.concat([grids(100), grids(1_000, op_class="linear")]))

    assert model.sm_share(tasks(8_000, op_class="linear")) == pytest.approx([0.1])


def test_a_class_without_recorded_grids_needs_all_sms():
    model = DemandModel().fit(grids(100))

    assert model.sm_share(tasks(1, op_class="fft")) == pytest.approx([1.0])


def test_the_left_out_error_of_a_class_that_follows_the_rule_is_nought_and_few_samples_have_none():
    model = DemandModel().fit(pd.concat([grids(1_000), grids(7, op_class="few", sizes=(7, 14))]))

    assert model.left_out_error_ == {"add": pytest.approx(0.0), "few": None}


def test_the_left_out_error_is_that_of_the_shares_left_out():
    """Of five sizes the middle one is left out: 40 of 80 SMs, where the others' rule says 400 / 100 blocks, 4 of 80."""
    samples = grids(100, sizes=(100, 200, 400, 800, 1_600))
    samples.loc[2, "blocks"] = 40

    assert DemandModel().fit(samples).left_out_error_["add"] == pytest.approx(36 / 80)


@given(st.lists(st.integers(1, 10**9), min_size=2, max_size=20))
def test_a_larger_output_never_needs_fewer_sms(sizes):
    share = DemandModel().fit(grids(512)).sm_share(tasks(*sorted(sizes)))

    assert (np.diff(share) >= 0).all()
    assert ((share > 0) & (share <= 1)).all()


def test_demands_are_refused_before_fit_and_without_samples():
    with pytest.raises(NotFittedError, match="DemandModel"):
        DemandModel().sm_share(tasks(1))
    with pytest.raises(CalibrationError, match="demands of kernels needs samples, got none"):
        DemandModel().fit(grids(1).iloc[:0])


@pytest.mark.parametrize("column", ["output_elements", "num_sms", "blocks"])
def test_a_senseless_grid_is_refused_by_column_and_value(column):
    with pytest.raises(CalibrationError, match=f"sample 3: {column} must be > 0, got 0"):
        DemandModel().fit(grids(100).assign(**{column: [1, 2, 3, 0, 5]}))


def test_moving_as_fast_as_memory_allows_takes_all_of_its_bandwidth():
    assert bandwidth_share([50, 100, 300, 0], 1.0, 100.0) == pytest.approx([0.5, 1.0, 1.0, 0.0])


def test_moving_in_no_time_takes_no_share():
    assert bandwidth_share([5.0], 0.0, 100.0) == pytest.approx([0.0])


def test_a_collective_holds_one_sm_for_each_channel():
    assert collective_sm_share(24, 108) == pytest.approx(24 / 108)
    assert collective_sm_share(400, 108) == 1.0


def test_a_kernel_is_slowed_by_what_it_needs_beyond_what_is_left():
    assert slowdown([1.0, 0.9, 0.5, 0.1], 0.25) == pytest.approx([4 / 3, 1.2, 1.0, 1.0])


def test_nothing_runs_where_nothing_is_left():
    assert slowdown([0.1], 1.0) == pytest.approx([np.inf])
