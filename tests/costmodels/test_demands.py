import json

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepsim.costmodels.demands import (
    DemandModel,
    Tile,
    bandwidth_share,
    collective_sm_share,
    slowdown,
    taken_share,
)
from stepsim.errors import CalibrationError, NotFittedError

SHAPES = [(1, 10), (7, 700), (64, 512), (100, 3_000), (300, 40), (1_000, 1_000)]


def tasks(*shapes, op_class="bmm", batch=1, num_sms=80):
    rows, columns = zip(*shapes, strict=True)
    return pd.DataFrame({"op_class": op_class, "batch": batch, "m": rows, "n": columns, "num_sms": num_sms})


def grids(rows, columns, shapes=tuple(SHAPES), **facts):
    """What a class whose blocks compute ``rows x columns`` launches."""
    found = tasks(*shapes, **facts)
    return found.assign(blocks=found["batch"] * -(-found["m"] // rows) * -(-found["n"] // columns))


def test_a_kernel_of_fewer_tiles_than_sms_needs_their_share():
    """Tiles of 64 x 32: one, then 2 x 2, then 2 x 20 for half of 80 SMs, then more than there are SMs."""
    model = DemandModel().fit(grids(64, 32))

    share = model.sm_share(tasks((64, 32), (65, 33), (128, 640), (10_000, 10_000)))

    assert share == pytest.approx([1 / 80, 4 / 80, 0.5, 1.0])


def test_the_same_kernel_needs_more_of_a_smaller_gpu():
    model = DemandModel().fit(grids(64, 32))

    assert model.sm_share(tasks((128, 320), num_sms=40)) == pytest.approx([0.5])


def test_each_op_class_has_tiles_of_its_own():
    model = DemandModel().fit(pd.concat([grids(64, 32), grids(2, 128, op_class="softmax")]))

    assert {name: (tile.rows, tile.columns) for name, tile in model.tiles_.items()} == {
        "bmm": (64, 32),
        "softmax": (2, 128),
    }


def test_a_class_with_a_block_for_each_row_needs_as_many_sms_as_rows_however_long_they_are():
    model = DemandModel().fit(grids(1, 10**9, shapes=[(3, 8), (8, 2_000), (20, 70_000)], op_class="layernorm"))

    assert model.tiles_["layernorm"].columns is None
    assert model.sm_share(tasks((8, 10), (8, 10**6), op_class="layernorm")) == pytest.approx([0.1, 0.1])


def test_every_matrix_of_a_batch_has_tiles_of_its_own_and_images_of_a_convolution_share_them():
    """Of 8 times 16 rows a tile of 64 holds 4 images, but rows of one matrix only."""
    samples = pd.concat([grids(64, 32), grids(64, 32, op_class="conv")])

    model = DemandModel().fit(samples)

    assert model.sm_share(tasks((16, 32), batch=8)) == pytest.approx([8 / 80])
    assert model.sm_share(tasks((16, 32), batch=8, op_class="conv")) == pytest.approx([2 / 80])


def test_an_elementwise_op_sees_one_long_row():
    """100 rows of 512, or 512 rows of 100: 100 blocks of 512 elements."""
    samples = tasks((1, 512), (1, 5_000), (1, 20_000), op_class="elementwise", num_sms=200)
    model = DemandModel().fit(samples.assign(blocks=[1, 10, 40]))

    share = model.sm_share(tasks((100, 512), (512, 100), op_class="elementwise", num_sms=200))

    assert share == pytest.approx([0.5, 0.5])


def test_a_class_without_recorded_grids_needs_all_sms():
    model = DemandModel().fit(grids(64, 32))

    assert model.sm_share(tasks((1, 1), op_class="")) == pytest.approx([1.0])


def test_the_errors_of_a_class_that_follows_the_rule_are_nought_and_few_samples_have_none():
    few = grids(1, 1, shapes=[(1, 2), (1, 3)], op_class="few")

    tiles = DemandModel().fit(pd.concat([grids(64, 32), few])).tiles_

    assert tiles["bmm"].error == tiles["bmm"].free_error == pytest.approx(0.0)
    assert tiles["few"].error is tiles["few"].free_error is None


def test_errors_are_those_of_the_shares_left_out():
    """A block for each row, and 10 SMs; the third of five is left out: it had 3 blocks where the rule says 2."""
    samples = tasks((1, 1), (1, 1), (2, 1), (4, 1), (10, 1), op_class="layernorm", num_sms=10)

    tile = DemandModel().fit(samples.assign(blocks=[1, 1, 3, 4, 10])).tiles_["layernorm"]

    assert (tile.rows, tile.error, tile.free_error) == (1, pytest.approx(0.1), pytest.approx(0.1))


@given(st.lists(st.tuples(st.integers(1, 10**5), st.integers(1, 10**5)), min_size=1, max_size=9))
def test_a_larger_output_never_needs_fewer_sms(shapes):
    model = DemandModel().fit(grids(64, 32))

    share = model.sm_share(tasks(*shapes))
    taller = model.sm_share(tasks(*((2 * rows, columns) for rows, columns in shapes)))

    assert ((share > 0) & (share <= taller) & (taller <= 1)).all()


def test_a_model_that_went_through_json_says_the_same():
    model = DemandModel().fit(pd.concat([grids(64, 32), grids(1, 10**9, op_class="layernorm")]))

    again = DemandModel.from_json(json.loads(json.dumps(model.as_json(), allow_nan=False)))

    assert again.tiles_ == model.tiles_
    assert isinstance(again.tiles_["bmm"], Tile)


def test_demands_are_refused_before_fit_and_without_samples():
    with pytest.raises(NotFittedError, match="DemandModel"):
        DemandModel().sm_share(tasks((1, 1)))
    with pytest.raises(CalibrationError, match="demands of kernels needs samples, got none"):
        DemandModel().fit(grids(1, 1).iloc[:0])


@pytest.mark.parametrize("column", ["batch", "m", "n", "num_sms", "blocks"])
def test_a_senseless_grid_is_refused_by_column_and_value(column):
    with pytest.raises(CalibrationError, match=f"sample 3: {column} must be > 0, got 0"):
        DemandModel().fit(grids(64, 32).assign(**{column: [1, 2, 3, 0, 5, 6]}))


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


@given(st.floats(0, 0.99))
def test_the_share_that_a_slowdown_tells_makes_that_slowdown(taken):
    beside_s = slowdown([1.0, 1.0], taken) * [2.0, 3.0]

    assert taken_share([2.0, 3.0], beside_s) == pytest.approx(taken)


def test_kernels_that_were_faster_beside_others_tell_of_no_share():
    assert taken_share([2.0], [1.9]) == 0.0
