import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stepsim.costmodels.copies import CopyModel, Lines, curve_from_json
from stepsim.costmodels.transfers import InterpolatedTransferModel
from stepsim.errors import CalibrationError

pytestmark = pytest.mark.filterwarnings("ignore:.*lies outside the fitted range")

SIZES = [4**k for k in range(5, 15)]
FACTS = {"source": "pinned", "destination": "device", "opposite": False, "at_once": 1}


def copies(seconds_of, sizes=SIZES, **facts):
    return pd.DataFrame([{**FACTS, **facts, "size_bytes": size, "seconds": seconds_of(size)} for size in sizes])


def line(latency_s, bytes_per_s):
    return lambda size: latency_s + size / bytes_per_s


def seconds(model, **facts):
    return model.predict(pd.DataFrame([{**FACTS, **facts}])).seconds[0]


FEW = settings(max_examples=20)
"""Each example fits anew."""


@FEW
@given(latency_s=st.floats(1e-6, 1e-3), bytes_per_s=st.floats(1e8, 1e11), size=st.integers(4**5, 4**14))
def test_latency_and_bandwidth_are_recovered(latency_s, bytes_per_s, size):
    """Seconds are latency + size / bandwidth (Hockney)."""
    truth = line(latency_s, bytes_per_s)

    model = Lines().fit(copies(truth))

    assert model.predict(pd.DataFrame({"size_bytes": [size]})).seconds == pytest.approx([truth(size)], rel=1e-3)


def test_below_the_smallest_size_latency_remains_and_above_the_largest_its_bandwidth():
    """1 kB would take 10.1 us; 4 MB take 410 us, and so four times as many bytes four times as long."""
    model = Lines().fit(copies(line(1e-5, 1e10), sizes=[4000, 40_000, 400_000, 4_000_000]))

    asked = model.predict(pd.DataFrame({"size_bytes": [1000, 16_000_000]}))

    assert asked.seconds == pytest.approx([10.1e-6, 4 * 410e-6])


def test_at_the_half_size_a_copy_has_half_of_its_bandwidth():
    """n_1/2 = latency * bandwidth (Hockney): 10 us at 10 GB/s are 100 kB."""
    model = Lines().fit(copies(line(1e-5, 1e10)))

    taken_s = model.predict(pd.DataFrame({"size_bytes": [100_000]})).seconds[0]

    assert 100_000 / taken_s == pytest.approx(5e9, rel=1e-6)


def test_the_error_is_that_of_sizes_left_out():
    truth = copies(line(1e-5, 1e10))
    noisy = truth.assign(seconds=truth["seconds"] * np.where(np.arange(len(truth)) % 2, 1.1, 0.9))

    assert Lines().fit(truth).size_error_ == pytest.approx(0.0, abs=1e-3)
    assert 0.05 < Lines().fit(noisy).size_error_ < 0.3


def test_with_few_sizes_no_error_is_told_for_sizes_left_out():
    assert Lines().fit(copies(line(1e-5, 1e10), sizes=SIZES[:7])).size_error_ is None


@FEW
@given(
    st.lists(st.floats(1e-6, 1.0), min_size=2, max_size=9, unique=True),
    st.lists(st.integers(0, 2**42), min_size=2, max_size=12),
)
def test_a_larger_copy_never_takes_less_whatever_was_measured(measured_s, sizes):
    samples = copies(lambda size: measured_s[SIZES.index(size)], sizes=SIZES[: len(measured_s)])
    model = CopyModel().fit(samples)

    predicted = model.predict(pd.DataFrame([{**FACTS, "size_bytes": size} for size in sorted(sizes)])).seconds

    assert (predicted[1:] >= predicted[:-1] * (1 - 1e-12)).all()


@FEW
@given(slower=st.floats(1e8, 1e12), times=st.floats(1.0, 100.0), size=st.integers(1, 2**40))
def test_a_link_of_more_bandwidth_never_takes_longer(slower, times, size):
    slow = Lines().fit(copies(line(1e-5, slower)))
    fast = Lines().fit(copies(line(1e-5, slower)))
    fast.lines_ = slow.lines_ / [1.0, times]

    asked = pd.DataFrame({"size_bytes": [size]})

    assert fast.predict(asked).seconds[0] <= slow.predict(asked).seconds[0]


def test_each_way_and_kind_of_memory_has_its_own_times():
    there, back = copies(line(1e-5, 1e10)), copies(line(2e-5, 5e9), source="device", destination="pageable")

    model = CopyModel().fit(pd.concat([there, back]))

    assert seconds(model, size_bytes=10**8) == pytest.approx(1e-5 + 0.01, rel=1e-3)
    assert seconds(model, source="device", destination="pageable", size_bytes=10**8) == pytest.approx(
        2e-5 + 0.02, rel=1e-3
    )


def test_a_way_that_nobody_timed_is_unknown():
    model = CopyModel().fit(copies(line(1e-5, 1e10)))

    assert math.isnan(seconds(model, source="pageable", size_bytes=10**8))


def test_copies_both_ways_at_once_slow_each_other_as_measured():
    """Alone 10 ms; together 12.5 ms."""
    both = copies(lambda size: 1.25 * line(1e-5, 1e10)(size), sizes=[10**8], opposite=True)

    model = CopyModel().fit(pd.concat([copies(line(1e-5, 1e10)), both]))

    assert model.both_ways_factor_ == pytest.approx(1.25, rel=1e-3)
    assert seconds(model, size_bytes=10**7, opposite=True) == pytest.approx(1.25 * (1e-5 + 1e-3), rel=1e-3)


def test_a_copy_the_other_way_is_never_taken_to_help():
    both = copies(lambda size: 0.5 * line(1e-5, 1e10)(size), sizes=[10**8], opposite=True)

    assert CopyModel().fit(pd.concat([copies(line(1e-5, 1e10)), both])).both_ways_factor_ == 1.0


def test_gpus_behind_one_uplink_share_its_bandwidth():
    """8 GPUs with 100 MB each in 40 ms: the uplink moves 20 GB/s. Two of them are bound by it, and one is not."""
    shared = copies(lambda size: 0.04, sizes=[10**8], at_once=8)

    model = CopyModel().fit(pd.concat([copies(line(1e-5, 1.5e10)), shared]))

    assert model.uplink_bytes_per_s_ == pytest.approx(2e10)
    assert seconds(model, size_bytes=10**9, at_once=8) == pytest.approx(0.4)
    assert seconds(model, size_bytes=10**9, at_once=2) == pytest.approx(0.1)
    assert seconds(model, size_bytes=10**9) == pytest.approx(1e-5 + 1 / 15, rel=1e-3)


def test_copies_that_never_ran_alone_are_refused():
    with pytest.raises(CalibrationError, match="some that ran alone"):
        CopyModel().fit(copies(line(1e-5, 1e10), at_once=2))


def test_a_way_with_one_size_is_refused_by_name():
    back = copies(line(1e-5, 1e10), sizes=[1024], source="device", destination="pinned")

    with pytest.raises(CalibrationError, match="device to pinned: transfers: size_bytes must have at least 2"):
        CopyModel().fit(pd.concat([copies(line(1e-5, 1e10)), back]))


@pytest.mark.parametrize("model", [Lines(), InterpolatedTransferModel()], ids=["lines", "interpolated"])
def test_a_curve_comes_back_from_json_as_what_it_was(model):
    curve = model.fit(copies(line(1e-5, 1e10)))

    again = curve_from_json(curve.as_json())

    assert type(again) is type(curve)
    assert again.range_bytes == curve.range_bytes == (SIZES[0], SIZES[-1])
