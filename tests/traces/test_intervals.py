import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_traces import kernel, trace_of

from stepsim.traces.intervals import busy_s, covered_until, span_s, union

WHOLE = st.integers(0, 20)
EVENTS = st.lists(st.tuples(WHOLE, st.integers(0, 8)), min_size=1, max_size=12)


def covered(events):
    """Unit intervals that one of the events covers, one by one."""
    return {instant for start, length in events for instant in range(start, start + length)}


@given(EVENTS)
def test_time_counts_once_however_many_events_there_are(events):
    rows = trace_of(*[kernel(start, length) for start, length in events]).events

    assert busy_s(rows) == len(covered(events))


@given(EVENTS)
def test_a_union_is_of_disjoint_intervals_in_time_order(events):
    start_s, length_s = np.array(events, np.float64).T

    begin_s, end_s = union(start_s, start_s + length_s)

    assert (begin_s[1:] > end_s[:-1]).all()


@given(EVENTS, WHOLE)
def test_what_is_covered_until_an_instant_is_what_is_covered_before_it(events, instant):
    start_s, length_s = np.array(events, np.float64).T

    (until_s,) = covered_until(np.array([float(instant)]), *union(start_s, start_s + length_s))

    assert until_s == len({at for at in covered(events) if at < instant})


@pytest.mark.parametrize(
    ("events", "expected_s"), [([], 0), ([(2, 3)], 3), ([(2, 9), (5, 1)], 9), ([(2, 1), (5, 1)], 4)]
)
def test_the_span_is_from_the_first_start_to_the_last_end(events, expected_s):
    assert span_s(trace_of(*[kernel(start, length) for start, length in events]).events) == expected_s
