import itertools

import pytest
from matplotlib.collections import PolyCollection
from matplotlib.colors import to_hex
from small_traces import collective, copy, kernel, on_host, trace_of

from stepsim.errors import StepsimError
from stepsim.plotting import save_figure
from stepsim.trace_plot import COLOURS, MOST_LANES, plot_trace

UNTIMED = {"start_s": "not recorded: one behind the other"}


def everything():
    return trace_of(
        on_host("step", 0, 8e-3, name="first"),
        on_host("step", 8e-3, 2e-3, name="second"),
        on_host("step", 10e-3, 4e-3, name="third"),
        kernel(1e-3, 1e-3),
        kernel(10.5e-3, 1e-3),
        collective(11e-3, 2e-3, stream=9, size_bytes=2**20),
        copy(12e-3, 1e-3, 2**20),
    )


def titles(figure):
    return [axes.get_title("left").partition(":")[0] for axes in figure.axes]


def bars_of(axes):
    """(colour, left, right, lane) of each bar, in the units of the axes."""
    found = []
    for drawn in axes.collections:
        if isinstance(drawn, PolyCollection):
            for path in drawn.get_paths():
                (left, top), (right, bottom) = path.vertices.min(axis=0), path.vertices.max(axis=0)
                bar = round(float(left), 6), round(float(right), 6), round(float(top + bottom) / 2)
                found.append((to_hex(drawn.get_facecolor()[0]).upper(), *bar))
    return sorted(found)


def test_lanes_show_what_each_stream_ran_in_the_step_of_median_length():
    figure = plot_trace(everything())

    lanes = figure.axes[0]
    assert lanes.get_title("left") == "streams in third: 4.00 ms"
    assert [label.get_text() for label in lanes.get_yticklabels()] == ["gpu0 7", "gpu0 9"]
    assert bars_of(lanes) == sorted(
        [(COLOURS["kernel"], 0.5, 1.5, 0), (COLOURS["collective"], 1, 3, 1), (COLOURS["copy"], 2, 3, 0)]
    )
    assert lanes.get_xlim() == (0, pytest.approx(4))


def test_classes_are_bars_of_milliseconds_with_their_shares():
    axes = plot_trace(everything()).axes[1]

    assert [label.get_text() for label in axes.get_yticklabels()] == ["collective", "matrix product"]
    assert [bar.get_width() for bar in axes.patches] == pytest.approx([2, 2])
    assert [text.get_text() for text in axes.texts] == ["50.0%", "50.0%"]


def test_the_parts_of_a_step_add_up_to_it():
    axes = plot_trace(everything()).axes[2]

    tops = {}
    for bar in axes.patches:
        tops[round(bar.get_x() + bar.get_width() / 2)] = bar.get_y() + bar.get_height()
    assert tops == {1: pytest.approx(8), 2: pytest.approx(2), 3: pytest.approx(4)}


def test_rates_are_points_of_size_and_bandwidth():
    axes = plot_trace(everything()).axes[3]

    points = {drawn.get_label(): drawn.get_offsets().data.tolist() for drawn in axes.collections}
    assert points["pinned to device"] == [[2**20, pytest.approx(2**20 / 1e-3 / 1e9)]]
    assert points["ncclKernel "] == [[2**20, pytest.approx(2**20 / 2e-3 / 1e9)]]


@pytest.mark.parametrize(
    ("trace", "panels"),
    [
        (everything(), ["streams in third", "kernels by class", "steps, each instant once", "copies and collectives"]),
        (trace_of(copy(0, 1, 64), **UNTIMED), ["copies and collectives"]),
        (trace_of(kernel(0, 1), **UNTIMED), ["kernels by class"]),
        (trace_of(kernel(0, 0)), ["streams in whole trace", "kernels by class"]),
    ],
    ids=["all", "a log of copies", "a profile of layers", "no time at all"],
)
def test_only_panels_with_something_in_them_are_drawn(trace, panels, tmp_path):
    figure = plot_trace(trace)

    assert titles(figure) == panels
    save_figure(figure, tmp_path / "t.png")


@pytest.mark.parametrize("trace", [trace_of(), trace_of(on_host("host", 0, 1)), trace_of(copy(0, 1, 0), **UNTIMED)])
def test_a_trace_with_nothing_to_draw_is_refused(trace):
    with pytest.raises(StepsimError, match="there is nothing to draw"):
        plot_trace(trace)


def test_of_too_many_streams_those_that_are_busy_longest_are_drawn():
    figure = plot_trace(trace_of(*[kernel(0, 1 + number, stream=number) for number in range(MOST_LANES + 5)]))

    lanes = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert lanes == [f"gpu0 {number}" for number in range(5, MOST_LANES + 5)]


def test_names_are_shown_as_they_are_even_if_they_look_like_formulas_or_steer_a_terminal(tmp_path):
    bad = "$\\bad{$\x1b"
    figure = plot_trace(
        trace_of(
            on_host("step", 0, 9, name=bad),
            kernel(0, 1, bad, device=bad),
            collective(1, 1, bad, size_bytes=8),
        )
    )

    save_figure(figure, tmp_path / "t.png")
    assert figure.axes[0].get_title("left").startswith("streams in $\\bad{$?")


@pytest.mark.parametrize("num_streams", [1, 3, MOST_LANES])
def test_texts_do_not_overlap_however_many_streams_there_are(num_streams):
    rows = [kernel(lane, 1, stream=lane) for lane in range(num_streams)]
    steps = [on_host("step", lane, 1, name=f"ProfilerStep#{lane}") for lane in range(num_streams)]
    figure = plot_trace(trace_of(*rows, *steps, copy(0, 1, 2**20, stream=0)))

    figure.draw_without_rendering()

    texts = [text for axes in figure.axes for text in (*axes.get_yticklabels(), axes._left_title, axes.xaxis.label)]
    texts += [text for axes in figure.axes if axes.get_legend() for text in axes.get_legend().get_texts()]
    boxes = [text.get_window_extent() for text in texts if text.get_text()]
    assert len(boxes) > 10
    assert not [(a, b) for a, b in itertools.combinations(boxes, 2) if a.overlaps(b)]
