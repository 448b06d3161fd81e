import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from recordings import launch_rows, recorded, swapped, work_rows
from small_machines import gpus

from stepsim.costmodels import Calibration
from stepsim.errors import FileError

CALIBRATION = Calibration.fit([recorded()])


def saved(tmp_path, calibration=CALIBRATION):
    path = tmp_path / "c.json"
    calibration.save(path)
    return path


def refusal(path):
    with pytest.raises(FileError) as refused:
        Calibration.load(path)
    message = str(refused.value)
    assert message.startswith(f"{path}: ")
    assert "\n" not in message
    return message


def test_what_is_loaded_prices_a_plan_as_what_was_saved(tmp_path):
    plan = swapped([7, 40, 99, 5000])

    loaded = Calibration.load(saved(tmp_path))

    ours, theirs = CALIBRATION.task_costs(plan, gpus()), loaded.task_costs(plan, gpus())
    assert theirs.table == ours.table
    assert theirs.index.tolist() == ours.index.tolist()
    assert loaded.errors() == CALIBRATION.errors()
    assert loaded.provenance == CALIBRATION.provenance


def test_saving_what_was_loaded_gives_the_same_bytes(tmp_path):
    path = saved(tmp_path)

    Calibration.load(path).save(tmp_path / "again.json")

    assert (tmp_path / "again.json").read_bytes() == path.read_bytes()


def test_a_rate_that_bounds_nothing_and_an_unknown_error_survive_as_null(tmp_path):
    without_flop = [{**row, "flop": 0} for row in work_rows(repeats=(0.0,))]
    path = saved(tmp_path, Calibration.fit([recorded([*without_flop, *launch_rows()])]))

    loaded = Calibration.load(path)

    body = json.loads(path.read_text(), parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    assert body["roofline"]["flop_per_s"] is None
    assert loaded.roofline.flop_per_s_ == float("inf")
    assert loaded.work.repeat_error_ is None


FIELDS = [
    ("machine",),
    ("provenance",),
    ("launch_s",),
    ("roofline",),
    ("roofline", "bytes_per_s"),
    ("roofline", "fitted"),
    ("transfers",),
    ("transfers", "device to host", "seconds"),
    ("repeat_error",),
    ("work",),
    ("work", "matrix", "count"),
]


def spoil(path, field, value=None):
    """Set ``field`` to ``value``, or drop it."""
    body = json.loads(path.read_text())
    inside = body
    for key in field[:-1]:
        inside = inside[key]
    if value is None:
        del inside[field[-1]]
    else:
        inside[field[-1]] = value
    path.write_text(json.dumps(body))


def test_a_range_that_ends_before_it_begins_is_named(tmp_path):
    path = saved(tmp_path)
    spoil(path, ("roofline", "fitted", "size_bytes"), [9.0, 3.0])

    message = refusal(path)

    assert "roofline.fitted.size_bytes: value error, a range must not end before it begins, got [9.0, 3.0]" in message


@pytest.mark.parametrize("field", FIELDS, ids=".".join)
def test_a_missing_field_is_named(tmp_path, field):
    path = saved(tmp_path)
    spoil(path, field)

    message = refusal(path)

    assert f"{'.'.join(field)}: field required" in message


@pytest.mark.parametrize(
    ("field", "value"),
    [
        (("machine",), 3),
        (("launch_s",), -1.0),
        (("launch_s",), "soon"),
        (("roofline", "flop_per_s"), 0.0),
        (("roofline", "bytes_per_s"), float("nan")),
        (("transfers", "sideways"), {"size_bytes": [1.0, 2.0], "seconds": [1.0, 2.0], "size_error": None}),
        (("transfers", "device to host", "size_bytes"), [1.0]),
        (("transfers", "device to host", "size_bytes"), [40.0, 10.0, 160.0]),
        (("transfers", "device to host", "seconds"), [1.0, 2.0]),
        (("transfers", "device to host", "seconds"), [3.0, 2.0, 1.0]),
        (("transfers", "device to host", "seconds"), [-1.0, 2.0, 3.0]),
        (("work", "matrix", "seconds"), float("inf")),
        (("work", "matrix", "spread_s"), -0.5),
        (("work", "matrix", "count"), 0),
        (("work",), []),
    ],
    ids=lambda value: ".".join(value) if isinstance(value, tuple) else str(value),
)
def test_a_senseless_value_is_named_with_its_field(tmp_path, field, value):
    path = saved(tmp_path)
    spoil(path, field, value)

    message = refusal(path)

    assert message.split(": ")[1].startswith(field[0])
    assert ", got " in message


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "is not JSON"),
        (b"{", "is not JSON"),
        (b"\xff\xfe", "is not JSON"),
        (b"[" * 100_000, "is not JSON"),
        (b"[]", "format: must be stepsim-calibration, got 'list'"),
        (b'{"format": "stepsim-plan"}', "format: must be stepsim-calibration, got 'stepsim-plan'"),
    ],
    ids=["empty", "truncated", "binary", "deep", "list", "plan"],
)
def test_a_file_of_another_kind_is_refused(tmp_path, content, problem):
    path = tmp_path / "c.json"
    path.write_bytes(content)

    assert problem in refusal(path)


def test_a_missing_file_is_refused(tmp_path):
    assert "cannot be read: No such file" in refusal(tmp_path / "c.json")


@given(st.binary(max_size=200))
def test_no_bytes_give_anything_but_a_calibration_or_a_refusal(tmp_path_factory, content):
    path = tmp_path_factory.getbasetemp() / "fuzz.json"
    path.write_bytes(content)

    refusal(path)


@given(share=st.floats(0.0, 1.0, exclude_max=True))
def test_a_truncated_file_is_refused(tmp_path_factory, share):
    path = saved(tmp_path_factory.getbasetemp())
    content = path.read_bytes()
    path.write_bytes(content[: int(share * len(content))])

    refusal(path)
