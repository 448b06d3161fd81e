"""The smallest memory limit within which a strategy finds a plan."""

import time
from dataclasses import dataclass
from typing import Protocol

from stepsim.strategies.memory.propose import MOST_BYTES
from stepsim.strategies.proposal import Proposal


@dataclass(frozen=True, slots=True, kw_only=True)
class LeastMemory:
    """A limit within which a plan was found. ``exact``: one byte less was searched to the end, without any."""

    memory_bytes: int
    exact: bool


class Search(Protocol):
    """`Strategy.plan` of one workload on one machine."""

    def __call__(self, *, memory_bytes: int, time_limit_s: float) -> Proposal: ...


def least_memory(
    search: Search, missed: Proposal, memory_bytes: int, time_limit_s: float, *, most_bytes: int = MOST_BYTES
) -> LeastMemory | None:
    """Where ``search`` within ``memory_bytes`` gave ``missed``, which is not feasible: the smallest limit that works.

    Up to the peak of what was found, until that works. Where that peak is within the limit the host is what lacks
    memory: then at once up to ``most_bytes``, as with more room less is swapped; None if that does not help either.
    Then down by halves, for ``time_limit_s`` seconds in all: each search gets half of what is left. One that finds
    something within less after nothing within more may do so below that limit, too.
    """
    deadline_s = time.monotonic() + time_limit_s

    def at(limit_bytes: int) -> Proposal:
        left_s = max(0.0, deadline_s - time.monotonic())
        return search(memory_bytes=limit_bytes, time_limit_s=left_s / 2)

    fails_bytes, works_bytes, found, exact = memory_bytes, memory_bytes, missed, missed.complete
    while not found.feasible:
        fails_bytes, exact = works_bytes, found.complete
        works_bytes = found.predicted_peak_bytes if found.predicted_peak_bytes > fails_bytes else most_bytes
        if works_bytes <= fails_bytes:
            return None
        found = at(works_bytes)
    next_bytes = min(found.predicted_peak_bytes, works_bytes - 1)
    while works_bytes - fails_bytes > 1 and time.monotonic() < deadline_s:
        found = at(next_bytes)
        if found.feasible:
            works_bytes = next_bytes
        else:
            fails_bytes, exact = next_bytes, found.complete
        next_bytes = (works_bytes + fails_bytes) // 2
    return LeastMemory(memory_bytes=works_bytes, exact=exact and works_bytes - fails_bytes == 1)
