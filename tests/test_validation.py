import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepsim.errors import FileError, StepsimError
from stepsim.plan.builder import PlanBuilder
from stepsim.timeline import Timeline
from stepsim.validation import Comparison, KindSeconds, compare, load_comparisons, rank_agreement, save_comparisons

PROVENANCE = {"machine": "a machine", "torch": "2.13.0", "date": "2025-01-01"}

FIXED_KEYS = [
    "workload",
    "strategy",
    "predicted_s",
    "measured_s",
    "predicted_peak_bytes",
    "measured_peak_bytes",
    "gradient_max_abs_difference",
]


def plan_of(work="F"):
    """A kernel, a copy to the host, and the wait for both."""
    builder = PlanBuilder()
    gpu, host = builder.device("gpu0"), builder.device("host")
    s0, d2h = builder.stream("s0", gpu), builder.stream("d2h", gpu)
    x, there = builder.buffer(8, gpu, owner=s0), builder.buffer(8, host)
    first = builder.compute(builder.work(work), s0, writes=[x], allocates=[x])
    out = builder.swap_out(x, there, d2h)
    builder.host(builder.work("sync"), after=[first, out])
    return builder.build()


def run(compute_s, copy_s, source="measured", plan=None):
    """The copy follows the kernel; waiting for them takes no time."""
    end_s = compute_s + copy_s
    start_s, ends_s = np.array([0, compute_s, end_s]), np.array([compute_s, end_s, end_s])
    return Timeline.of(plan or plan_of(), start_s, ends_s, source)


def compared(predicted, measured, **others):
    facts = {
        "workload": "resnet",
        "strategy": "greedy",
        "predicted_peak_bytes": 100,
        "measured_peak_bytes": 100,
        "gradient_max_abs_difference": 0.0,
        "provenance": PROVENANCE,
    }
    return compare(predicted, measured, **{**facts, **others})


def comparison(predicted_s, *measured_runs_s, **others):
    facts = {
        "workload": "resnet",
        "strategy": "greedy",
        "predicted_s": predicted_s,
        "measured_runs_s": measured_runs_s,
        "predicted_peak_bytes": 100,
        "measured_peak_bytes": 100,
        "gradient_max_abs_difference": 0.0,
        "limit_bytes": None,
        "kinds": {},
        "provenance": PROVENANCE,
    }
    return Comparison(**{**facts, **others})


def test_the_measured_time_is_the_median_of_the_runs():
    runs = [run(2.0, 1.0), run(9.0, 1.0), run(3.0, 1.0)]

    found = compared(run(4.0, 1.0, "simulated"), runs)

    assert found.measured_runs_s == (3.0, 10.0, 4.0)
    assert found.measured_s == 4.0
    assert found.predicted_s == 5.0


@pytest.mark.parametrize(("predicted_s", "error"), [(5.0, 0.25), (3.0, -0.25), (4.0, 0.0)])
def test_the_step_error_is_positive_where_the_prediction_is_too_long(predicted_s, error):
    assert comparison(predicted_s, 4.0).step_error == error


def test_kinds_of_tasks_are_compared_by_their_seconds_and_those_without_time_left_out():
    runs = [run(2.0, 1.0), run(3.0, 4.0), run(8.0, 2.0)]

    found = compared(run(3.0, 1.0, "simulated"), runs)

    assert found.kinds == {
        "compute": KindSeconds(predicted_s=3.0, measured_s=3.0),
        "swap out": KindSeconds(predicted_s=1.0, measured_s=2.0),
    }
    assert found.kinds["swap out"].error == -0.5


def test_a_kind_that_was_not_measured_has_no_relative_error():
    found = compared(run(3.0, 1.0, "simulated"), [run(3.0, 0.0)])

    assert found.kinds["swap out"].error is None


def test_a_run_of_another_plan_is_refused():
    other = run(1.0, 1.0, plan=plan_of("G"))

    with pytest.raises(StepsimError, match=r"resnet, greedy: plan \w+ was measured, plan \w+ was predicted"):
        compared(run(1.0, 1.0, "simulated"), [run(1.0, 1.0), other])


def test_nothing_measured_is_refused():
    with pytest.raises(StepsimError, match="nothing was measured"):
        compared(run(1.0, 1.0, "simulated"), [])


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("predicted_s", math.nan),
        ("predicted_s", -1.0),
        ("measured_runs_s", (1.0, math.inf)),
        ("measured_runs_s", (0.0,)),
        ("measured_runs_s", ()),
        ("measured_peak_bytes", -1),
        ("gradient_max_abs_difference", math.nan),
        ("limit_bytes", -1),
        ("kinds", {"copy": KindSeconds(predicted_s=1.0, measured_s=-1.0)}),
    ],
)
def test_numbers_that_cannot_be_are_refused_by_name(field, value):
    with pytest.raises(StepsimError, match=f"resnet, greedy: {field}"):
        comparison(**{"predicted_s": 1.0, "measured_runs_s": (1.0,), field: value})


def test_as_json_begins_with_the_fixed_keys_in_their_order():
    found = comparison(1.0, 2.0, limit_bytes=128).as_json()

    assert list(found)[: len(FIXED_KEYS)] == FIXED_KEYS
    assert json.loads(json.dumps(found)) == found
    assert (found["measured_s"], found["step_error"], found["limit_bytes"]) == (2.0, -0.5, 128)


times_s = st.floats(1e-6, 1e3)
amounts = st.integers(0, 2**50)
comparisons = st.builds(
    Comparison,
    workload=st.text(),
    strategy=st.text(),
    predicted_s=times_s,
    measured_runs_s=st.lists(times_s, min_size=1, max_size=5).map(tuple),
    predicted_peak_bytes=amounts,
    measured_peak_bytes=amounts,
    gradient_max_abs_difference=times_s,
    limit_bytes=st.none() | amounts,
    kinds=st.dictionaries(st.text(), st.builds(KindSeconds, predicted_s=times_s, measured_s=times_s), max_size=3),
    provenance=st.dictionaries(st.text(), st.text(), max_size=3),
)


@given(st.lists(comparisons, max_size=3))
def test_what_is_saved_is_loaded(tmp_path_factory, found):
    path = tmp_path_factory.getbasetemp() / "comparison.json"

    save_comparisons(found, path)

    assert load_comparisons(path) == tuple(found)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"predicted_s": "fast"}, r"comparisons\.1\.predicted_s: .*number, got 'fast'"),
        ({"predicted_s": -1.0}, r"comparisons\.1: .*predicted_s must be finite and >= 0, got -1\.0"),
        ({"predicted_peak_bytes": 1.5}, r"comparisons\.1\.predicted_peak_bytes: .*got 1\.5"),
        ({"measured_runs_s": []}, r"comparisons\.1: .*measured_runs_s must hold times > 0"),
        ({"measured_runs_s": [1.0, None]}, r"comparisons\.1\.measured_runs_s\.1: "),
        ({"kinds": {"copy": {"predicted_s": 1.0}}}, r"comparisons\.1\.kinds\.copy\.measured_s: field required"),
        ({"provenance": "here"}, r"comparisons\.1\.provenance: .*got 'here'"),
    ],
)
def test_a_bad_entry_is_named_by_file_field_and_value(change, message, tmp_path):
    path = tmp_path / "c.json"
    save_comparisons([comparison(1.0, 2.0)] * 2, path)
    body = json.loads(path.read_text())
    body["comparisons"][1] |= change
    path.write_text(json.dumps(body))

    with pytest.raises(FileError, match=rf"c\.json: {message}"):
        load_comparisons(path)


def test_an_entry_without_a_field_is_refused(tmp_path):
    path = tmp_path / "c.json"
    save_comparisons([comparison(1.0, 2.0)], path)
    body = json.loads(path.read_text())
    del body["comparisons"][0]["strategy"]
    path.write_text(json.dumps(body))

    with pytest.raises(FileError, match=r"comparisons\.0\.strategy: field required"):
        load_comparisons(path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is not JSON"),
        ('{"format": "stepsim-workload"}', "must be stepsim-comparison"),
        ('{"format": "stepsim-comparison"}', "version: must be 2: another stepsim wrote it"),
        ('{"format": "stepsim-comparison", "version": 2}', "comparisons: must be a list"),
        ('{"format": "stepsim-comparison", "version": 2, "comparisons": [7]}', r"comparisons\.0: .*got 7"),
    ],
)
def test_a_file_that_holds_no_comparisons_is_refused(text, message, tmp_path):
    (tmp_path / "c.json").write_text(text)

    with pytest.raises(FileError, match=message):
        load_comparisons(tmp_path / "c.json")


@pytest.mark.parametrize(
    ("predicted_s", "measured_s", "agreement"),
    [
        ([1, 2, 3], [10, 20, 30], 1.0),
        ([1, 2, 3], [30, 20, 10], 0.0),
        ([1, 2, 3], [10, 30, 20], 2 / 3),
        ([1, 1, 2], [10, 10, 20], 1.0),
        ([1, 1, 2], [10, 11, 20], 2 / 3),
    ],
    ids=["same", "reversed", "one pair swapped", "tied in both", "tied in one"],
)
def test_rank_agreement_is_the_share_of_pairs_in_the_same_order(predicted_s, measured_s, agreement):
    plans = [comparison(float(ours), float(theirs)) for ours, theirs in zip(predicted_s, measured_s, strict=True)]

    assert rank_agreement(plans, "resnet") == pytest.approx(agreement, rel=1e-12)


def test_rank_agreement_needs_two_plans_of_the_workload():
    plans = [comparison(1.0, 1.0), comparison(2.0, 0.5, workload="transformer")]

    assert rank_agreement(plans, "resnet") is None
    assert rank_agreement([], "resnet") is None


@given(st.lists(st.tuples(times_s, times_s), min_size=2, max_size=6, unique_by=(lambda p: p[0], lambda p: p[1])))
def test_reversing_the_measured_order_turns_agreement_into_disagreement(pairs):
    plans = [comparison(ours, theirs) for ours, theirs in pairs]
    turned = [comparison(ours, 2e3 - theirs) for ours, theirs in pairs]

    together = rank_agreement(plans, "resnet") + rank_agreement(turned, "resnet")

    assert together == pytest.approx(1.0, rel=1e-12)
