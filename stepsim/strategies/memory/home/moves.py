"""What happens to maps while a step runs: they leave, room is made, they come back or are made again. Loads numba."""

from stepsim.strategies.memory.home.problem import KEEP, RECOMPUTE, SWAP
from stepsim.strategies.memory.home.work import (
    AGAIN,
    EARLY,
    EXCESS,
    HEAD,
    HELD,
    IN,
    LIMIT,
    NOW,
    ONE_QUEUE,
    OUT,
    PENALTY,
    QUEUES,
    TAIL,
    UNQUEUED,
    USED,
    Work,
    inline,
)


@inline
def wait(w: Work, until: int, layer: int) -> None:
    late = until - w.clock[NOW]
    if late > 0:
        w.clock[NOW] = until
        w.overhead[layer] += late


@inline
def _give_back(w: Work, x: int) -> None:
    """The room of a map that went out, when it is out."""
    wait(w, w.out_end[x], w.layer[x])
    w.clock[USED] -= w.size_bytes[x]
    w.gone[x] = True


@inline
def make_room(w: Work, need_bytes: int) -> bool:
    """Wait for what went out, first out first, until there is room. Whether there is."""
    c = w.clock
    over = c[USED] + need_bytes - w.settings[LIMIT]
    while over > 0:
        if c[HEAD] == c[TAIL]:
            c[EXCESS] += over
            return bool(w.settings[PENALTY] != 0)
        x = w.queue[c[HEAD]]
        c[HEAD] += 1
        if not w.gone[x]:
            _give_back(w, x)
            over -= w.size_bytes[x]
    return True


@inline
def leave(w: Work, x: int) -> None:
    """The forward pass is done with it."""
    c = w.clock
    action = w.actions[w.layer[x]]
    w.present[x] = action == KEEP
    if action == RECOMPUTE:
        c[USED] -= w.size_bytes[x]
    elif action == SWAP:
        start = w.ended[w.made_at[x]] if w.settings[EARLY] else c[NOW]
        if w.settings[QUEUES] != UNQUEUED:
            start = max(start, c[OUT])
        w.out_end[x] = start + w.out_ticks[x]
        c[OUT] = w.out_end[x]
        if w.settings[QUEUES] == ONE_QUEUE:
            c[IN] = c[OUT]
        w.gone[x] = w.settings[HELD] == 0
        if w.settings[HELD] == 0:
            c[USED] -= w.size_bytes[x]
        else:
            w.queue[c[TAIL]] = x
            c[TAIL] += 1


@inline
def swap_in(w: Work, x: int) -> bool:
    """Ask for it now; whoever reads it waits for `in_end`."""
    c = w.clock
    if not w.gone[x]:
        _give_back(w, x)
    if not make_room(w, w.size_bytes[x]):
        return False
    c[USED] += w.size_bytes[x]
    start = max(c[NOW], w.out_end[x])
    if w.settings[QUEUES] != UNQUEUED:
        start = max(start, c[IN])
    w.in_end[x] = start + w.in_ticks[x]
    c[IN] = w.in_end[x]
    if w.settings[QUEUES] == ONE_QUEUE:
        c[OUT] = c[IN]
    w.present[x] = True
    return True


@inline
def _run_again(w: Work, layer: int, stage: int) -> bool:
    """Recompute a layer, all of whose needs are present. Its maps stay for their later readers."""
    c = w.clock
    if not make_room(w, w.makes_bytes[layer]):
        return False
    for position in range(w.needs_from[layer], w.needs_from[layer + 1]):
        x = w.needs[position]
        wait(w, w.in_end[x], w.layer[x])
    c[NOW] += w.again_ticks[layer]
    c[AGAIN] -= w.again_ticks[layer]
    w.overhead[layer] += w.again_ticks[layer]
    for position in range(w.members_from[layer], w.members_from[layer + 1]):
        x = w.members[position]
        if not w.present[x]:
            w.present[x] = True
            c[USED] += w.size_bytes[x]
    for position in range(w.needs_from[layer], w.needs_from[layer + 1]):
        x = w.needs[position]
        w.unread[x] -= 1
        if w.unread[x] == 0 and w.dies_at[x] < stage:
            c[USED] -= w.size_bytes[x]
    return True


@inline
def fetch(w: Work, wanted: int, stage: int) -> bool:
    """Make a map present: swap it in, or recompute its layer, and before that what the layer needs."""
    height = 1
    w.stack[0] = wanted
    while height > 0:
        x = w.stack[height - 1]
        if w.present[x]:
            height -= 1
        elif w.actions[w.layer[x]] == SWAP:
            if not swap_in(w, x):
                return False
            height -= 1
        else:
            layer, missing = w.layer[x], 0
            for position in range(w.needs_from[layer], w.needs_from[layer + 1]):
                if not w.present[w.needs[position]]:
                    w.stack[height] = w.needs[position]
                    height += 1
                    missing += 1
            if missing == 0 and not _run_again(w, layer, stage):
                return False
    return True
