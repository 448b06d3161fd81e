import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepsim.costmodels.efficiency import EfficientRoofline
from stepsim.errors import CalibrationError
from stepsim.plan import Origin

PEAK_FLOP_PER_S, BANDWIDTH_BYTES_PER_S = 1e12, 1e9
GPU = {"peak_flop_per_s": PEAK_FLOP_PER_S, "memory_bandwidth_bytes_per_s": BANDWIDTH_BYTES_PER_S}


def work(flop, size_bytes, seconds):
    return pd.DataFrame({"flop": flop, "size_bytes": size_bytes, "seconds": seconds, **GPU})


def products(count, efficiency):
    flop = 1e12 * np.arange(1.0, count + 1)
    return work(flop, 1e3, flop / PEAK_FLOP_PER_S / efficiency)


def copies(count, efficiency):
    size_bytes = 1e9 * np.arange(1.0, count + 1)
    return work(1e3, size_bytes, size_bytes / BANDWIDTH_BYTES_PER_S / efficiency)


MODEL = EfficientRoofline().fit(pd.concat([products(10, 0.5), copies(10, 0.8)]))


def test_the_shares_of_the_peaks_that_work_reached_are_found_again():
    assert MODEL.compute_efficiency_ == pytest.approx(0.5)
    assert MODEL.memory_efficiency_ == pytest.approx(0.8)
    assert MODEL.left_out_error_ == pytest.approx(0.0, abs=1e-12)


def test_a_gpu_with_twice_the_peaks_takes_half_the_time():
    tasks = work([4e12, 1e3], [1e3, 4e9], 1.0)
    faster = tasks.assign(**{name: 2 * value for name, value in GPU.items()})

    assert MODEL.predict(tasks).seconds == pytest.approx([8.0, 5.0])
    assert MODEL.predict(faster).seconds == pytest.approx([4.0, 2.5])
    assert MODEL.predict(tasks).origin.tolist() == [Origin.ROOFLINE] * 2


def test_a_peak_that_nothing_came_near_is_taken_whole():
    assert EfficientRoofline().fit(copies(10, 0.8)).compute_efficiency_ == 1.0


def test_the_error_is_that_of_samples_left_out():
    samples = products(10, 0.5)
    samples.loc[[4, 9], "seconds"] *= 2  # every fifth

    assert EfficientRoofline().fit(samples).left_out_error_ == pytest.approx(0.5)


@given(st.floats(1, 1e15), st.floats(1, 1e12), st.floats(1, 10))
def test_more_flop_or_bytes_never_take_less_time(flop, size_bytes, factor):
    tasks = work([flop, flop * factor, flop], [size_bytes, size_bytes, size_bytes * factor], 1.0)

    seconds = MODEL.predict(tasks).seconds

    assert (seconds[1:] >= seconds[0]).all()


@pytest.mark.parametrize(
    ("samples", "message"),
    [
        (products(4, 0.5), "needs at least 5 samples, got 4"),
        (products(9, 0.5).assign(peak_flop_per_s=0.0), "peak_flop_per_s must be > 0, got 0.0"),
        (products(9, 0.5).assign(flop=0.0, size_bytes=0.0), "needs work that computes or moves anything"),
        (products(9, 0.5).assign(flop=-1.0), "flop must be >= 0, got -1.0"),
    ],
)
def test_samples_that_teach_nothing_are_refused(samples, message):
    with pytest.raises(CalibrationError, match=message):
        EfficientRoofline().fit(samples)
