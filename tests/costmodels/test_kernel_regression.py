import json
import warnings

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepsim.costmodels.kernels import DEVICE, KernelRegression, held_out, with_device
from stepsim.costmodels.kernels.features import LAUNCH_S, kernel_features, roofline_s
from stepsim.costmodels.kernels.split import PARTS, part_of
from stepsim.costmodels.kernels.trees import Boosting
from stepsim.errors import CalibrationError, NotFittedError
from stepsim.machines import load_machine
from stepsim.plan import Origin
from stepsim.traces.kernel_tables import SHAPE

FEW_TREES = Boosting(trees=40, depth=3, rate=0.2)
V100 = load_machine("v100_pcie").devices[0]
T4 = load_machine("t4").devices[0]


def products(count=200, device=V100, seed=0, op_class="linear"):
    """Products of random shapes that take twice what the data sheet says, and the launch."""
    m, n, k = np.random.default_rng(seed).integers(64, 4096, (3, count))
    rows = pd.DataFrame({"op_class": op_class, "dtype": "float32", "batch": 1, "m": m, "n": n, "k": k})
    rows = rows.assign(kernel_area=1, stride=1, flop=2.0 * m * n * k, size_bytes=4.0 * (m * k + n * k + m * n))
    rows = with_device(rows, device)
    return rows.assign(seconds=2 * (roofline_s(rows) + LAUNCH_S))


def test_the_roofline_is_the_longer_of_computing_and_moving():
    """14e12 FLOP at 14 TFLOP/s take 1 s; 1800e9 bytes at 900 GB/s take 2 s."""
    rows = products(2).assign(flop=[14e12, 1.0], size_bytes=[1.0, 1800e9])

    assert roofline_s(rows) == pytest.approx([1.0, 2.0])


def test_a_board_that_cannot_feed_its_peak_computes_at_what_its_power_gives():
    """250 W at 14e9 FLOP a joule give 3.5 of the 14 TFLOP/s."""
    rows = products(1).assign(flop=14e12, size_bytes=1.0)

    assert roofline_s(rows, 14e9) == pytest.approx([4.0])


def test_features_tell_how_much_of_a_tile_and_of_a_wave_is_used():
    """One output row more than a tile of 128 x 128 needs two tiles, used by 129 / 256."""
    full, over = (products(1).assign(m=m, n=128, k=64) for m in (128, 129))

    first_tile = slice(16, 19)
    assert kernel_features(full)[0, first_tile] == pytest.approx([1.0, 1 / 80, np.log2(1 / 80)])
    assert kernel_features(over)[0, first_tile] == pytest.approx([129 / 256, 2 / 80, np.log2(2 / 80)])


def test_kernels_at_half_the_roofline_are_predicted_on_shapes_that_were_not_seen():
    fresh = products(seed=1).query("m < 4000 and n < 4000 and k < 4000")

    said = KernelRegression(FEW_TREES).fit(products()).predict(fresh)

    assert said.seconds == pytest.approx(fresh["seconds"].to_numpy(), rel=0.05)
    assert (said.origin == Origin.REGRESSED).all()


def test_what_one_gpu_taught_carries_over_to_another_by_its_data_sheet():
    """The other gets as many FLOP out of a joule."""
    other = products(device=T4, seed=1).query("m < 4000 and n < 4000 and k < 4000")
    other = other.assign(power_w=V100.power_w * 8.1e12 / 14e12)

    said = KernelRegression(FEW_TREES).fit(products()).predict(other)

    assert said.seconds == pytest.approx(other["seconds"].to_numpy(), rel=0.1)


def test_a_gpu_of_which_no_kernel_was_timed_gets_a_prediction():
    model = KernelRegression(FEW_TREES).fit(products())

    for name in ("a100_pcie", "l4", "hgx_h100"):
        said = model.predict(products(5, load_machine(name).devices[0]))
        assert (said.seconds > 0).all()


def test_of_a_class_that_was_never_timed_nothing_is_said():
    said = KernelRegression(FEW_TREES).fit(products()).predict(products(3, op_class="bmm"))

    assert np.isnan(said.seconds).all()
    assert not said.in_range.any()


def test_a_shape_outside_the_samples_is_warned_of_once():
    model = KernelRegression(FEW_TREES).fit(products())
    tasks = products(2).assign(m=[100, 100_000])

    with pytest.warns(UserWarning, match="m 100000 lies outside the fitted range"):
        said = model.predict(tasks)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.predict(tasks)

    assert said.in_range.tolist() == [True, False]


def test_what_was_learnt_survives_json_and_is_small():
    model = KernelRegression().fit(pd.concat([products(), products(op_class="bmm")]))
    text = json.dumps(model.as_json())

    again = KernelRegression.from_json(json.loads(text))

    tasks = products(50, seed=4).assign(m=1000, n=1000)
    assert again.predict(tasks).seconds == pytest.approx(model.predict(tasks).seconds, rel=0.02)
    assert again.fits_["bmm"].fitted == model.fits_["bmm"].fitted
    assert len(text) < 2 * 60_000, "an op class takes at most 60 kB"


@pytest.mark.parametrize("document", [{"linear": {}}, {"linear": 3}, [], {"linear": {"flop_per_joule": "many"}}])
def test_a_document_of_another_form_is_no_regression(document):
    with pytest.raises(CalibrationError, match="no kernel regression"):
        KernelRegression.from_json(document)


def test_it_cannot_predict_before_it_is_fitted():
    with pytest.raises(NotFittedError):
        KernelRegression().predict(products(1))
    with pytest.raises(NotFittedError):
        KernelRegression().as_json()


@pytest.mark.parametrize(
    ("samples", "told"),
    [
        (products(0), "needs samples|need samples"),
        (products(5), "at least 20 shapes, got 5"),
        (products().assign(seconds=1.0), "constant times"),
        (products().assign(seconds=np.nan), "seconds must be > 0"),
        (products().assign(num_sms=0), "num_sms must be > 0"),
    ],
    ids=["none", "few", "constant", "NaN", "no SMs"],
)
def test_samples_that_teach_nothing_are_refused(samples, told):
    with pytest.raises(CalibrationError, match=told):
        KernelRegression(FEW_TREES).fit(samples)


def test_a_device_without_a_peak_for_the_dtype_is_named():
    with pytest.raises(CalibrationError, match="no peak_flop_per_s for 'float8'"):
        with_device(products(1).assign(dtype="float8"), V100)


def test_the_columns_of_a_device_are_its_data_sheet():
    rows = products(1, T4)

    assert rows[list(DEVICE)].iloc[0].tolist() == [8.1e12, 320e9, 40, 4194304, 70]


@given(st.lists(st.integers(1, 10**6), min_size=1, max_size=20))
def test_a_shape_is_held_out_whatever_stands_around_it(sizes):
    shapes = pd.DataFrame(dict.fromkeys(SHAPE, 1), index=range(len(sizes))).assign(m=sizes)

    alone = [bool(held_out(shapes.iloc[[row]])[0]) for row in range(len(shapes))]

    assert held_out(shapes).tolist() == alone


def test_about_a_fifth_of_the_shapes_is_held_out_and_other_seeds_part_them_otherwise():
    shapes = products(5000)

    parts = part_of(shapes, 7)

    assert np.bincount(parts, minlength=PARTS) == pytest.approx([1000] * PARTS, rel=0.1)
    assert held_out(shapes).mean() == pytest.approx(0.2, abs=0.02)
    assert held_out(shapes)[parts == 0].mean() == pytest.approx(0.2, abs=0.05)
