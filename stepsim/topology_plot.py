"""A picture of a machine: what is joined to what, and how fast."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import FancyArrowPatch

from stepsim.errors import MachineError
from stepsim.machines import DeviceKind, Machine

# Okabe and Ito, "Color Universal Design" (2008): colours that people with any colour vision can tell apart.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#F0E442", "#111111")
FILLS = {
    DeviceKind.GPU: "#D6E8F4",
    DeviceKind.CPU: "#D6E8F4",
    DeviceKind.HOST: "#E8E8E8",
    DeviceKind.NETWORK: "#FBE3CF",
}
COMPUTING = (DeviceKind.GPU, DeviceKind.CPU)
BETWEEN_FILL = "white"  # a place that is no device, such as a switch
COLUMN_INCH, ROW_INCH = 1.15, 1.1
MOST_PLACES = 300  # side by side at 160 dots an inch; matplotlib draws at most 65,536 dots across
THINNEST_POINTS, THICKEST_POINTS = 1.0, 4.5
BEND = 0.28  # of the distance, between two places in one row

Point = tuple[float, float]


@dataclass(frozen=True)
class Edge:
    """Two places that links join, and the bandwidth of the fastest of those links."""

    ends: tuple[str, str]
    rate_bytes_per_s: float


def plot_topology(machine: Machine) -> Figure:
    """Places and the links between them: the fabric above, what computes below; of a cluster only one node.

    Wider lines carry more. A link that does not tell its ends is drawn where it alone is a route. Raises `MachineError`
    for more places than a picture can hold.
    """
    shown, title = _one_node(machine)
    if not 1 <= len(shown) <= MOST_PLACES:
        raise MachineError(f"machine {machine.name!r} has {len(shown)} places; a picture shows 1 to {MOST_PLACES}")
    edges = [edge for edge in _edges(machine) if shown.issuperset(edge.ends)]
    kinds = {device.name: device.kind for device in machine.devices if device.name in shown}
    at = _positions(kinds, edges)
    width = 2.0 + COLUMN_INCH * (1 + max(x for x, _ in at.values()) - min(x for x, _ in at.values()))
    height = 0.6 + ROW_INCH * (1 + max(y for _, y in at.values()) - min(y for _, y in at.values()))
    figure = Figure(figsize=(max(width, 5.0), height), layout="constrained")
    axes = figure.subplots()
    _draw_edges(axes, edges, at)
    for place, (x, y) in at.items():
        fill = FILLS[kinds[place]] if place in kinds else BETWEEN_FILL
        box = {"boxstyle": "round,pad=0.35", "facecolor": fill, "edgecolor": "#666666", "linewidth": 0.8}
        label = place.rpartition("/")[2]
        axes.text(x, y, label, ha="center", va="center", fontsize=9, bbox=box, zorder=3, parse_math=False)
    _tidy(axes, title, edges, at)
    return figure


def _one_node(machine: Machine) -> tuple[set[str], str]:
    """The places of the first node, and of no node; and what the picture shows."""
    nodes = list(dict.fromkeys(device.node for device in machine.devices if device.node))
    places = {end for link in machine.links if link.ends for end in link.ends}
    places |= {device.name for device in machine.devices}
    if not nodes:
        return places, machine.name
    others = tuple(f"{node}/" for node in nodes[1:])
    shown = {place for place in places if not place.startswith(others)} if others else places
    return shown, f"{machine.name}: one of {len(nodes)} nodes"


def _edges(machine: Machine) -> list[Edge]:
    """One for all links between the same places, whatever their direction."""
    alone = {route.links[0]: (route.source, route.destination) for route in machine.routes if len(route.links) == 1}
    rates: dict[tuple[str, str], float] = {}
    for link in machine.links:
        ends = link.ends or alone.get(link.name)
        if ends:
            places = min(ends), max(ends)
            rates[places] = max(link.bandwidth_bytes_per_s, rates.get(places, 0.0))
    return [Edge(places, rate) for places, rate in rates.items()]


def _positions(kinds: Mapping[str, DeviceKind], edges: Sequence[Edge]) -> dict[str, Point]:
    """What computes stands side by side, every other place in the middle of the computing devices nearest to it."""
    near: dict[str, set[str]] = {name: set() for name in kinds}
    for edge in edges:
        for place, other in (edge.ends, edge.ends[::-1]):
            near.setdefault(place, set()).add(other)
    x = {name: float(i) for i, name in enumerate(name for name, kind in kinds.items() if kind in COMPUTING)}
    rows = _rows(kinds, near)
    for row in set(rows.values()):
        here = [place for place in near if rows[place] == row and place not in x]
        x.update(_apart({place: _middle([x[name] for name in _nearest(place, near, kinds)]) for place in here}))
    return {place: (x[place], -float(rows[place])) for place in near}


def _rows(kinds: Mapping[str, DeviceKind], near: Mapping[str, set[str]]) -> dict[str, int]:
    """From above: networks, cards of their own, hosts, what lies between, what computes, what only that is joined to.

    A card stands above the host, though its switch is below it, so that lines to the network cross no other place.
    """
    networks = {name for name, kind in kinds.items() if kind is DeviceKind.NETWORK}
    level = {name for name, kind in kinds.items() if kind is DeviceKind.HOST}
    beside = {other for place in networks for other in near[place]} - kinds.keys()
    cards = {place for place in beside if not near[place] & level}
    rows, depth = dict.fromkeys(networks, 0) | dict.fromkeys(cards, 1), 1 + bool(cards)
    while level:
        rows |= dict.fromkeys(level, depth)
        level = {other for place in level for other in near[place]} - rows.keys() - kinds.keys()
        depth += 1
    rows |= {name: depth for name, kind in kinds.items() if kind in COMPUTING}
    return {place: rows.get(place, depth + 1) for place in near}


def _nearest(place: str, near: Mapping[str, set[str]], kinds: Mapping[str, DeviceKind]) -> list[str]:
    """The computing devices that are the fewest links away."""
    level, seen = {place}, {place}
    while level:
        found = [name for name in level if kinds.get(name) in COMPUTING]
        if found:
            return found
        level = {other for here in level for other in near[here]} - seen
        seen |= level
    return []


def _middle(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def _apart(wanted: Mapping[str, float]) -> Iterator[tuple[str, float]]:
    """Places that want one x stand side by side around it."""
    for x in set(wanted.values()):
        alike = [place for place in wanted if wanted[place] == x]
        for number, place in enumerate(alike):
            yield place, x + number - (len(alike) - 1) / 2


def _draw_edges(axes: Axes, edges: Sequence[Edge], at: Mapping[str, Point]) -> None:
    """A colour for each bandwidth."""
    rates = sorted({edge.rate_bytes_per_s for edge in edges})
    widths = np.linspace(THINNEST_POINTS, THICKEST_POINTS, len(rates))
    style = {rate: (COLOURS[i % len(COLOURS)], float(widths[i])) for i, rate in enumerate(rates)}
    for edge in edges:
        colour, width = style[edge.rate_bytes_per_s]
        one, two = sorted(at[end] for end in edge.ends)
        bend = BEND if _is_bent(one, two) else 0.0
        line = FancyArrowPatch(
            one, two, arrowstyle="-", connectionstyle=f"arc3,rad={bend}", color=colour, linewidth=width, zorder=1
        )
        axes.add_patch(line)
    handles = [
        Line2D([], [], color=colour, lw=width, label=f"{rate / 1e9:.4g} GB/s")
        for rate, (colour, width) in style.items()
    ]
    axes.legend(handles=handles, loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False, fontsize=9)


def _is_bent(one: Point, two: Point) -> bool:
    """Below the places that stand between."""
    return one[1] == two[1] and abs(two[0] - one[0]) > 1


def _tidy(axes: Axes, title: str, edges: Sequence[Edge], at: Mapping[str, Point]) -> None:
    xs, ys = [x for x, _ in at.values()], [y for _, y in at.values()]
    ends = [[at[end] for end in edge.ends] for edge in edges]
    deepest = max((BEND / 2 * abs(two[0] - one[0]) for one, two in ends if _is_bent(one, two)), default=0.0)
    axes.set_xlim(min(xs) - 0.7, max(xs) + 0.7)
    axes.set_ylim(min(ys) - max(0.4, deepest + 0.1), max(ys) + 0.4)
    axes.set_title(title, loc="left", fontsize=10, parse_math=False)
    axes.set_axis_off()
