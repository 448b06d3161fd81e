"""A picture of a trace: what its streams ran, what its kernels and steps spent time on, how fast it moved bytes."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, cast

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from stepsim.errors import StepsimError
from stepsim.traces.intervals import span_s
from stepsim.traces.moments import ON_DEVICE
from stepsim.traces.summary import WHOLE, kernels_by_class, steps, tells_when
from stepsim.traces.trace import Trace
from stepsim.units import format_seconds

if TYPE_CHECKING:
    from matplotlib.typing import HashableList

# Okabe and Ito, "Color Universal Design" (2008): colours that people with any colour vision can tell apart. Kernels,
# collectives and copies have those that they have in timelines.
COLOURS: Mapping[str, str] = {"kernel": "#0072B2", "collective": "#F0E442", "copy": "#CC79A7", "memset": "#009E73"}
ACTIVITY_COLOURS: Mapping[str, str] = {
    "kernels": "#0072B2",
    "collectives": "#F0E442",
    "copies": "#CC79A7",
    "host_work": "#999999",
    "idle": "#E4E4E4",
}
CURVES = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#111111")
QUIET_COLOUR = "#666666"
GRID_COLOUR = "#E4E4E4"

WIDTH_INCH, PANEL_INCH, LANE_INCH = 10.0, 2.8, 0.3
MOST_LANES = 24  # of more streams, those that are busy longest
MOST_STEPS = 40  # of more steps, the first
MOST_CURVES = len(CURVES)  # of more kinds of copies, those that take longest
LONGEST_NAME = 34
MS_PER_S, GB = 1e3, 1e9

Draw = Callable[[Axes, Trace], None]


def plot_trace(trace: Trace) -> Figure:
    """Panels for what ``trace`` has: lanes of the median step, kernels by class, steps, rates of copies by size.

    Raises `StepsimError` for a trace without kernels, copies and collectives.
    """
    panels = _panels(trace)
    if not panels:
        raise StepsimError("there is nothing to draw: the trace has neither kernels, copies nor collectives")
    rows = _arranged(list(panels))
    heights = [_lanes_inch(trace) if "lanes" in row else PANEL_INCH for row in rows]
    figure = Figure(figsize=(WIDTH_INCH, sum(heights) + 0.6), layout="constrained")
    for name, axes in figure.subplot_mosaic(cast("list[HashableList[str]]", rows), height_ratios=heights).items():
        panels[str(name)](axes, trace)
        _tidy(axes)
    return figure


def _panels(trace: Trace) -> dict[str, Draw]:
    found: dict[str, Draw] = {}
    in_time = tells_when(trace) and len(trace.of(*ON_DEVICE)) > 0
    if in_time:
        found["lanes"] = _draw_lanes
    if len(trace.of("kernel")):
        found["classes"] = _draw_classes
    if in_time and "kernels_share" in steps(trace):
        found["steps"] = _draw_steps
    if (trace.of("copy", "collective")["size_bytes"] > 0).any():
        found["rates"] = _draw_rates
    return found


def _arranged(names: list[str]) -> list[list[str]]:
    """Names of panels in two columns; the lanes, and a last one alone, take both."""
    small = [name for name in names if name != "lanes"]
    pairs = [(small[place : place + 2] * 2)[:2] for place in range(0, len(small), 2)]
    return [["lanes", "lanes"], *pairs] if "lanes" in names else pairs


def _lanes_inch(trace: Trace) -> float:
    return 1.0 + LANE_INCH * min(len(_lanes(trace.of(*ON_DEVICE))), MOST_LANES)


def _lanes(events: pd.DataFrame) -> list[tuple[str, int]]:
    """Device and stream, in order; of too many those that are busy longest."""
    busy = events.groupby(["device", "stream"])["duration_s"].sum()
    return sorted(busy.nlargest(MOST_LANES).index)


def _window(trace: Trace) -> tuple[str, float, float]:
    """Name, begin and end of the step of median length (the upper one of two), or of the whole."""
    found = trace.of("step").sort_values("duration_s", kind="stable")
    if found.empty:
        begin_s = float(trace.events["start_s"].min())
        return WHOLE, begin_s, begin_s + span_s(trace.events)
    step = found.iloc[len(found) // 2]
    return str(step["name"]), float(step["start_s"]), float(step["start_s"] + step["duration_s"])


def _draw_lanes(axes: Axes, trace: Trace) -> None:
    """Streams of the step. What it launched may run after its end on the host."""
    name, begin_s, end_s = _window(trace)
    events = trace.of(*ON_DEVICE)
    lanes = _lanes(events)
    last_s = events["start_s"] + events["duration_s"]
    events = events[(last_s > begin_s) & (events["start_s"] < end_s)]
    for place, (device, stream) in enumerate(lanes):
        on_lane = events[(events["device"] == device) & (events["stream"] == stream)]
        for kind, colour in COLOURS.items():
            rows = on_lane[on_lane["kind"] == kind]
            left_ms, width_ms = (rows["start_s"] - begin_s) * MS_PER_S, rows["duration_s"] * MS_PER_S
            bars = list(zip(left_ms, width_ms, strict=True))
            axes.broken_barh(bars, (place - 0.37, 0.74), facecolor=colour, edgecolor=colour, linewidth=0.4)
    axes.set_yticks(range(len(lanes)), [_short(f"{device} {stream}") for device, stream in lanes], parse_math=False)
    axes.set(xlim=(0, (end_s - begin_s) * MS_PER_S or 1.0), ylim=(len(lanes) - 0.5, -0.5), xlabel="time in ms")
    title = f"streams in {_short(name)}: {format_seconds(end_s - begin_s)}"
    axes.set_title(title, loc="left", fontsize=10, parse_math=False)
    present = set(trace.events["kind"])
    handles = [Patch(color=colour, label=kind) for kind, colour in COLOURS.items() if kind in present]
    axes.legend(handles=handles, ncols=4, loc="lower right", bbox_to_anchor=(1, 1), frameon=False, fontsize=8)


def _draw_classes(axes: Axes, trace: Trace) -> None:
    table = kernels_by_class(trace).iloc[::-1]
    bars = axes.barh(table["class"], table["total_s"] * MS_PER_S, color=COLOURS["kernel"], height=0.7)
    axes.bar_label(bars, [f"{share:.1%}" for share in table["share"]], padding=3, fontsize=8)
    axes.margins(x=0.15)
    axes.set(xlabel="time in ms")
    axes.set_title("kernels by class", loc="left", fontsize=10)


def _draw_steps(axes: Axes, trace: Trace) -> None:
    table = steps(trace).head(MOST_STEPS)
    floor = np.zeros(len(table))
    for activity, colour in ACTIVITY_COLOURS.items():
        took = (table[f"{activity}_share"] * table["duration_s"]).to_numpy() * MS_PER_S
        axes.bar(range(1, len(table) + 1), took, bottom=floor, color=colour, width=0.8)
        floor = floor + took
    axes.set(xlabel="step", ylabel="time in ms")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_title("steps, each instant once", loc="left", fontsize=10)
    handles = [Patch(color=colour, label=activity.replace("_", " ")) for activity, colour in ACTIVITY_COLOURS.items()]
    axes.legend(handles=handles[::-1], loc="upper left", bbox_to_anchor=(1, 1), frameon=False, fontsize=8)


def _draw_rates(axes: Axes, trace: Trace) -> None:
    moved = trace.of("copy", "collective")
    moved = moved[(moved["size_bytes"] > 0) & (moved["duration_s"] > 0)]
    ends = moved["source"] + " to " + moved["destination"]
    moved = moved.assign(what=ends.where(moved["kind"] == "copy", moved["name"] + " " + moved["work"]))
    longest = moved.groupby("what")["duration_s"].sum().nlargest(MOST_CURVES).index
    for what, colour in zip(sorted(longest), CURVES, strict=False):
        rows = moved[moved["what"] == what]
        rate = rows["size_bytes"] / rows["duration_s"] / GB
        axes.scatter(rows["size_bytes"], rate, s=9, color=colour, alpha=0.7, linewidths=0, label=_short(str(what)))
    axes.set(xscale="log", yscale="log", xlabel="size in bytes", ylabel="GB/s")
    axes.set_title("copies and collectives", loc="left", fontsize=10)
    for text in axes.legend(frameon=False, fontsize=8).get_texts():
        text.set_parse_math(False)


def _tidy(axes: Axes) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(QUIET_COLOUR)
    axes.tick_params(length=0, labelsize=9)
    axes.grid(axis="x", color=GRID_COLOUR, linewidth=0.6)
    axes.set_axisbelow(True)


def _short(name: str) -> str:
    """Cut at the end, and with a question mark for what no font can draw."""
    short = name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME - 1]}…"
    return "".join(letter if letter.isprintable() else "?" for letter in short)
