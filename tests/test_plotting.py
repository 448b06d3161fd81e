import itertools

import numpy as np
import pytest
from matplotlib.collections import PolyCollection
from matplotlib.colors import to_hex

from stepsim.errors import FileError, StepsimError
from stepsim.plan import TaskKind
from stepsim.plan.builder import PlanBuilder
from stepsim.plotting import COLOURS, MOST_LANE_NAMES, plot_timelines, save_figure
from stepsim.timeline import MemorySteps, Timeline
from stepsim.units import MIB


def timeline_of(*times_s, streams=("s0", "s1"), steps=((0.0, 0),)):
    """Kernels by turns on ``streams``, every third of them recomputed, with a (start, end) each; memory of gpu0."""
    builder = PlanBuilder()
    gpu = builder.device("gpu0")
    builder.device("host")
    lanes = [builder.stream(name, gpu) for name in streams]
    work = builder.work("F")
    for place in range(len(times_s)):
        add = builder.recompute if place % 3 == 2 else builder.compute
        add(work, lanes[place % len(lanes)])
    start_s, end_s = np.array(times_s, np.float64).T
    time_s, resident = (np.array(column) for column in zip(*steps, strict=True))
    memory = MemorySteps(np.zeros(len(steps), np.int32), time_s.astype(np.float64), resident.astype(np.int64))
    return Timeline.of(builder.build(), start_s, end_s, "measured", memory)


def bars_of(axes):
    """(colour, left, right, lane) of each bar, in the units of the axes."""
    found = []
    for drawn in axes.collections:
        if isinstance(drawn, PolyCollection):
            for path in drawn.get_paths():
                (left, top), (right, bottom) = path.vertices.min(axis=0), path.vertices.max(axis=0)
                found.append((to_hex(drawn.get_facecolor()[0]).upper(), left, right, round((top + bottom) / 2)))
    return sorted(found)


def test_each_span_is_a_bar_in_the_colour_of_its_kind_on_its_lane_in_milliseconds():
    timeline = timeline_of((0, 1e-3), (1e-3, 4e-3), (2e-3, 3e-3))

    figure = plot_timelines({"predicted": timeline})

    compute, recompute = COLOURS[TaskKind.COMPUTE], COLOURS[TaskKind.RECOMPUTE]
    assert bars_of(figure.axes[0]) == [(compute, 0, 1, 0), (compute, 1, 4, 1), (recompute, 2, 3, 0)]


def test_timelines_stand_one_above_the_other_on_one_time_axis_as_long_as_the_longest():
    short, long = timeline_of((0, 1e-3)), timeline_of((0, 5e-3))

    figure = plot_timelines({"predicted": short, "measured": long})

    upper, lower, memory = figure.axes
    assert [upper.get_title("left"), lower.get_title("left")] == ["predicted: 1.00 ms", "measured: 5.00 ms"]
    assert upper.get_xlim() == lower.get_xlim() == memory.get_xlim()
    assert 5 <= memory.get_xlim()[1] <= 5.1
    assert memory.get_xlabel() == "time in ms"


def test_all_panels_show_the_same_lanes_and_none_on_which_nothing_takes_time():
    """s2 is idle in both; s1 works in one only."""
    lanes = ("s0", "s1", "s2")
    ours = timeline_of((0, 1), (1, 1), (1, 1), streams=lanes)
    theirs = timeline_of((0, 1), (1, 2), (2, 2), streams=lanes)

    figure = plot_timelines({"predicted": ours, "measured": theirs})

    for axes in figure.axes[:2]:
        assert [label.get_text() for label in axes.get_yticklabels()] == ["gpu0 s0", "gpu0 s1"]
    assert len(bars_of(figure.axes[0])) == 1
    assert len(bars_of(figure.axes[1])) == 2


def test_the_legend_names_the_kinds_that_occur():
    figure = plot_timelines({"predicted": timeline_of((0, 1), (1, 2), (2, 3))})

    (legend,) = figure.legends

    assert [text.get_text() for text in legend.get_texts()] == ["compute", "recompute"]


def test_memory_is_a_staircase_in_mib_up_to_the_end_with_the_limit_above():
    timeline = timeline_of((0, 4e-3), steps=[(0.0, MIB), (1e-3, 3 * MIB), (2e-3, 2 * MIB)])

    figure = plot_timelines({"predicted": timeline}, limit_bytes=5 * MIB)

    axes = figure.axes[-1]
    curve, limit = axes.lines
    assert curve.get_xydata().tolist() == [[0, 1], [1, 3], [2, 2], [4, 2]]
    assert curve.get_drawstyle() == "steps-post"
    assert set(limit.get_ydata()) == {5}
    assert axes.get_ylim()[1] > 5
    names = [text.get_text() for text in axes.get_legend().get_texts()]
    assert names == ["predicted (peak 3.0)", "limit (5.0)"]


def test_another_device_can_be_asked_for_and_one_that_is_not_there_is_refused():
    timeline = timeline_of((0, 1))

    figure = plot_timelines({"predicted": timeline}, device="host")

    assert figure.axes[-1].get_title("left") == "memory of host in MiB"
    with pytest.raises(StepsimError, match=r"no device 'gpu7'; it has \['gpu0', 'host'\]"):
        plot_timelines({"predicted": timeline}, device="gpu7")


def test_no_timeline_is_no_figure():
    with pytest.raises(StepsimError, match="no timeline"):
        plot_timelines({})


def test_a_timeline_of_no_device_is_no_figure():
    with pytest.raises(StepsimError, match="the timeline is of no device"):
        plot_timelines({"predicted": empty_timeline(PlanBuilder())})


def test_a_timeline_without_spans_is_an_empty_figure(tmp_path):
    builder = PlanBuilder()
    builder.device("gpu0")

    figure = plot_timelines({"predicted": empty_timeline(builder)})

    save_figure(figure, tmp_path / "t.png")
    assert bars_of(figure.axes[0]) == []


def empty_timeline(builder):
    nothing = np.zeros(0)
    memory = MemorySteps(nothing.astype(np.int32), nothing, nothing.astype(np.int64))
    return Timeline.of(builder.build(), nothing, nothing, "simulated", memory)


@pytest.mark.parametrize("num_lanes", [1, 3, MOST_LANE_NAMES, 5 * MOST_LANE_NAMES])
def test_texts_do_not_overlap_however_many_lanes_there_are(num_lanes):
    streams = [f"a stream with a long name, number {number}" for number in range(num_lanes)]
    timeline = timeline_of(*[(lane, lane + 1) for lane in range(num_lanes)], streams=streams)

    figure = plot_timelines({"predicted": timeline, "measured": timeline}, limit_bytes=2**35)

    figure.draw_without_rendering()
    texts = [text for axes in figure.axes for text in (*axes.get_yticklabels(), axes.title, axes._left_title)]
    texts += [text for axes in figure.axes[-1:] for text in (*axes.get_xticklabels(), *axes.get_legend().get_texts())]
    texts += figure.legends[0].get_texts()
    boxes = [text.get_window_extent() for text in texts if text.get_text()]
    assert len(boxes) > 2 * min(num_lanes, MOST_LANE_NAMES / 2)
    assert not [(a, b) for a, b in itertools.combinations(boxes, 2) if a.overlaps(b)]


def test_a_lane_name_is_shown_as_it_is_even_if_it_looks_like_a_formula(tmp_path):
    timeline = timeline_of((0, 1), streams=[r"$\bad{$"])

    figure = plot_timelines({"predicted": timeline})

    save_figure(figure, tmp_path / "t.png")
    assert figure.axes[0].get_yticklabels()[0].get_text() == r"gpu0 $\bad{$"


@pytest.mark.parametrize(("suffix", "begin"), [("png", b"\x89PNG"), ("svg", b"<?xml"), ("pdf", b"%PDF")])
def test_the_suffix_chooses_the_format(suffix, begin, tmp_path):
    figure = plot_timelines({"predicted": timeline_of((0, 1))})

    save_figure(figure, tmp_path / f"t.{suffix}")

    assert (tmp_path / f"t.{suffix}").read_bytes().startswith(begin)
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize("name", ["t.xyz", "t"])
def test_an_unknown_suffix_is_refused_and_nothing_is_written(name, tmp_path):
    figure = plot_timelines({"predicted": timeline_of((0, 1))})

    with pytest.raises(FileError, match=r"suffix: must be one of .*png"):
        save_figure(figure, tmp_path / name)

    assert not list(tmp_path.iterdir())


def test_neighbouring_kinds_have_different_colours():
    assert len(set(COLOURS.values())) == len(COLOURS)
    assert COLOURS.keys() == set(TaskKind) - {TaskKind.RELEASE}  # a release takes no time
