"""The paper's Algorithm 2, compiled: the time of a policy, stage by stage. Loading this module loads numba.

Before the backward pass nothing comes back, so little happens and little is to be remembered: a *mark* before a stage
is the clock there. A policy that differs in one layer is taken up at the mark before that layer's first effect, and
given up as soon as it cannot be better than what it is held against; what it takes is to the tick what the whole
evaluation says.
"""

from stepsim.strategies.memory.home.moves import fetch, leave, make_room, wait
from stepsim.strategies.memory.home.problem import KEEP, RECOMPUTE, SWAP
from stepsim.strategies.memory.home.work import (
    AGAIN,
    AHEAD,
    ALL_AGAIN,
    EXCESS,
    HEAD,
    MARK,
    NOT_LESS,
    NOW,
    OVER,
    TAIL,
    UNUSABLE,
    USED,
    Array,
    Work,
    compiled,
    inline,
)


@inline
def _advance(w: Work, stage: int, readers: Array) -> None:
    """Run a stage for which there is room. ``readers`` are the recomputations that still read a map."""
    w.clock[NOW] += w.stage_ticks[stage]
    w.ended[stage] = w.clock[NOW]
    w.clock[USED] += w.allocates[stage] - w.frees[stage]
    for position in range(w.dies_from[stage], w.dies_from[stage + 1]):
        x = w.dies[position]
        if readers[x] == 0:
            w.clock[USED] -= w.size_bytes[x]
    for position in range(w.leaves_from[stage], w.leaves_from[stage + 1]):
        leave(w, w.leaves[position])


@inline
def _mark(w: Work, stage: int) -> None:
    for number in range(MARK):
        w.marks[stage, number] = w.clock[number]


@inline
def _return_to(w: Work, stage: int) -> None:
    """Before ``stage``, as it was marked."""
    for number in range(MARK):
        w.clock[number] = w.marks[stage, number]
    for place in range(w.clock[HEAD], w.clock[TAIL]):
        w.gone[w.queue[place]] = False


@inline
def _forward(w: Work, first: int, last: int, marking: bool) -> int:
    """Run stages ``first`` to ``last``, before anything comes back; gives the stage for which there is no room."""
    for stage in range(first, last):
        if marking:
            _mark(w, stage)
        if not make_room(w, w.allocates[stage]):
            return stage
        _advance(w, stage, w.recomputed_readers)
    if marking:
        _mark(w, last)
    return last


@inline
def split_of(w: Work) -> int:
    """The first stage at which a map may come back."""
    split: int = max(0, len(w.marks) - 1 - w.settings[AHEAD])
    return split


@inline
def _least(w: Work, stage: int) -> int:
    """The policy takes no less than this, after ``stage``."""
    c = w.clock
    ticks: int = OVER + c[EXCESS] if c[EXCESS] > 0 else c[NOW] + w.later_ticks[stage] + c[AGAIN]
    return ticks


@inline
def _backward(w: Work, bound: int) -> int:
    """Run all stages from the split on; gives the ticks of the policy if they are less than ``bound``."""
    split, num_stages = split_of(w), len(w.stage_ticks)
    w.clock[AGAIN] = w.clock[ALL_AGAIN]
    if split > 0 and _least(w, split - 1) >= bound:
        return NOT_LESS
    for x in range(len(w.present)):
        w.present[x] = w.actions[w.layer[x]] == KEEP or w.leaves_at[x] >= split
        w.unread[x] = w.recomputed_readers[x]
        w.in_end[x] = 0
    for stage in range(split, num_stages):
        soon = min(stage + 1 + w.settings[AHEAD], num_stages)
        for position in range(w.reads_from[stage], w.reads_from[soon]):
            x = w.reads[position]
            wanted = position < w.reads_from[stage + 1] or w.actions[w.layer[x]] == SWAP
            if wanted and not w.present[x] and not fetch(w, x, stage):
                return UNUSABLE
        if not make_room(w, w.allocates[stage]):
            return UNUSABLE
        for position in range(w.reads_from[stage], w.reads_from[stage + 1]):
            x = w.reads[position]
            wait(w, w.in_end[x], w.layer[x])
        _advance(w, stage, w.unread)
        if _least(w, stage) >= bound:
            return NOT_LESS
    return _least(w, num_stages - 1)


@inline
def take(w: Work, layer: int, action: int) -> None:
    """Let ``layer`` take ``action``, and keep count of the recomputations."""
    change = (action == RECOMPUTE) - (w.actions[layer] == RECOMPUTE)
    w.actions[layer] = action
    w.clock[ALL_AGAIN] += change * w.again_ticks[layer]
    for position in range(w.needs_from[layer], w.needs_from[layer + 1]):
        w.recomputed_readers[w.needs[position]] += change


@inline
def mark_up_to(w: Work, valid: int, stage: int) -> int:
    """Mark the policy from stage ``valid``, before which it is marked, to ``stage``; gives how far there is room."""
    _return_to(w, valid)
    return _forward(w, valid, stage, True)


@inline
def trial(w: Work, layer: int, action: int, first: int, bound: int) -> int:
    """Ticks of the policy with another action of ``layer``, `UNUSABLE` or `NOT_LESS`; marked before stage ``first``."""
    before = w.actions[layer]
    take(w, layer, action)
    ticks, split = NOT_LESS, split_of(w)
    if w.stage_ticks[0] + w.later_ticks[0] + w.clock[ALL_AGAIN] < bound:
        _return_to(w, first)
        ticks = _backward(w, bound) if _forward(w, first, split, False) == split else UNUSABLE
    take(w, layer, before)
    return ticks


@compiled
def evaluate(w: Work, policies: Array, ticks: Array) -> None:
    """Ticks of each row of actions, or `UNUSABLE`; ``w.overhead`` is what each layer adds in the last."""
    split = split_of(w)
    for policy in range(len(policies)):
        for layer in range(len(w.first_effect)):
            take(w, layer, policies[policy, layer])
        w.overhead[:] = 0
        _return_to(w, 0)
        fits = _forward(w, 0, split, False) == split
        ticks[policy] = _backward(w, NOT_LESS) if fits else UNUSABLE
