import math

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepsim.costmodels.launches import CallCost, LaunchModel, call_cost
from stepsim.errors import CalibrationError
from stepsim.traces.trace import Trace, events_of

pytestmark = pytest.mark.filterwarnings("ignore:.*lies outside the fitted range")

SIZES = [2**k for k in range(10, 24)]
FLOORS = {"stream": 4e-6, "graph": 1.5e-6}


def kernel_s(mode, size_bytes):
    """1 us and 1 TB/s, but no faster than a launch."""
    return max(FLOORS[mode], 1e-6 + size_bytes / 1e12)


def kernels(modes=("stream", "graph"), seconds_of=kernel_s):
    rows = [{"mode": mode, "size_bytes": size, "seconds": seconds_of(mode, size)} for mode in modes for size in SIZES]
    return pd.DataFrame(rows)


def test_floors_latency_and_bandwidth_are_recovered():
    model = LaunchModel().fit(kernels())

    assert model.floor_s_ == pytest.approx(FLOORS)
    assert (model.fixed_s_, model.s_per_byte_) == pytest.approx((1e-6, 1e-12), rel=1e-6)
    assert model.left_out_error_ == pytest.approx(0.0, abs=1e-6)


FITTED = LaunchModel().fit(kernels())


@given(st.sampled_from(sorted(FLOORS)), st.integers(1, 2**40))
def test_a_small_kernel_takes_its_launch_and_a_large_one_its_bytes(mode, size_bytes):
    predicted = FITTED.predict(pd.DataFrame({"mode": [mode], "size_bytes": [size_bytes]})).seconds

    assert predicted == pytest.approx([kernel_s(mode, size_bytes)], rel=1e-6)


def test_a_mode_that_nobody_timed_is_unknown_and_out_of_range():
    prediction = LaunchModel().fit(kernels()).predict(pd.DataFrame({"mode": ["tape"], "size_bytes": [2**12]}))

    assert math.isnan(prediction.seconds[0])
    assert not prediction.in_range[0]


def test_kernels_that_all_take_the_floor_tell_no_bandwidth():
    nearly_even = kernels(modes=("stream",), seconds_of=lambda _, size: 4e-6 + 1e-9 * (size == SIZES[0]))

    with pytest.raises(CalibrationError, match="2 sizes that their bytes slow"):
        LaunchModel().fit(nearly_even)


def row(kind, start_us, duration_us, **facts):
    return {"kind": kind, "start_s": start_us * 1e-6, "duration_s": duration_us * 1e-6, **facts}


def cost_of(*rows):
    return call_cost(Trace(events=events_of(rows), provenance={}))


def test_the_cost_of_calls_tells_their_quantiles_and_what_lies_between():
    """Calls of 10, 20, ..., 110 us, one every 200 us: tenth, median and ninetieth percentile are 20, 60 and 100 us."""
    cost = cost_of(*(row("launch", 200 * k, 10 * (k + 1), thread=1) for k in range(11)))

    assert cost == CallCost(
        calls=11,
        low_s=pytest.approx(20e-6),
        median_s=pytest.approx(60e-6),
        high_s=pytest.approx(100e-6),
        between_s=pytest.approx(200e-6),
        sync_s=None,
    )


def test_a_synchronisation_costs_what_follows_the_last_work():
    """
    launch  LL
    kernel    KKKKKK
    sync         SSSSSSS   3 us after the kernel
    """
    cost = cost_of(
        row("launch", 0, 2, thread=1),
        row("kernel", 2, 6, device="gpu0", stream=7),
        row("sync", 5, 6, thread=1),
    )

    assert cost.sync_s == pytest.approx(3e-6)


def test_a_synchronisation_that_waited_for_nothing_tells_nothing():
    cost = cost_of(
        row("launch", 0, 2, thread=1),
        row("kernel", 2, 6, device="gpu0", stream=7),
        row("sync", 20, 6, thread=1),
    )

    assert cost.sync_s is None


def test_launches_of_two_threads_are_no_neighbours():
    cost = cost_of(row("launch", 0, 2, thread=1), row("launch", 5, 2, thread=2))

    assert cost.between_s is None


def test_a_trace_without_launches_is_refused():
    with pytest.raises(CalibrationError, match="launch calls needs samples, got none"):
        cost_of(row("kernel", 2, 6, device="gpu0"))
