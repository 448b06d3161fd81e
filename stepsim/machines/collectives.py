"""What a collective asks of the links: its stages on a machine, by algorithm.

Bytes are those of alpha-beta models, with S what each of n members contributes:

==============  =====================  ==========================================================
kind            ring, on each edge     otherwise
==============  =====================  ==========================================================
all_reduce      2 (n - 1) / n S        tree: S / 2 up and down each edge of two trees
reduce_scatter  (n - 1) / n S
all_gather      (n - 1) S
broadcast       S                      tree: S down each edge of one tree
all_to_all                             always direct: S / n from each member to each other
==============  =====================  ==========================================================

``ring`` is one ring round the team as it stands. ``rings`` splits the bytes over as many rings as the links carry
(`stepsim.machines.rings`). ``tree`` is binary; over several nodes it joins the nodes, and inside each is a chain.
``hierarchical`` goes over rings inside each node, then over a ring across nodes of the members with the same place in
their node, stage after stage. ``auto`` is whichever of these, but for trees, moves many bytes soonest.

Sources: Thakur, Rabenseifner, Gropp, "Optimization of Collective Communication Operations in MPICH" (IJHPCA 2005);
Sanders, Speck, Traeff, "Two-tree algorithms for full bandwidth broadcast, reduction and scan" (Parallel Computing,
2009), which NCCL uses across nodes since 2.4; Cho et al., "BlueConnect" (MLSys 2019) for the hierarchy. None of them
overlaps its stages here, as NCCL's do in part.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeVar

from stepsim.errors import MachineError
from stepsim.machines.machine import Link, Machine
from stepsim.machines.rings import edges, rings_of

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
    if kind == "all_to_all":
        return _stages(machine, _direct(team))
    if algorithm == "auto":
        candidates = [_stages(machine, _PATTERNS[name](machine, kind, team)) for name in _candidates(machine, team)]
        return min(candidates, key=_seconds_a_byte)
    return _stages(machine, _PATTERNS[algorithm](machine, kind, team))


Pattern = list[tuple[int, list[Edge]]]
"""For each stage its steps, and the edges that are busy in it."""


def _candidates(machine: Machine, team: Sequence[str]) -> list[str]:
    """What `auto` chooses among; of equals the first."""
    nodes = _by_node(machine, team)
    if len(nodes) == 1:
        return ["ring", "rings"]
    return ["hierarchical", "ring"] if len(nodes[0]) > 1 and _is_even(nodes) else ["ring"]


def _seconds_a_byte(stages: tuple[Stage, ...]) -> float:
    return sum(stage.volume / stage.rate_bytes_per_s for stage in stages)


def _ring(machine: Machine, kind: str, team: Sequence[str]) -> Pattern:
    return [_ring_stage(kind, [(1.0, team)])]


def _rings(machine: Machine, kind: str, team: Sequence[str]) -> Pattern:
    rings = [(share, _from(ring, team[0])) for share, ring in rings_of(machine, team)]
    return [_ring_stage(kind, rings)]


def _from(ring: list[str], first: str) -> list[str]:
    """``ring``, beginning at ``first``: a broadcast does."""
    at = ring.index(first)
    return [*ring[at:], *ring[:at]]


def _ring_stage(kind: str, rings: Sequence[tuple[float, Sequence[str]]]) -> tuple[int, list[Edge]]:
    """Rings of one size, all busy at once, each with its share of the bytes."""
    n = len(rings[0][1])
    steps, factor = {
        "all_reduce": (2 * (n - 1), 2 * (n - 1) / n),
        "reduce_scatter": (n - 1, (n - 1) / n),
        "all_gather": (n - 1, float(n - 1)),
        "broadcast": (n - 1, 1.0),
    }[kind]
    last = n - 1 if kind == "broadcast" else n  # the last of a broadcast passes nothing on
    return steps, [(a, b, factor * share) for share, ring in rings for a, b in edges(ring)[:last]]


def _tree(machine: Machine, kind: str, team: Sequence[str]) -> Pattern:
    """Two trees, the second turned by half, so that leaves of one are inside the other; one tree for a broadcast."""
    if kind not in ("all_reduce", "broadcast"):
        raise MachineError(f"a {kind} has no tree algorithm: take ring, rings or hierarchical")
    nodes = _by_node(machine, team)
    chains = nodes if len(nodes) > 1 else [[name] for name in team]
    trees = [chains] if kind == "broadcast" else [chains, [_turned(chain) for chain in _turned(chains)]]
    pairs = [pair for tree in trees for pair in _tree_edges(tree)]
    down = [(a, b, 1.0 / len(trees)) for a, b in pairs]
    up = [(b, a, 1.0 / len(trees)) for a, b in pairs] if kind == "all_reduce" else []
    depth = len(chains).bit_length() - 1 + max(len(chain) for chain in chains) - 1
    return [(depth if kind == "broadcast" else 2 * depth, down + up)]


def _tree_edges(chains: Sequence[Sequence[str]]) -> list[tuple[str, str]]:
    """Down a binary tree over the first of each chain, and along the chains."""
    across = [(chains[(child - 1) // 2][0], chains[child][0]) for child in range(1, len(chains))]
    return across + [pair for chain in chains for pair in pairwise(chain)]


T = TypeVar("T")


def _turned(members: Sequence[T]) -> list[T]:
    half = len(members) // 2
    return [*members[half:], *members[:half]]


def _hierarchical(machine: Machine, kind: str, team: Sequence[str]) -> Pattern:
    nodes = _by_node(machine, team)
    if not _is_even(nodes):
        sizes = sorted({len(members) for members in nodes})
        raise MachineError(f"a hierarchical {kind} needs as many members on every node, got {sizes}")
    across = [list(peers) for peers in zip(*nodes, strict=True)]
    g, m = len(nodes[0]), len(nodes)
    inside = [(share, _from(ring, members[0])) for members in nodes for share, ring in rings_of(machine, members)]

    def stage(part: str, rings: Sequence[tuple[float, Sequence[str]]], share: float) -> tuple[int, list[Edge]]:
        return _ring_stage(part, [(share * of_ring, ring) for of_ring, ring in rings])

    between = [(1.0, ring) for ring in across]
    match kind:
        case "all_reduce":
            stages = [("reduce_scatter", inside, 1.0), ("all_reduce", between, 1 / g), ("all_gather", inside, 1 / g)]
        case "reduce_scatter":
            stages = [("reduce_scatter", inside, 1.0), ("reduce_scatter", between, 1 / g)]
        case "all_gather":
            stages = [("all_gather", between, 1.0), ("all_gather", inside, float(m))]
        case _:
            stages = [("broadcast", between[:1], 1.0), ("broadcast", inside, 1.0)]
    return [stage(*entry) for entry in stages if len(entry[1][0][1]) > 1]


def _direct(team: Sequence[str]) -> Pattern:
    return [(len(team) - 1, [(a, b, 1 / len(team)) for a in team for b in team if a != b])]


_PATTERNS = {"ring": _ring, "rings": _rings, "tree": _tree, "hierarchical": _hierarchical}


def _by_node(machine: Machine, team: Sequence[str]) -> list[list[str]]:
    """Members of each node, in the order of the team."""
    nodes: dict[str, list[str]] = {}
    for name in team:
        nodes.setdefault(machine.device(name).node, []).append(name)
    return list(nodes.values())


def _is_even(nodes: Sequence[Sequence[str]]) -> bool:
    return len({len(members) for members in nodes}) == 1


def _stages(machine: Machine, pattern: Iterable[tuple[int, list[Edge]]]) -> tuple[Stage, ...]:
    return tuple(_stage(machine, steps, busy) for steps, busy in pattern)


def _stage(machine: Machine, steps: int, busy: list[Edge]) -> Stage:
    """Adds up what crosses each link."""
    volumes: dict[str, float] = {}
    links: dict[str, Link] = {}
    hop_s = 0.0
    for source, destination, factor in busy:
        route = machine.route(source, destination)
        hop_s = max(hop_s, sum(link.latency_s for link in route))
        for link in route:
            links[link.name] = link
            volumes[link.name] = volumes.get(link.name, 0.0) + factor
    volume = max(volumes.values(), default=1.0)
    weights = tuple((links[name], bytes_ / volume) for name, bytes_ in volumes.items())
    return Stage(volume=volume, links=weights, latency_s=steps * hop_s)
