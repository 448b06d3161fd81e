import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepsim.costmodels.moves import latency_and_rate
from stepsim.machines import Link
from stepsim.machines.collectives import Stage

SECONDS = st.floats(0, 1e3)
RATES = st.floats(1e-3, 1e12)


def stage(rate_bytes_per_s, volume=1.0):
    sources = {"latency_s": "test", "bandwidth_bytes_per_s": "test"}
    link = Link(name="link", latency_s=0.0, bandwidth_bytes_per_s=rate_bytes_per_s, sources=sources)
    return Stage(volume=volume, links=((link, 1.0),), latency_s=0.0)


def seconds_alone(latency_s, cap_bytes_per_s, size_bytes, stages):
    moved = [size_bytes * each.volume / min(cap_bytes_per_s, each.rate_bytes_per_s) for each in stages]
    return latency_s + sum(moved)


def test_the_smallest_size_is_the_latency_and_the_rest_is_the_rate():
    assert latency_and_rate(3.0, 1.0, 100, [stage(1e9)]) == (1.0, 50.0)


def test_links_that_need_more_of_the_time_leave_less_latency():
    assert latency_and_rate(3.0, 1.0, 100, [stage(40.0)]) == (0.5, 40.0)


def test_links_that_need_longer_than_all_the_time_win():
    assert latency_and_rate(3.0, 1.0, 100, [stage(10.0)]) == (0.0, 10.0)


def test_a_slow_stage_takes_its_time_and_the_others_share_the_rest():
    """100 bytes at 20 a second take 5 of the 7 seconds after the latency; 200 and 100 share the other 2."""
    stages = [stage(1000.0, volume=2.0), stage(20.0), stage(1000.0)]

    assert latency_and_rate(8.0, 1.0, 100, stages) == (1.0, pytest.approx(150.0))


def test_nothing_to_move_is_all_latency():
    assert latency_and_rate(2.0, 2.0, 0, [stage(10.0)]) == (2.0, math.inf)


def test_within_a_device_no_link_bounds_the_rate():
    inside = Stage(volume=1.0, links=(), latency_s=0.0)

    assert latency_and_rate(3.0, 1.0, 100, [inside]) == (1.0, 50.0)


@given(SECONDS, SECONDS, st.integers(0, 10**9), st.lists(st.tuples(RATES, st.floats(0.01, 10)), min_size=1, max_size=4))
def test_alone_it_takes_the_total_or_what_the_links_need(total_s, least_s, size_bytes, shape):
    stages = [stage(rate, volume) for rate, volume in shape]
    link_s = seconds_alone(0.0, math.inf, size_bytes, stages)

    latency_s, cap = latency_and_rate(total_s, least_s, size_bytes, stages)

    if size_bytes and total_s > least_s:
        assert seconds_alone(latency_s, cap, size_bytes, stages) == pytest.approx(max(total_s, link_s), rel=1e-6)
    assert latency_s >= 0
    assert cap > 0
