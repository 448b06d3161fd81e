import json
import zipfile

import numpy as np
import pytest

from stepsim.errors import FileError
from stepsim.plan import TaskKind
from stepsim.plan.builder import PlanBuilder
from stepsim.timeline import MemorySteps, Span, Timeline


def plan_of_a_step():
    """Host work, two kernels of the same work on two streams, host work that marks the end."""
    builder = PlanBuilder()
    gpu = builder.device("gpu0")
    s0, s1 = builder.stream("s0", gpu), builder.stream("s1", gpu)
    builder.mark("begin", builder.host(builder.work("gap")))
    builder.compute(builder.work("F"), s0)
    builder.compute(builder.work("F"), s1)
    builder.mark("end", builder.host(builder.work("gap")))
    return builder.build()


START_S, END_S = np.array([0.5, 1.0, 2.0, 3.0]), np.array([1.0, 2.5, 6.0, 3.5])


def measured():
    memory = MemorySteps(np.array([0, 0], np.int32), np.array([0.0, 1.5]), np.array([0, 8]))
    return Timeline.of(plan_of_a_step(), START_S, END_S, "measured", memory)


def test_a_span_is_a_row_in_names():
    span = measured().span(2)

    assert span == Span(row=2, name="F", kind=TaskKind.COMPUTE, lane="gpu0 s1", start_s=2.0, end_s=6.0)
    assert span.duration_s == 4.0


def test_a_timeline_is_its_spans_in_plan_order():
    timeline = measured()

    assert [span.row for span in timeline] == [0, 1, 2, 3]
    assert [span.lane for span in timeline] == ["main", "gpu0 s0", "gpu0 s1", "main"]


def test_makespan_is_from_time_0_to_the_last_end():
    assert measured().makespan_s == 6.0


def test_marks_are_the_starts_of_their_rows():
    marks = measured().marks

    assert dict(zip(marks.name, marks.time_s.tolist(), strict=True)) == {"begin": 0.5, "end": 3.0}


def test_a_name_is_stored_once_however_many_rows_bear_it():
    assert measured().names == ("gap", "F")


def test_without_memory_there_are_no_steps():
    assert len(Timeline.of(plan_of_a_step(), START_S, END_S, "measured").memory) == 0


def test_timelines_differ_when_one_end_differs_in_its_last_bit():
    later_s = np.nextafter(END_S, np.inf)

    assert measured() == measured()
    assert Timeline.of(plan_of_a_step(), START_S, later_s, "measured") != Timeline.of(
        plan_of_a_step(), START_S, END_S, "measured"
    )


def test_a_timeline_survives_its_file(tmp_path):
    measured().save(tmp_path / "timeline")

    assert Timeline.load(tmp_path / "timeline") == measured()


def test_an_empty_timeline_survives_its_file(tmp_path):
    nothing = Timeline.of(PlanBuilder().build(), np.zeros(0), np.zeros(0), "simulated")

    nothing.save(tmp_path / "timeline")

    assert Timeline.load(tmp_path / "timeline") == nothing


def with_meta(path, change):
    """Rewrite ``meta.json`` of the file."""
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    members["meta.json"] = json.dumps(change(json.loads(members["meta.json"]))).encode()
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda meta: {key: meta[key] for key in meta if key != "lanes"}, "meta: cannot be read: KeyError('lanes')"),
        (lambda meta: {**meta, "names": 7}, "meta: cannot be read: TypeError(\"'int' object is not iterable\")"),
        (lambda meta: {**meta, "names": ["gap"]}, "name: must be in 0..0, got 1"),
        (lambda meta: {**meta, "lanes": ["s0"]}, "lane: must be in 0..0, got 2"),
        (lambda meta: {**meta, "devices": []}, "device: must be in 0..-1, got 0"),
    ],
    ids=["no lanes", "names are no list", "a name too few", "a lane too few", "no device"],
)
def test_a_file_that_lacks_what_its_spans_name_is_refused(tmp_path, change, message):
    path = tmp_path / "timeline"
    measured().save(path)
    with_meta(path, change)

    with pytest.raises(FileError) as caught:
        Timeline.load(path)

    assert str(caught.value) == f"{path}: {message}"
