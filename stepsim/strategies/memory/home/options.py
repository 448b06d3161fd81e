"""What the paper says of the search and of its model of a step, and every choice that it leaves open."""

from dataclasses import dataclass
from typing import Literal, get_args

from stepsim.errors import StepsimError

Queues = Literal["none", "one", "two"]
Start = Literal["read", "made"]
Leader = Literal["previous", "ever"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What the evaluator assumes. The defaults are the paper's, or where it is silent what a plan of stepsim does.

    Of the paper (section 4.3): what goes out is waited for only when room is needed, first out first; what comes back
    is asked for ``prefetch_stages`` before its reader, which in the paper is one; a recomputation first gets what it
    needs, however deep. Here a stage is an op; a convolution has up to three backward ones.

    The paper does not say, so these are options:

    out_after
        A copy out may begin when its map is ``"made"``, while others still read it, as in a plan, and in the example of
        the paper's section 4.3; or when the last forward op has ``"read"`` it, as the paper's executor has it.
    queues
        ``"two"``: copies out wait for each other, and so do copies in. ``"one"``: both ways share a queue.
        ``"none"``: no copy waits for another.
    held
        A map that goes out holds its room until it is out and the room is needed; else only until it begins to leave,
        which no plan can do.
    penalty
        A policy that exceeds the limit is worse than all that do not, the more the worse; else it is unusable.

    Not options, because no plan of ours does otherwise: a recomputed map stays for its later readers, and so does one
    that came back for a recomputation; a map that comes back while it still holds its room gives that back first; all
    outputs of an op are made again, and those that nobody wants are dropped at once; workspaces are not counted.
    """

    prefetch_stages: int = 1
    out_after: Start = "made"
    queues: Queues = "two"
    held: bool = True
    penalty: bool = False

    def __post_init__(self) -> None:
        _check_count("prefetch_stages", self.prefetch_stages, 1)
        _check_name("out_after", self.out_after, get_args(Start))
        _check_name("queues", self.queues, get_args(Queues))


@dataclass(frozen=True, slots=True, kw_only=True)
class Swarm:
    """How the particles search. The defaults are the paper's (section 4.4 and Algorithms 1 and 3).

    Each of ``num_particles`` policies starts with an action drawn for each layer, of those that the layer can take. In
    each of ``num_iterations`` all are updated (`stepsim.strategies.memory.home.algorithm3.update`). Nothing else is
    random, and there is no inertia.

    The paper does not say, or contradicts itself:

    leader
        Whom all learn from throughout an iteration: the best particle as the ``"previous"`` one left them, as the
        paper has it, or the best there was ``"ever"``.
    random_share
        The share of positions at which a random action is tried too. The paper has none, but its figure 8 shows
        particles that stay apart, as its algorithm cannot keep them.

    Not options: of equal actions the leader's is taken, then the particle's own; where no trial is usable an action
    stays as it is; the own best is the first of equals.
    """

    num_particles: int = 500
    num_iterations: int = 500
    leader: Leader = "previous"
    random_share: float = 0.0

    def __post_init__(self) -> None:
        _check_count("num_particles", self.num_particles, 1)
        _check_count("num_iterations", self.num_iterations, 0)
        _check_name("leader", self.leader, get_args(Leader))
        if not 0 <= self.random_share <= 1:
            raise StepsimError(f"random_share: must be from 0 to 1, got {self.random_share}")


def _check_count(name: str, count: int, least: int) -> None:
    if count < least:
        raise StepsimError(f"{name}: must be at least {least}, got {count}")


def _check_name(name: str, given: str, known: tuple[str, ...]) -> None:
    if given not in known:
        raise StepsimError(f"{name}: must be one of {', '.join(known)}, got {given!r}")
