import itertools
import json
from collections import defaultdict
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from random_plans import plans

from stepsim import chrome_trace
from stepsim.chrome_trace import write_chrome_trace
from stepsim.errors import FileError, StepsimError
from stepsim.memory import memory_profile, memory_steps
from stepsim.plan.builder import PlanBuilder
from stepsim.timeline import MemorySteps, Timeline


def plan_of(*names, streams=("s0", "s1")):
    """A marked host row, then kernels by turns on the streams, each after the row before it."""
    builder = PlanBuilder()
    gpu = builder.device("gpu0")
    lanes = [builder.stream(name, gpu) for name in streams]
    builder.mark("ProfilerStep#1", builder.host(builder.work("begin")))
    for place, name in enumerate(names):
        builder.compute(builder.work(name), lanes[place % len(lanes)], after=[place])
    return builder.build()


def timeline_of(plan, times_s, steps=((0.0, 0),)):
    """A measured timeline: a host row without duration, then (start, end) for each kernel, and memory steps."""
    start_s, end_s = np.array([(0.0, 0.0), *times_s], np.float64).T
    time_s, resident = (np.array(column) for column in zip(*steps, strict=True))
    memory = MemorySteps(np.zeros(len(steps), np.int32), time_s.astype(np.float64), resident.astype(np.int64))
    return Timeline.of(plan, start_s, end_s, "measured", memory)


def events_of(path):
    """The events by phase."""
    found = defaultdict(list)
    for event in json.loads(path.read_bytes())["traceEvents"]:
        found[event["ph"]].append(event)
    return found


def test_a_timeline_is_a_process_and_a_lane_is_a_thread_each_with_name_and_place(tmp_path):
    timeline = timeline_of(plan_of("F"), [(0, 1)])

    write_chrome_trace(tmp_path / "t.json", {"predicted": timeline, "measured": timeline})

    facts = {(e["pid"], e["tid"], e["name"]): e["args"] for e in events_of(tmp_path / "t.json")["M"]}
    assert facts[1, 0, "process_name"] == {"name": "predicted"}
    assert facts[2, 0, "process_name"] == {"name": "measured"}
    assert [facts[2, thread, "thread_name"]["name"] for thread in (1, 2, 3)] == ["gpu0 s0", "gpu0 s1", "main"]
    assert [facts[2, thread, "thread_sort_index"]["sort_index"] for thread in (1, 2, 3)] == [0, 1, 2]


def test_a_span_is_an_event_in_microseconds_with_its_kind_and_row(tmp_path):
    timeline = timeline_of(plan_of("F", "G"), [(1e-3, 1.5e-3), (2e-3, 2.25e-3)])

    write_chrome_trace(tmp_path / "t.json", {"measured": timeline})

    spans = {event["name"]: event for event in events_of(tmp_path / "t.json")["X"]}
    place = {"ph": "X", "cat": "compute", "pid": 1}
    assert spans["F"] == {**place, "name": "F", "tid": 1, "ts": 1000.0, "dur": 500.0, "args": {"row": 1}}
    assert spans["G"] == {**place, "name": "G", "tid": 2, "ts": 2000.0, "dur": 250.0, "args": {"row": 2}}


def test_memory_is_a_counter_of_bytes_by_device(tmp_path):
    timeline = timeline_of(plan_of("F"), [(0, 1)], steps=[(0.0, 10), (1e-3, 2**40), (1e-3, 0)])

    write_chrome_trace(tmp_path / "t.json", {"measured": timeline})

    counters = events_of(tmp_path / "t.json")["C"]
    assert [(event["ts"], event["args"]["bytes"]) for event in counters] == [(0.0, 10), (1000.0, 2**40), (1000.0, 0)]
    assert {(event["pid"], event["name"]) for event in counters} == {(1, "gpu0 memory")}


def test_a_mark_is_an_instant_of_its_process(tmp_path):
    timeline = timeline_of(plan_of("F"), [(0, 1)])

    write_chrome_trace(tmp_path / "t.json", {"measured": timeline})

    (mark,) = events_of(tmp_path / "t.json")["i"]
    assert (mark["name"], mark["s"], mark["ts"]) == ("ProfilerStep#1", "p", 0.0)


def test_an_arrow_leads_from_the_end_of_a_span_to_the_start_of_the_one_that_waits_for_it(tmp_path):
    plan = plan_of("F", "G")
    timeline = timeline_of(plan, [(0, 1e-3), (2e-3, 3e-3)])

    write_chrome_trace(tmp_path / "t.json", {"measured": timeline}, plans={"measured": plan})

    events = events_of(tmp_path / "t.json")
    (start,), (finish,) = events["s"], events["f"]
    assert (start["tid"], start["ts"]) == (1, 999.999)
    assert (finish["tid"], finish["ts"], finish["bp"]) == (2, 2000.0, "e")
    assert start["id"] == finish["id"]


@pytest.mark.parametrize(
    "times_s", [[(0, 0), (1, 2)], [(0, 1), (1, 1)], [(0, 2), (1, 3)]], ids=["from nothing", "to nothing", "backward"]
)
def test_there_is_no_arrow_where_no_span_could_hold_it_or_it_would_point_back(times_s, tmp_path):
    plan = plan_of("F", "G")

    write_chrome_trace(tmp_path / "t.json", {"measured": timeline_of(plan, times_s)}, plans={"measured": plan})

    events = events_of(tmp_path / "t.json")
    assert not events["s"]
    assert not events["f"]


def test_there_is_no_arrow_along_a_lane_whose_order_says_as_much(tmp_path):
    plan = plan_of("F", "G", streams=["s0"])
    timeline = timeline_of(plan, [(0, 1), (1, 2)])

    write_chrome_trace(tmp_path / "t.json", {"measured": timeline}, plans={"measured": plan})

    assert not events_of(tmp_path / "t.json")["s"]


def test_arrows_are_drawn_only_for_the_timelines_whose_plan_is_given(tmp_path):
    plan = plan_of("F", "G")
    timeline = timeline_of(plan, [(0, 1), (1, 2)])

    write_chrome_trace(tmp_path / "t.json", {"predicted": timeline, "measured": timeline}, plans={"measured": plan})

    assert {event["pid"] for event in events_of(tmp_path / "t.json")["s"]} == {2}


def test_arrows_of_different_timelines_are_not_tied_together(tmp_path):
    plan = plan_of("F", "G", "H")
    lines = dict.fromkeys(("predicted", "measured"), timeline_of(plan, [(0, 1), (1, 2), (2, 3)]))

    write_chrome_trace(tmp_path / "t.json", lines, plans=dict.fromkeys(lines, plan))

    numbers = [event["id"] for event in events_of(tmp_path / "t.json")["s"]]
    assert len(numbers) == len(set(numbers)) == 4


def test_a_plan_that_is_not_the_timelines_is_refused_and_nothing_is_written(tmp_path):
    timeline = timeline_of(plan_of("F"), [(0, 1)])

    with pytest.raises(StepsimError, match="timeline is of plan"):
        write_chrome_trace(tmp_path / "t.json", {"measured": timeline}, plans={"measured": plan_of("G")})

    assert not list(tmp_path.iterdir())


def test_a_path_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").touch()
    timeline = timeline_of(plan_of("F"), [(0, 1)])

    with pytest.raises(FileError, match=r"t\.json: output: cannot be written"):
        write_chrome_trace(tmp_path / "file" / "t.json", {"measured": timeline})


def test_a_trace_of_no_timeline_has_no_events(tmp_path):
    write_chrome_trace(tmp_path / "t.json", {})

    assert json.loads((tmp_path / "t.json").read_bytes())["traceEvents"] == []


def test_a_plan_without_rows_is_a_process_without_spans(tmp_path):
    plan = PlanBuilder().build()
    timeline = Timeline.of(plan, np.zeros(0), np.zeros(0), "simulated")

    write_chrome_trace(tmp_path / "t.json", {"predicted": timeline}, plans={"predicted": plan})

    assert events_of(tmp_path / "t.json").keys() == {"M"}


@pytest.mark.parametrize("batch", [1, 2, 3])
def test_a_trace_is_the_same_however_few_events_are_in_memory_at_once(batch, tmp_path, monkeypatch):
    plan = plan_of(*"FGHIJ")
    times_s = [(place, place + 1) for place in range(5)]
    lines = dict.fromkeys(("predicted", "measured"), timeline_of(plan, times_s, steps=[(0.0, 1), (1.0, 2), (2.0, 3)]))
    write_chrome_trace(tmp_path / "whole.json", lines, plans=dict.fromkeys(lines, plan))

    monkeypatch.setattr(chrome_trace, "BATCH", batch)
    write_chrome_trace(tmp_path / "parts.json", lines, plans=dict.fromkeys(lines, plan))

    assert (tmp_path / "parts.json").read_bytes() == (tmp_path / "whole.json").read_bytes()


def test_the_trace_says_which_plan_each_timeline_is_of_and_whether_it_was_simulated(tmp_path):
    timeline = timeline_of(plan_of("F"), [(0, 1)])

    write_chrome_trace(tmp_path / "t.json", {"mine": timeline})

    body = json.loads((tmp_path / "t.json").read_bytes())
    assert body.keys() == {"displayTimeUnit", "otherData", "traceEvents"}
    assert body["otherData"] == {"mine": {"source": "measured", "plan": timeline.plan_hash}}


# Of the Trace Event Format: what an event of each phase has beside ``ph``, ``name`` and ``pid``, and of which type.
SCHEMA = {
    "M": {"tid": int, "args": dict},
    "X": {"cat": str, "tid": int, "ts": float, "dur": float, "args": dict},
    "C": {"ts": float, "args": dict},
    "i": {"s": str, "tid": int, "ts": float},
    "s": {"cat": str, "id": int, "tid": int, "ts": float},
    "f": {"cat": str, "id": int, "tid": int, "ts": float, "bp": str},
}


def written(label, timeline, plan):
    """What is written for ``timeline``, by phase."""
    with TemporaryDirectory() as folder:
        write_chrome_trace(Path(folder, "t.json"), {label: timeline}, plans={label: plan})
        return events_of(Path(folder, "t.json"))


def in_ns(microseconds):
    """As a viewer reads it: whole nanoseconds."""
    return round(microseconds * 1000)


@st.composite
def runs(draw):
    """Any plan with the timeline that its simulation could be: rows start when all that they wait for has ended."""
    plan, _ = draw(plans())
    seconds = draw(st.lists(st.sampled_from([0.0, 1e-10, 1e-3, 0.1]), min_size=len(plan), max_size=len(plan)))
    lane, free_s, end_s = plan.lane_of_rows().tolist(), defaultdict(float), np.zeros(len(plan))
    for row, needs in enumerate(plan.tasks.dependencies.to_lists()):
        end_s[row] = max([free_s[lane[row]], *end_s[needs]]) + seconds[row]
        free_s[lane[row]] = end_s[row]
    start_s = end_s - seconds
    steps = memory_steps(memory_profile(plan), start_s, end_s)
    return plan, Timeline.of(plan, start_s, end_s, "simulated", steps)


@given(runs())
def test_every_event_has_the_fields_of_its_phase_and_no_others(run):
    plan, timeline = run

    events = written("predicted", timeline, plan)

    for phase, fields in SCHEMA.items():
        for event in events[phase]:
            types = {name: type(value) for name, value in event.items()}
            assert types == {"ph": str, "name": str, "pid": int, **fields}
    assert events.keys() <= SCHEMA.keys()
    assert all(event["args"].keys() == {"row"} for event in events["X"])
    assert all(event["args"].keys() == {"bytes"} for event in events["C"])


@given(runs())
def test_nothing_is_lost_and_time_goes_on_along_each_lane_and_each_counter(run):
    plan, timeline = run

    events = written("predicted", timeline, plan)

    assert sorted(event["args"]["row"] for event in events["X"]) == list(range(len(plan)))
    assert all(event["dur"] >= 0 for event in events["X"])
    times = defaultdict(list)
    for event in events["X"]:
        times["lane", event["tid"]].append(event["ts"])
    for event in events["C"]:
        times["memory", event["name"]].append(event["ts"])
    assert all(column == sorted(column) for column in times.values())
    assert [event["args"]["bytes"] for event in events["C"]] == timeline.memory.resident_bytes.tolist()


@given(runs())
def test_each_dependency_between_lanes_that_both_last_is_an_arrow(run):
    plan, timeline = run

    events = written("predicted", timeline, plan)

    lane = plan.lane_of_rows()
    begin, end = (np.rint(column * 1e9) for column in (timeline.spans.start_s, timeline.spans.end_s))
    waiting, earlier = plan.tasks.dependencies.owners(), plan.tasks.dependencies.values
    lasting = [
        (lane[first] + 1, end[first] - 1, lane[then] + 1, begin[then])
        for first, then in zip(earlier, waiting, strict=True)
        if lane[first] != lane[then] and end[first] > begin[first] and end[then] > begin[then]
    ]
    arrows = [
        (start["tid"], in_ns(start["ts"]), finish["tid"], in_ns(finish["ts"]))
        for start, finish in zip(events["s"], events["f"], strict=True)
    ]
    assert sorted(arrows) == sorted(lasting)


@given(name=st.text(min_size=1).filter(str.strip), label=st.text())
def test_names_arrive_as_they_are_whatever_their_characters(name, label):
    plan = plan_of(name)

    events = written(label, timeline_of(plan, [(0, 1)]), plan)

    assert plan.row_names()[1] in {event["name"] for event in events["X"]}
    assert events["M"][0]["args"] == {"name": label}


@given(st.lists(st.floats(0, 1e3), min_size=3, max_size=20).map(sorted))
def test_neighbours_on_a_lane_never_overlap_by_rounding(moments_s):
    """Each kernel ends when the next but one begins, which is on the same lane.

    s0  0000222222
    s1    1111133333
    """
    times_s = list(zip(moments_s, moments_s[2:], strict=False))
    plan = plan_of(*["F"] * len(times_s))

    events = written("measured", timeline_of(plan, times_s), plan)

    lanes = defaultdict(list)
    for event in events["X"]:
        lanes[event["tid"]].append((in_ns(event["ts"]), in_ns(event["dur"])))
    for spans in lanes.values():
        assert all(duration >= 0 for _, duration in spans)
        assert all(ts + duration <= then for (ts, duration), (then, _) in itertools.pairwise(spans))


@given(st.lists(st.tuples(st.floats(0, 1e-3), st.floats(0, 1e-3)), min_size=1, max_size=12))
def test_however_clocks_jumped_spans_of_a_lane_are_in_order_and_arrows_hang_on_spans(pairs):
    plan = plan_of(*["F"] * len(pairs))

    events = written("measured", timeline_of(plan, [sorted(pair) for pair in pairs]), plan)

    spans = [(e["tid"], in_ns(e["ts"]), in_ns(e["ts"]) + in_ns(e["dur"])) for e in events["X"]]
    ends = {phase: {event["id"]: event for event in events[phase]} for phase in "sf"}
    assert spans == sorted(spans)
    assert ends["s"].keys() == ends["f"].keys()
    for number, start in ends["s"].items():
        assert start["ts"] < ends["f"][number]["ts"]
        for end in (start, ends["f"][number]):
            assert any(lane == end["tid"] and a <= in_ns(end["ts"]) < b for lane, a, b in spans)
