"""Plans that cannot contend for anything: one pass in plan order, without events."""

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from stepsim.plan import NONE
from stepsim.simulator.outcome import Outcome
from stepsim.simulator.problem import Problem, RowKind

KERNEL, RELEASE, HOST = int(RowKind.KERNEL), int(RowKind.RELEASE), int(RowKind.HOST)


def is_free_of_contention(problem: Problem) -> bool:
    """Whether every row is certain to run at full speed as soon as it is ready.

    So it is when no row meets another, no engine serves more streams than it has slots, no link carries the flows of
    two streams, and the largest shares of all streams of a device add up to no more than the device.
    """
    grouped = problem.group[problem.group != NONE]
    return (
        len(np.unique(grouped)) == len(grouped)
        and _engines_suffice(problem)
        and _devices_suffice(problem)
        and _links_are_apart(problem)
    )


def _distinct(place: NDArray[np.int32], stream: NDArray[np.int32]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The different pairs of a place and a stream; NONE is no place."""
    used = place != NONE
    size = int(stream.max(initial=0)) + 1
    return np.divmod(np.unique(place[used].astype(np.int64) * size + stream[used]), size)


def _engines_suffice(problem: Problem) -> bool:
    engines, _ = _distinct(problem.engine, problem.stream)
    return bool((np.bincount(engines, minlength=len(problem.engine_slots)) <= problem.engine_slots).all())


def _devices_suffice(problem: Problem) -> bool:
    rows = np.flatnonzero(problem.stream != NONE)
    for shares in (problem.prices.sm_share, problem.prices.bandwidth_share):
        largest = np.zeros(len(problem.plan.streams))
        np.maximum.at(largest, problem.stream[rows], shares[rows])
        if (np.bincount(problem.plan.streams.device, largest, minlength=1) > 1).any():
            return False
    return True


def _links_are_apart(problem: Problem) -> bool:
    paths, streams = _distinct(problem.path, problem.stream)
    first, links = problem.stages.first, problem.stages.links
    begins, ends = links.starts[first[paths]], links.starts[first[paths + 1]]
    crossed = [links.values[a:b] for a, b in zip(begins.tolist(), ends.tolist(), strict=True)]
    user = np.full(len(problem.link_bytes_per_s), NONE, np.int64)
    for numbers, stream in zip(crossed, streams.tolist(), strict=True):
        if (~np.isin(user[numbers], (NONE, stream))).any():
            return False
        user[numbers] = stream
    return True


def sweep(problem: Problem) -> Outcome:
    """The outcome of a plan that is free of contention: what the other engines would say, bit for bit."""
    prices, stages, size = problem.prices, problem.stages, len(problem.plan)
    ready_s, start_s, end_s = (np.empty(size) for _ in range(3))
    _sweep(
        problem.kind,
        problem.stream,
        problem.thread,
        problem.blocks,
        problem.path,
        prices.seconds,
        prices.launch_s,
        prices.latency_s,
        prices.size_bytes,
        prices.rate_cap_bytes_per_s,
        stages.first,
        stages.volume,
        stages.rate_bytes_per_s,
        problem.dependencies.starts,
        problem.dependencies.values,
        np.zeros(len(problem.plan.streams)),
        np.zeros(len(problem.plan.threads)),
        ready_s,
        start_s,
        end_s,
    )
    return Outcome(ready_s=ready_s, start_s=start_s, end_s=end_s, issued=np.ones(size, np.bool_))


@njit(cache=True, nogil=True)
def _sweep(
    kinds: Any,
    streams: Any,
    threads: Any,
    blocks: Any,
    paths: Any,
    seconds: Any,
    launch_s: Any,
    latency_s: Any,
    size_bytes: Any,
    cap: Any,
    first_stage: Any,
    volume: Any,
    rate: Any,
    starts: Any,
    values: Any,
    stream_free_s: Any,
    thread_free_s: Any,
    ready_s: Any,
    start_s: Any,
    end_s: Any,
) -> None:
    for row in range(len(kinds)):
        kind, stream, thread = kinds[row], streams[row], threads[row]
        issued_s = thread_free_s[thread]
        if kind != HOST:
            issued_s += launch_s[row]
        begin_s = issued_s
        for place in range(starts[row], starts[row + 1]):
            begin_s = max(begin_s, end_s[values[place]])
        if stream >= 0:
            begin_s = max(begin_s, stream_free_s[stream])
        done_s = begin_s
        if kind in (KERNEL, HOST):
            done_s += seconds[row]
        elif kind != RELEASE:
            done_s += latency_s[row]
            path = paths[row]
            if path >= 0:
                for stage in range(first_stage[path], first_stage[path + 1]):
                    left, speed = size_bytes[row] * volume[stage], min(cap[row], rate[stage])
                    if left > 0 and speed < np.inf:
                        done_s += left / speed
        ready_s[row] = start_s[row] = begin_s
        end_s[row] = done_s
        if stream >= 0:
            stream_free_s[stream] = done_s
        thread_free_s[thread] = done_s if blocks[row] else issued_s
