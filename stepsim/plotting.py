"""Pictures of timelines. Nothing else in the package draws."""

import io
import itertools
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from numpy.typing import NDArray

from stepsim.errors import FileError, StepsimError
from stepsim.plan import NONE, TaskKind
from stepsim.tables import write_bytes
from stepsim.timeline import Timeline
from stepsim.units import MIB, format_seconds

MS_PER_S = 1e3

# Okabe and Ito, "Color Universal Design" (2008): colours that people with any colour vision can tell apart.
COLOURS = {
    TaskKind.COMPUTE: "#0072B2",
    TaskKind.RECOMPUTE: "#56B4E9",
    TaskKind.SWAP_OUT: "#D55E00",
    TaskKind.SWAP_IN: "#E69F00",
    TaskKind.COPY: "#CC79A7",
    TaskKind.SEND: "#009E73",
    TaskKind.RECEIVE: "#80CEB9",  # half of the one for send
    TaskKind.COLLECTIVE: "#F0E442",
    TaskKind.HOST: "#999999",
}
CURVES = ("#A6A6A6", "#111111", "#0072B2", "#009E73")
LIMIT_COLOUR = "#D55E00"
QUIET_COLOUR = "#666666"
GRID_COLOUR = "#E4E4E4"

WIDTH_INCH = 10.0
MEMORY_INCH = 2.1
LANE_INCH = 0.36
TALLEST_LANES_INCH = 12.0  # lanes get thinner beyond this height
MOST_LANE_NAMES = 36  # of more lanes, every second, third, ... is named
LONGEST_NAME = 30
BAR_HEIGHT = 0.74  # of a lane
HAIRLINE_POINTS = 0.4  # around each bar, so that the shortest span is still seen
BARS_APART = 100  # a bar wider than this part of the axis has a white edge, so that neighbours are told apart


def plot_timelines(
    timelines: Mapping[str, Timeline], *, device: str | None = None, limit_bytes: int | None = None
) -> Figure:
    """Lane diagrams of ``timelines`` (by label: predicted, measured), one above the other, and the memory of a device.

    All share one time axis and show the same lanes: those on which something takes time. ``device`` is the first one
    unless named; ``limit_bytes`` is a dashed line. Raises `StepsimError` for no timeline, or without that device.
    """
    if not timelines:
        raise StepsimError("there is no timeline to plot")
    lines = list(timelines.values())
    if not lines[0].devices:
        raise StepsimError("there is nothing to plot: the timeline is of no device")
    device = lines[0].devices[0] if device is None else device
    lanes = _lanes_that_work(lines)
    lanes_inch = min(LANE_INCH * (len(lanes) + 1), TALLEST_LANES_INCH)
    heights = [*([lanes_inch] * len(lines)), MEMORY_INCH]
    figure = Figure(figsize=(WIDTH_INCH, sum(heights) + 1.0), layout="constrained")
    *panels, below = figure.subplots(len(heights), sharex=True, height_ratios=heights, squeeze=False)[:, 0]
    longest_s = max(line.makespan_s for line in lines)
    for axes, (label, timeline) in zip(panels, timelines.items(), strict=True):
        _draw_lanes(axes, label, timeline, lanes, wide_s=longest_s / BARS_APART)
    _draw_memory(below, timelines, device, limit_bytes)
    for axes in (*panels, below):
        _tidy(axes)
    below.set_xlim(0, longest_s * MS_PER_S * 1.005 or 1.0)
    below.set_xlabel("time in ms")
    _draw_legend(figure, lines)
    return figure


def save_figure(figure: Figure, path: str | Path) -> None:
    """Write ``figure`` in the format that the suffix of ``path`` names: all of it, or nothing.

    Raises `FileError` for a suffix that names no format.
    """
    suffix = check_suffix(path)
    buffer = io.BytesIO()
    figure.savefig(buffer, format=suffix, dpi=160)
    write_bytes(path, buffer.getvalue())


def check_suffix(path: str | Path) -> str:
    """The format that the suffix of ``path`` names. Raises `FileError` where it names none."""
    suffix, formats = Path(path).suffix.removeprefix("."), Figure().canvas.get_supported_filetypes()
    if suffix not in formats:
        raise FileError(path, "suffix", suffix, f"must be one of {', '.join(sorted(formats))}")
    return suffix


def _takes_time(timeline: Timeline) -> NDArray[np.bool_]:
    return timeline.spans.end_s > timeline.spans.start_s


def _lanes_that_work(timelines: Iterable[Timeline]) -> list[str]:
    found: dict[str, None] = {}
    for timeline in timelines:
        for lane in np.unique(timeline.spans.lane[_takes_time(timeline)]):
            found[timeline.lanes[lane]] = None
    return list(found)


def _draw_lanes(axes: Axes, label: str, timeline: Timeline, lanes: Sequence[str], *, wide_s: float) -> None:
    """One collection of bars a kind: a patch for each span would take minutes for a large plan."""
    spans, shown = timeline.spans, _takes_time(timeline)
    line_of = {name: line for line, name in enumerate(lanes)}
    place = np.array([line_of.get(name, NONE) for name in timeline.lanes])
    for kind, colour in COLOURS.items():
        rows = np.flatnonzero(shown & (spans.kind == kind))
        start_s, end_s = spans.start_s[rows], spans.end_s[rows]
        # As an array: of a list matplotlib makes a path for each bar. Its type hints know lists only.
        bars: Any = _bars(start_s * MS_PER_S, end_s * MS_PER_S, place[spans.lane[rows]])
        edges = np.where(end_s - start_s > wide_s, "white", colour)
        axes.add_collection(PolyCollection(bars, facecolors=colour, edgecolors=edges, linewidths=HAIRLINE_POINTS))
    axes.axvline(timeline.makespan_s * MS_PER_S, color=QUIET_COLOUR, linewidth=0.8)
    axes.set_title(f"{label}: {format_seconds(timeline.makespan_s)}", loc="left", fontsize=10)
    axes.set_ylim(max(len(lanes), 1) - 0.5, -0.5)
    named = range(0, len(lanes), -(-len(lanes) // MOST_LANE_NAMES) or 1)
    axes.set_yticks(list(named), [_short(lanes[lane]) for lane in named], parse_math=False)


def _bars(left: NDArray[np.float64], right: NDArray[np.float64], lane: NDArray[np.int64]) -> NDArray[np.float64]:
    """Corners, of shape (spans, 4, 2)."""
    above, under = lane - BAR_HEIGHT / 2, lane + BAR_HEIGHT / 2
    corners = [(left, above), (right, above), (right, under), (left, under)]
    return np.stack([np.stack(corner, axis=-1) for corner in corners], axis=1)


def _draw_memory(axes: Axes, timelines: Mapping[str, Timeline], device: str, limit_bytes: int | None) -> None:
    """Curves often lie on each other: later ones are thinner, and the first one has an area, so that all are seen."""
    highest = 0.0 if limit_bytes is None else limit_bytes / MIB
    for number, ((label, timeline), colour) in enumerate(zip(timelines.items(), itertools.cycle(CURVES), strict=False)):
        time_s, resident = _curve(timeline, device)
        peak = resident.max(initial=0.0)
        highest = max(highest, peak)
        width = max(0.8, 2.4 - 1.4 * number)
        axes.step(time_s * MS_PER_S, resident, where="post", color=colour, lw=width, label=f"{label} (peak {peak:.1f})")
        if number == 0:
            axes.fill_between(time_s * MS_PER_S, resident, step="post", color=colour, alpha=0.2, linewidth=0)
    if limit_bytes is not None:
        limit, dashes = limit_bytes / MIB, (0, (6, 3))
        axes.axhline(limit, color=LIMIT_COLOUR, linestyle=dashes, linewidth=1.2, label=f"limit ({limit:.1f})")
    axes.set_ylim(0, highest * 1.08 or 1.0)
    axes.set_title(f"memory of {_short(device)} in MiB", loc="left", fontsize=10, parse_math=False)
    axes.legend(loc="lower right", bbox_to_anchor=(1, 1), borderaxespad=0.2, ncols=4, frameon=False, fontsize=9)


def _curve(timeline: Timeline, device: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Times in s and resident MiB, kept up to the end of the run."""
    if device not in timeline.devices:
        raise StepsimError(f"the timeline has no device {device!r}; it has {sorted(timeline.devices)}")
    steps = timeline.memory
    here = steps.device == timeline.devices.index(device)
    time_s, resident = steps.time_s[here], steps.resident_bytes[here] / MIB
    if not len(time_s):
        return time_s, resident
    return np.append(time_s, timeline.makespan_s), np.append(resident, resident[-1])


def _tidy(axes: Axes) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(QUIET_COLOUR)
    axes.tick_params(length=0, labelsize=9)
    axes.grid(axis="x", color=GRID_COLOUR, linewidth=0.6)
    axes.set_axisbelow(True)


def _draw_legend(figure: Figure, timelines: Iterable[Timeline]) -> None:
    """The kinds that occur, above all panels."""
    present = {kind for line in timelines for kind in np.unique(line.spans.kind[_takes_time(line)]).tolist()}
    kinds = [Patch(color=colour, label=kind.label) for kind, colour in COLOURS.items() if kind in present]
    figure.legend(handles=kinds, loc="outside upper center", ncols=max(len(kinds), 1), frameon=False, fontsize=9)


def _short(name: str) -> str:
    """Long names lose their middle: the device stands in front, the stream at the end."""
    half = LONGEST_NAME // 2
    return name if len(name) <= LONGEST_NAME else f"{name[:half]}…{name[1 - half :]}"
