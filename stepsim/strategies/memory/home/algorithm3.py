"""The paper's Algorithm 3, compiled: one update of some particles. Loading this module loads numba."""

from stepsim.strategies.memory.home.algorithm2 import mark_up_to, split_of, take, trial
from stepsim.strategies.memory.home.work import UNUSABLE, Array, Work, compiled, inline

NO_ACTION = -1


@inline
def _best(
    w: Work, layer: int, now: int, start: int, fits: bool, one: int, two: int, three: int
) -> tuple[int, int, int]:
    """Of up to three actions the best, its ticks, and how many were tried; the policy has ``now`` and is as marked.

    Where the policy exceeds the limit before stage ``start``, no other action ``fits``.
    """
    old, num_trials = w.actions[layer], 0
    best, best_ticks = old, UNUSABLE
    # What is no better than the action that stays is worth no more than to know that.
    bound = min(UNUSABLE, now + 1) if two == old or three == old else UNUSABLE
    for attempt in range(3):
        action = one if attempt == 0 else two if attempt == 1 else three
        if action < 0 or (attempt > 0 and action == one) or (attempt > 1 and action == two):
            continue
        ticks = now
        if action != old:
            ticks = trial(w, layer, action, start, min(bound, best_ticks)) if fits else UNUSABLE
            num_trials += 1
        if ticks < best_ticks:
            best, best_ticks = action, ticks
    return best, best_ticks, num_trials


@compiled
def update(
    w: Work,
    particles: Array,
    ticks: Array,
    own: Array,
    own_ticks: Array,
    settled: Array,
    leader: Array,
    wild: Array,
    first: int,
    last: int,
) -> int:
    """Let particles ``first`` to ``last`` learn from ``leader`` and from the best of their ``own``; count the trials.

    Position by position, with the rest as it is by then: try the leader's action, the own best's, and where ``wild``
    has one, that; take the best, of equals the first. An unusable one is not taken. A particle that did not change is
    ``settled``: until its leader does, or a wild action comes, it will not.
    """
    num_trials = 0
    for particle in range(first, last):
        if settled[particle]:
            continue
        actions = particles[particle]
        for layer in range(len(actions)):
            take(w, layer, actions[layer])
        now, valid, split, changed = ticks[particle], 0, split_of(w), False
        for layer in range(len(actions)):
            old = actions[layer]
            one, two, three = leader[layer], own[particle, layer], wild[particle, layer]
            if (one == old or one < 0) and (two == old or two < 0) and (three == old or three < 0):
                continue
            start = min(w.first_effect[layer], split)
            # What is marked holds up to there, as a trial changes nothing before its start.
            reached = mark_up_to(w, min(valid, start), start)
            valid = min(reached, start)
            best, best_ticks, num = _best(w, layer, now, start, reached == start, one, two, three)
            num_trials += num
            if best != old:
                take(w, layer, best)
                actions[layer], now, changed = best, best_ticks, True
        ticks[particle] = now
        settled[particle] = not changed
        if now < own_ticks[particle]:
            own_ticks[particle] = now
            for layer in range(len(actions)):
                own[particle, layer] = actions[layer]
    return num_trials
