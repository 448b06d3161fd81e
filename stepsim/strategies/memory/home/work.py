"""A problem and the room that evaluating it takes, as arrays, and how functions on them are compiled. Loads numba."""

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, cast, get_args

import numpy as np
from numba import njit

from stepsim.strategies.memory.home.options import Queues, Rules, Start
from stepsim.strategies.memory.home.problem import HomeProblem

NOW, USED, OUT, IN, HEAD, TAIL, EXCESS = range(MARK := 7)
"""Of a clock, and of a mark: ticks now, bytes in use, when the ways out and in are free, where in the queue those begin
and end that still hold their room, and the bytes over the limit so far, summed over what
there was no room for."""

AGAIN, ALL_AGAIN = range(MARK, CLOCK := 9)
"""Of a clock: ticks of the recomputations to come, and of all."""

LIMIT, AHEAD, EARLY, QUEUES, HELD, PENALTY = range(6)
"""Of the settings: the limit in bytes, and what `Rules` says."""

UNQUEUED, ONE_QUEUE, TWO_QUEUES = range(len(get_args(Queues)))

OVER = 2**61
"""A policy that exceeds the limit, with a penalty, takes so many ticks and one for each byte."""

UNUSABLE = 2**62
"""Ticks of a policy that exceeds the limit; without a bound, what any trial is held against."""

NOT_LESS = 2**62 + 1
"""The result of a trial that was given up: it takes no less than its bound."""

Array = Any


class Work(NamedTuple):
    """A problem and the room that evaluating it takes; one thread's own."""

    stage_ticks: Array
    later_ticks: Array
    allocates: Array
    frees: Array
    reads_from: Array
    reads: Array
    leaves_from: Array
    leaves: Array
    dies_from: Array
    dies: Array
    size_bytes: Array
    out_ticks: Array
    in_ticks: Array
    layer: Array
    made_at: Array
    leaves_at: Array
    dies_at: Array
    again_ticks: Array
    makes_bytes: Array
    first_effect: Array
    members_from: Array
    members: Array
    needs_from: Array
    needs: Array
    settings: Array
    clock: Array
    marks: Array  # the clock before each stage up to the turn, of the policy that is walked
    ended: Array  # when each stage did
    queue: Array  # maps that went out, in order
    actions: Array  # of each layer, and KEEP for what belongs to none
    recomputed_readers: Array  # of each map: layers to be recomputed that read it
    unread: Array  # the same, still to run
    present: Array
    gone: Array  # whether its room was given back after it went out
    out_end: Array
    in_end: Array
    stack: Array
    overhead: Array  # ticks that each layer adds


F = TypeVar("F", bound=Callable[..., Any])

OPTIONS: dict[str, Any] = {"_nrt": False}
"""Nothing makes an array while it runs, so there is nothing to count."""


def inline(function: F) -> F:
    """Made part of its caller: a call would copy the headers of all arrays."""
    return cast("F", njit(forceinline=True, **OPTIONS)(function))


def compiled(function: F) -> F:
    """Kept from process to process, and runs without the lock of the interpreter.

    numba's cache looks only at the file of the function that is called; its name tells of the files beside it.
    """
    sources = sorted(Path(__file__).parent.glob("*.py"))
    stamp = hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()[:8]
    function.__qualname__ += f"_{stamp}"
    return cast("F", njit(nogil=True, cache=True, **OPTIONS)(function))


def settings_of(memory_bytes: int, rules: Rules) -> Array:
    early, queues = get_args(Start).index(rules.out_after), get_args(Queues).index(rules.queues)
    return np.array([memory_bytes, rules.prefetch_stages, early, queues, rules.held, rules.penalty], np.int64)


def work_on(problem: HomeProblem, settings: Array) -> Work:
    """Room to evaluate policies of ``problem`` one after the other."""
    num_maps, num_layers = len(problem.tensor), problem.num_layers
    longest = len(problem.needs.values) + num_maps + 1
    marks = np.zeros((problem.turn + 1, MARK), np.int64)
    marks[0, USED] = problem.base_bytes
    return Work(
        problem.stage_ticks,
        problem.later_ticks,
        problem.allocates,
        problem.frees,
        problem.reads.starts,
        problem.reads.values,
        problem.leaves.starts,
        problem.leaves.values,
        problem.dies.starts,
        problem.dies.values,
        problem.size_bytes,
        problem.out_ticks,
        problem.in_ticks,
        problem.layer,
        problem.made_at,
        problem.leaves_at,
        problem.dies_at,
        problem.again_ticks,
        problem.makes_bytes,
        problem.first_effect,
        problem.members.starts,
        problem.members.values,
        problem.needs.starts,
        problem.needs.values,
        settings=settings,
        clock=np.zeros(CLOCK, np.int64),
        marks=marks,
        ended=np.zeros(len(problem.stage_ticks), np.int64),
        queue=np.zeros(num_maps, np.int64),
        actions=np.zeros(num_layers + 1, np.int8),
        recomputed_readers=np.zeros(num_maps, np.int64),
        unread=np.zeros(num_maps, np.int64),
        present=np.zeros(num_maps, np.bool_),
        gone=np.zeros(num_maps, np.bool_),
        out_end=np.zeros(num_maps, np.int64),
        in_end=np.zeros(num_maps, np.int64),
        stack=np.zeros(longest, np.int64),
        overhead=np.zeros(num_layers + 1, np.int64),
    )
