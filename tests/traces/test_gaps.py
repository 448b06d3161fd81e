"""Launches, idle times and overlap, laid out like the pictures."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_traces import collective, copy, kernel, on_host, trace_of

from stepsim.traces.gaps import beside_s, gaps, launches, overlaps


def row_of(table):
    (row,) = table.to_dict(orient="records")
    return row


def test_a_launch_waits_from_the_begin_of_its_call_to_the_start_of_its_kernel():
    """
    calls    aa  bb
    gpu0        A---B-
    """
    trace = trace_of(
        on_host("launch", 0, 2, correlation=1),
        on_host("launch", 4, 2, correlation=2),
        kernel(4, 4, correlation=1),
        kernel(8, 2, correlation=2),
    )

    row = row_of(launches(trace))

    assert row == {"device": "gpu0", "launched": 2, "call_median_s": 2, "wait_median_s": 4, "wait_90th_s": 4}


def test_what_has_no_recorded_launch_is_no_launch_and_no_gap_of_the_host():
    trace = trace_of(kernel(0, 1, correlation=1), kernel(2, 1, correlation=2))

    assert launches(trace).empty
    assert row_of(gaps(trace))["host_share"] == 0


def test_a_gap_is_the_host_s_where_the_launch_came_after_the_device_fell_idle():
    """B was launched in time and waited for something else; C came late.

    calls    ab      c
    gpu0      A--  B-  C-
    """
    trace = trace_of(
        on_host("launch", 0, 1, correlation=1),
        on_host("launch", 1, 1, correlation=2),
        on_host("launch", 8.5, 1, correlation=3),
        kernel(1, 3, correlation=1),
        kernel(6, 2, correlation=2),
        kernel(10, 2, correlation=3, stream=8),
    )

    row = row_of(gaps(trace))

    assert (row["gaps"], row["total_s"], row["longest_s"]) == (2, 4, 2)
    assert row["share"] == pytest.approx(4 / 11, rel=1e-12)
    assert row["host_share"] == 0.5


def test_a_device_that_is_never_idle_has_no_gaps():
    assert gaps(trace_of(kernel(0, 2), copy(1, 3, 8), kernel(4, 1))).empty


def test_devices_are_told_apart():
    """gpu1 works while gpu0 is idle."""
    trace = trace_of(kernel(0, 1), kernel(5, 1), kernel(1, 4, device="gpu1"))

    assert gaps(trace)["device"].tolist() == ["gpu0"]


def test_overlap_counts_each_instant_once():
    """Both kernels run beside the collective; the copy sticks out.

    kernels     AAAA
                  BBBB
    collective   CCC
    copy             DDDD
    """
    trace = trace_of(kernel(0, 4), kernel(2, 4, stream=8), collective(1, 3, stream=9), copy(5, 4, 64, stream=10))

    collectives, copies = overlaps(trace).to_dict(orient="records")

    shares = {"kernels_s": 6, "total_s": 4, "beside_kernels_s": 1, "hidden_share": 0.25}
    assert copies == {"device": "gpu0", "kind": "copy", **shares}
    assert collectives["beside_kernels_s"] == 3
    assert collectives["hidden_share"] == 1


@given(*[st.lists(st.tuples(st.integers(0, 20), st.integers(0, 6)), max_size=8)] * 2)
def test_both_at_once_is_the_intersection_of_what_each_covers(some, others):
    def covered(events):
        return {instant for start, length in events for instant in range(start, start + length)}

    rows, other_rows = (trace_of(*[kernel(*each) for each in events]).events for events in (some, others))

    assert beside_s(rows, other_rows) == len(covered(some) & covered(others))
