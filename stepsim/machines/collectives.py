"""What a collective asks of the links: its stages on a machine, by algorithm.

Bytes are those of alpha-beta models, with S what each of n members contributes:

==============  =====================  ==========================================================
kind            ring, on each edge     otherwise
==============  =====================  ==========================================================
all_reduce      2 (n - 1) / n S        tree: 2 S a member and direction, in two trees of S / 2 each
reduce_scatter  (n - 1) / n S
all_gather      (n - 1) S
broadcast       S                      tree: S from each parent to each child
all_to_all                             always direct: S / n from each member to each other
==============  =====================  ==========================================================

Sources: Thakur, Rabenseifner, Gropp, "Optimization of Collective Communication Operations in MPICH" (IJHPCA 2005);
Sanders, Speck, Traeff, "Two-tree algorithms for full bandwidth broadcast, reduction and scan" (Parallel Computing,
2009), which NCCL uses since 2.4. Hierarchical: rings inside each node, then rings across nodes of the members with the
same place in their node, stage after stage (Cho et al., "BlueConnect", MLSys 2019).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from stepsim.errors import MachineError
from stepsim.machines.machine import Link, Machine

Edge = tuple[str, str, float]
"""From which device to which, and how many bytes for each byte that a member contributes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """Bytes that flow together: all of a transfer, or one stage of a collective.

    For each byte contributed ``volume`` bytes cross the busiest link, and ``weight`` (at most 1) times as many each of
    the others. ``latency_s`` is what its steps take one after the other, however few the bytes.
    """

    volume: float
    links: tuple[tuple[Link, float], ...]
    latency_s: float

    @property
    def rate_bytes_per_s(self) -> float:
        """Bytes a second over the busiest link when nothing else flows; infinite without links."""
        return min((link.bandwidth_bytes_per_s / weight for link, weight in self.links), default=float("inf"))


def transfer_stages(machine: Machine, source: str, destination: str) -> tuple[Stage, ...]:
    """The one stage of a transfer; within a device it crosses no link. Raises `MachineError` without a route."""
    if source == destination:
        return (Stage(volume=1.0, links=(), latency_s=0.0),)
    return (_stage(machine, 1, [(source, destination, 1.0)]),)


def collective_stages(machine: Machine, kind: str, algorithm: str, team: Sequence[str]) -> tuple[Stage, ...]:
    """The stages of one collective over the devices of ``team``; none for a team of one.

    Raises `MachineError` where devices have no route, or where the team cannot run the algorithm.
    """
    if len(team) <= 1:
        return ()
    return _stages(machine, _PATTERNS[_chosen(machine, kind, algorithm, team)](machine, kind, team))


Pattern = list[tuple[int, list[Edge]]]
"""For each stage its steps, and the edges that are busy in it."""


def _chosen(machine: Machine, kind: str, algorithm: str, team: Sequence[str]) -> str:
    if kind == "all_to_all":
        return "direct"
    if algorithm == "auto":
        rows = _by_node(machine, team)
        return "hierarchical" if len(rows) > 1 and len(rows[0]) > 1 and _is_even(rows) else "ring"
    return algorithm


def _ring(machine: Machine, kind: str, team: Sequence[str]) -> Pattern:
    return [_ring_stage(kind, [team])]


def _ring_stage(kind: str, rings: Sequence[Sequence[str]], share: float = 1.0) -> tuple[int, list[Edge]]:
    """Rings of one size, all busy at once; each member has ``share`` of its bytes in play."""
    n = len(rings[0])
    steps, factor = {
        "all_reduce": (2 * (n - 1), 2 * (n - 1) / n),
        "reduce_scatter": (n - 1, (n - 1) / n),
        "all_gather": (n - 1, float(n - 1)),
        "broadcast": (n - 1, 1.0),
    }[kind]
    ends = -1 if kind == "broadcast" else 0  # the last of a broadcast passes nothing on
    pairs = [(ring[i], ring[(i + 1) % n]) for ring in rings for i in range(n + ends)]
    return steps, [(a, b, factor * share) for a, b in pairs]


def _tree(machine: Machine, kind: str, team: Sequence[str]) -> Pattern:
    """Two binary trees, the second over the team turned by half, so that leaves of one are inside the other."""
    if kind not in ("all_reduce", "broadcast"):
        raise MachineError(f"a {kind} has no tree algorithm: take ring or hierarchical")
    edges: list[Edge] = []
    half = len(team) // 2
    trees = [team] if kind == "broadcast" else [team, [*team[half:], *team[:half]]]
    for order in trees:
        for child in range(1, len(order)):
            up, down = order[child], order[(child - 1) // 2]
            edges.append((down, up, 1.0 / len(trees)))
            if kind == "all_reduce":
                edges.append((up, down, 1.0 / len(trees)))
    depth = len(team).bit_length() - 1
    return [(depth if kind == "broadcast" else 2 * depth, edges)]


def _hierarchical(machine: Machine, kind: str, team: Sequence[str]) -> Pattern:
    nodes = _by_node(machine, team)
    if not _is_even(nodes):
        sizes = sorted({len(members) for members in nodes})
        raise MachineError(f"a hierarchical {kind} needs as many members on every node, got {sizes}")
    across = [list(peers) for peers in zip(*nodes, strict=True)]
    g, m = len(nodes[0]), len(nodes)
    match kind:
        case "all_reduce":
            stages = [("reduce_scatter", nodes, 1.0), ("all_reduce", across, 1 / g), ("all_gather", nodes, 1 / g)]
        case "reduce_scatter":
            stages = [("reduce_scatter", nodes, 1.0), ("reduce_scatter", across, 1 / g)]
        case "all_gather":
            stages = [("all_gather", across, 1.0), ("all_gather", nodes, float(m))]
        case _:
            stages = [("broadcast", across[:1], 1.0), ("broadcast", nodes, 1.0)]
    return [_ring_stage(part, rings, share) for part, rings, share in stages if len(rings[0]) > 1]


def _direct(machine: Machine, kind: str, team: Sequence[str]) -> Pattern:
    return [(len(team) - 1, [(a, b, 1 / len(team)) for a in team for b in team if a != b])]


_PATTERNS = {"ring": _ring, "tree": _tree, "hierarchical": _hierarchical, "direct": _direct}


def _by_node(machine: Machine, team: Sequence[str]) -> list[list[str]]:
    """Members of each node, in the order of the team."""
    nodes: dict[str, list[str]] = {}
    for name in team:
        nodes.setdefault(machine.device(name).node, []).append(name)
    return list(nodes.values())


def _is_even(nodes: Sequence[Sequence[str]]) -> bool:
    return len({len(members) for members in nodes}) == 1


def _stages(machine: Machine, pattern: Iterable[tuple[int, list[Edge]]]) -> tuple[Stage, ...]:
    return tuple(_stage(machine, steps, edges) for steps, edges in pattern)


def _stage(machine: Machine, steps: int, edges: list[Edge]) -> Stage:
    """Adds up what crosses each link."""
    volumes: dict[str, float] = {}
    links: dict[str, Link] = {}
    hop_s = 0.0
    for source, destination, factor in edges:
        route = machine.route(source, destination)
        hop_s = max(hop_s, sum(link.latency_s for link in route))
        for link in route:
            links[link.name] = link
            volumes[link.name] = volumes.get(link.name, 0.0) + factor
    volume = max(volumes.values(), default=1.0)
    weights = tuple((links[name], bytes_ / volume) for name, bytes_ in volumes.items())
    return Stage(volume=volume, links=weights, latency_s=steps * hop_s)
