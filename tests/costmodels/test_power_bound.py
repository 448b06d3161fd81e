import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepsim.costmodels.launch_floor import SHORTEST_S, without_launch
from stepsim.costmodels.power_bound import PowerBoundRooflines
from stepsim.errors import CalibrationError, NotFittedError
from stepsim.plan import Origin

BIG = {"peak_flop_per_s": 1e12, "memory_bandwidth_bytes_per_s": 1e10, "power_w": 100.0}
SMALL = {"peak_flop_per_s": 1e12, "memory_bandwidth_bytes_per_s": 1e10, "power_w": 10.0}


def products(gpu, rate_flop_per_s, op_class="linear"):
    flop = 1e10 * np.arange(1.0, 11.0)
    return pd.DataFrame(
        {"op_class": op_class, "flop": flop, "size_bytes": 1.0, "seconds": flop / rate_flop_per_s, **gpu}
    )


def moves(gpu, share):
    size_bytes = 1e8 * np.arange(1.0, 11.0)
    seconds = size_bytes / gpu["memory_bandwidth_bytes_per_s"] / share
    return pd.DataFrame({"op_class": "elementwise", "flop": 1.0, "size_bytes": size_bytes, "seconds": seconds, **gpu})


SAMPLES = pd.concat([products(BIG, 0.8e12), products(SMALL, 0.25e12), moves(BIG, 0.5)], ignore_index=True)
MODEL = PowerBoundRooflines().fit(SAMPLES)


def task(op_class="linear", flop=1e12, size_bytes=1.0, gpu=BIG):
    return pd.DataFrame({"op_class": [op_class], "flop": flop, "size_bytes": size_bytes, **gpu})


def test_the_flop_of_a_joule_are_those_of_the_gpu_that_gets_most_of_it():
    """The small board gets 0.25e12 / 10 W, the big one, which its peak bounds, 0.8e12 / 100 W."""
    assert MODEL.flop_per_joule_ == pytest.approx(0.25e11)


def test_power_bounds_the_small_board_and_the_peak_bounds_the_big_one():
    """Shares of what bounds them: 0.8 of the peak, and all of the power: the median of ten of each is 0.9."""
    assert MODEL.predict(task(gpu=BIG)).seconds == pytest.approx(1 / 0.9)
    assert MODEL.predict(task(gpu=SMALL)).seconds == pytest.approx(4 / 0.9)


def test_each_class_has_its_own_share_and_a_class_without_samples_none():
    moved = MODEL.predict(task("elementwise", flop=1.0, size_bytes=1e10))
    unknown = MODEL.predict(task("sort"))

    assert moved.seconds == pytest.approx(2.0)
    assert moved.origin.tolist() == [Origin.ROOFLINE]
    assert np.isnan(unknown.seconds).all()
    assert not unknown.in_range.any()


@given(
    flop=st.floats(0, 1e15), size_bytes=st.floats(0, 1e12), more=st.floats(1, 10), op_class=st.sampled_from(["linear"])
)
def test_more_work_takes_no_less_and_a_better_gpu_no_more(flop, size_bytes, more, op_class):
    base = MODEL.predict(task(op_class, flop, size_bytes)).seconds[0]
    better = {name: value * more for name, value in BIG.items()}

    assert MODEL.predict(task(op_class, flop * more, size_bytes)).seconds[0] >= base
    assert MODEL.predict(task(op_class, flop, size_bytes * more)).seconds[0] >= base
    assert MODEL.predict(task(op_class, flop, size_bytes, better)).seconds[0] <= base


def test_short_kernels_which_fill_no_gpu_do_not_count():
    short = products(BIG, 0.8e12).assign(flop=1e6, seconds=0.9e-4)

    assert PowerBoundRooflines().fit(pd.concat([SAMPLES, short])).predict(task()).seconds == pytest.approx(1 / 0.9)


def test_without_long_products_the_data_sheet_alone_bounds():
    model = PowerBoundRooflines().fit(moves(BIG, 0.5))

    assert model.flop_per_joule_ == np.inf
    assert model.predict(task("elementwise", 1.0, 1e10, SMALL)).seconds == pytest.approx(2.0)


def test_too_few_long_kernels_are_refused():
    with pytest.raises(CalibrationError, match="5 kernels of one class"):
        PowerBoundRooflines().fit(SAMPLES.groupby("op_class").head(4))


@pytest.mark.parametrize(("column", "value"), [("seconds", 0.0), ("power_w", np.nan), ("flop", -1.0)])
def test_a_senseless_sample_is_refused_by_column_and_value(column, value):
    with pytest.raises(CalibrationError, match=f"sample 3: {column} must be .*{value}"):
        PowerBoundRooflines().fit(SAMPLES.assign(**{column: SAMPLES[column].where(SAMPLES.index != 3, value)}))


def test_an_unfitted_model_says_so():
    with pytest.raises(NotFittedError, match="PowerBoundRooflines"):
        PowerBoundRooflines().predict(task())


def test_the_launch_is_what_the_fastest_kernel_of_a_class_and_gpu_takes():
    """GPU a: launch of 30 us for adds and 60 us for products; b: 20 us."""
    rows = [("a", "add", 30e-6), ("a", "add", 50e-6), ("a", "linear", 60e-6), ("b", "add", 20e-6), ("b", "add", 1.0)]
    samples = pd.DataFrame(rows, columns=["gpu", "op_class", "seconds"])

    bare_s = without_launch(samples)["seconds"] - SHORTEST_S

    assert bare_s.tolist() == pytest.approx([0.0, 20e-6, 0.0, 0.0, 1.0 - 20e-6])
    assert samples["seconds"].tolist() == [row[2] for row in rows]
