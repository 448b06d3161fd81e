import pytest
from hypothesis import given
from hypothesis import strategies as st
from kineto_files import KinetoFile

from stepsim.traces import Trace, explained, explained_by_step, read_kineto
from stepsim.traces.explained import ACTIVITIES
from stepsim.traces.trace import events_of

ORDER = (*ACTIVITIES, "idle")


def test_each_instant_counts_once_for_the_first_activity_of_the_order(tmp_path):
    """
    step        0----------------------------100
    kernel         10----30
    collective         20------50
    copy                       45---60
    host        0-----20                 70-80
    """
    file = KinetoFile()
    file.step(1, 0, 100)
    file.op(0, 20)
    file.launched(5, 2, 10, 20, correlation=1)
    file.launched(7, 2, 20, 30, correlation=2, stream=8, name="ncclKernel_AllReduce")
    file.call(9, 2, correlation=3, name="cudaMemcpyAsync")
    file.copy(45, 15, correlation=3, size_bytes=1, stream=9)
    file.op(70, 10)

    shares = explained(read_kineto(file.write(tmp_path / "t.json")))

    assert list(shares) == list(ORDER)
    assert list(shares.values()) == pytest.approx([0.2, 0.2, 0.1, 0.2, 0.3])


def test_what_lies_outside_of_the_steps_does_not_count(tmp_path):
    file = KinetoFile()
    file.launched(0, 5, 10, 20, correlation=1)
    file.step(1, 20, 20)
    file.step(2, 50, 10)
    file.launched(51, 1, 55, 100, correlation=2)

    trace = read_kineto(file.write(tmp_path / "t.json"))

    first, second = explained_by_step(trace)
    assert (first["kernels"], first["idle"]) == pytest.approx((0.5, 0.5))
    assert (second["kernels"], second["host_work"], second["idle"]) == pytest.approx((0.5, 0.1, 0.4))
    assert explained(trace)["kernels"] == pytest.approx((10 + 5) / 30)


def test_without_steps_the_whole_trace_counts(tmp_path):
    file = KinetoFile()
    file.launched(0, 5, 15, 5, correlation=1)

    shares = explained(read_kineto(file.write(tmp_path / "t.json")))

    assert shares["kernels"] == pytest.approx(5 / 20)
    assert shares["idle"] == pytest.approx(10 / 20)


SPANS = st.tuples(st.sampled_from(["kernel", "collective", "copy", "memset", "host", "launch", "sync"]),
                  st.integers(0, 30), st.integers(0, 10))  # fmt: skip


@given(spans=st.lists(SPANS, max_size=12), begin=st.integers(0, 20), length=st.integers(1, 20))
def test_shares_equal_a_count_of_instants_one_by_one(spans, begin, length):
    rows = [("step", begin, length), *spans]
    events = events_of({"kind": kind, "start_s": start, "duration_s": took} for kind, start, took in rows)

    shares = explained(Trace(events=events, provenance={}))

    counted = dict.fromkeys(ORDER, 0)
    for instant in range(begin, begin + length):
        active = {kind for kind, start, took in spans if start <= instant < start + took}
        counted[next((name for name, kinds in ACTIVITIES.items() if active & set(kinds)), "idle")] += 1
    assert shares == pytest.approx({name: seconds / length for name, seconds in counted.items()})
