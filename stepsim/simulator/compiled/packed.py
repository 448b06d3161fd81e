"""From a problem to the arrays of the compiled engine, made once for any number of runs."""

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from stepsim.plan import NONE
from stepsim.simulator.compiled import records
from stepsim.simulator.problem import Prices, Problem, RowKind

Arrays = Any
"""A numpy record array: their fields are declared in `stepsim.simulator.compiled.records`."""


def packed(problem: Problem) -> records.State:
    """The state before the first instant, which `fresh` copies for each run."""
    num_tasks, num_streams, num_threads = len(problem.plan), len(problem.plan.streams), len(problem.plan.threads)
    num_engines, num_links = len(problem.engine_slots), len(problem.link_bytes_per_s)
    tasks, waits, successors, first_of_thread = _wired(problem)
    groups, members = _groups(problem)
    stages, crossings = _stages(problem)
    streams, num_nodes = _streams(problem)
    return records.State(
        tasks=tasks,
        prices=packed_prices(problem.prices, problem.kind),
        successors=successors,
        waits=waits,
        ready=np.full(num_tasks, np.nan),
        start=np.full(num_tasks, np.nan),
        end=np.full(num_tasks, np.nan),
        streams=streams,
        threads=_records(records.THREAD, num_threads, row=first_of_thread, event=records.RESUMES),
        devices=_records(records.DEVICE, len(problem.plan.devices), kernels=NONE, moving=NONE),
        engines=_records(records.ENGINE, num_engines, free=problem.engine_slots, waiting=NONE),
        links=_records(records.LINK, num_links, capacity=problem.link_bytes_per_s, flows=NONE),
        groups=groups,
        members=members,
        paths=problem.stages.first,
        stages=stages,
        crossings=crossings,
        nodes=np.zeros(num_nodes, records.NODE),
        heap=_records(records.EVENT, num_streams + num_threads, id=_threads_first(num_streams, num_threads)),
        places=np.concatenate([np.full(num_streams, NONE, np.int32), np.arange(num_threads, dtype=np.int32)]),
        pending=np.zeros(2 * (num_streams + num_threads) + 1, records.PENDING_ENTRY),
        dirty_devices=np.zeros(len(problem.plan.devices), np.int32),
        touched_links=np.zeros(num_links, np.int32),
        called_engines=np.zeros(num_engines, np.int32),
        joined=np.zeros(num_streams, np.int32),
        flows=np.zeros(num_streams, np.int32),
        binding=np.zeros(num_links, np.int32),
        count=_counts(num_threads),
    )


UNCHANGED = {"tasks", "prices", "successors", "members", "paths", "stages", "crossings"}
"""What a run only reads."""


def fresh(state: records.State, prices: Arrays) -> records.State:
    """A copy of ``state`` to run on, with ``prices``."""
    changing = {name: array.copy() for name, array in state._asdict().items() if name not in UNCHANGED}
    return state._replace(prices=prices, **changing)


def packed_prices(prices: Prices, kind: NDArray[np.int8]) -> Arrays:
    moves = (kind == RowKind.COPY) | (kind == RowKind.MEMBER)
    return _records(
        records.PRICE,
        len(kind),
        seconds=np.where(moves, prices.latency_s, prices.seconds),
        launch_s=prices.launch_s,
        size_bytes=prices.size_bytes,
        cap=prices.rate_cap_bytes_per_s,
        sm=prices.sm_share,
        bandwidth=prices.bandwidth_share,
    )


def _records(kind: np.dtype[Any], size: int, **columns: object) -> Arrays:
    made = np.zeros(size, kind)
    for name, column in columns.items():
        made[name] = column
    return made


def _threads_first(num_streams: int, num_threads: int) -> NDArray[np.int32]:
    """The heap at time 0: every thread resumes."""
    return np.roll(np.arange(num_streams + num_threads, dtype=np.int32), num_threads)


def _counts(num_threads: int) -> NDArray[np.int64]:
    count = np.zeros(records.BINDING + 1, np.int64)
    count[records.HEAP] = num_threads
    return count


def _wired(problem: Problem) -> tuple[Arrays, NDArray[np.int32], NDArray[np.int32], NDArray[np.int32]]:
    """Tasks, how much each waits for, who waits for each, and the first task of each thread."""
    num_tasks, waiting = len(problem.plan), problem.dependencies
    if max(num_tasks, len(waiting.values)) > np.iinfo(np.int32).max:
        raise OverflowError(f"the compiled engine counts to 2**31: {num_tasks} tasks, {len(waiting.values)} edges")
    columns = ("kind", "blocks", "stream", "thread", "engine", "group", "path")
    tasks = _records(records.TASK, num_tasks + 1, next_in_stream=NONE, next_in_thread=NONE)
    for name in columns:
        tasks[name][:num_tasks] = getattr(problem, name)
    waits = np.ones(num_tasks, np.int32)
    successors = np.zeros(len(waiting.values), np.int32)
    last_of_stream = np.full(len(problem.plan.streams), NONE, np.int32)
    first_of_thread, last_of_thread = (np.full(len(problem.plan.threads), NONE, np.int32) for _ in range(2))
    _wire(tasks, waits, successors, waiting.starts, waiting.values, last_of_stream, first_of_thread, last_of_thread)
    return tasks, waits, successors, first_of_thread


@njit(cache=True, nogil=True)
def _wire(
    tasks: Arrays,
    waits: Arrays,
    successors: Arrays,
    starts: Arrays,
    values: Arrays,
    last_of_stream: Arrays,
    first_of_thread: Arrays,
    last_of_thread: Arrays,
) -> None:
    """Successors by counting: first how many, then where they end, then from the back each in its place."""
    for value in values:
        tasks[value + 1].first_successor += 1
    for row in range(len(waits)):
        tasks[row + 1].first_successor += tasks[row].first_successor
        waits[row] += starts[row + 1] - starts[row]
        stream, thread = tasks[row].stream, tasks[row].thread
        if stream >= 0:
            if last_of_stream[stream] >= 0:
                tasks[last_of_stream[stream]].next_in_stream = row
                waits[row] += 1
            last_of_stream[stream] = row
        if last_of_thread[thread] >= 0:
            tasks[last_of_thread[thread]].next_in_thread = row
        else:
            first_of_thread[thread] = row
        last_of_thread[thread] = row
    filled = np.zeros(len(waits), np.int32)
    for row in range(len(waits)):
        for place in range(starts[row], starts[row + 1]):
            value = values[place]
            successors[tasks[value].first_successor + filled[value]] = row
            filled[value] += 1


def _groups(problem: Problem) -> tuple[Arrays, NDArray[np.int32]]:
    """Members in plan order."""
    rows = np.flatnonzero(problem.group != NONE)
    number = problem.group[rows]
    sizes = np.bincount(number, minlength=1)
    groups = _records(records.GROUP, len(sizes) + 1)
    groups["first_member"] = np.concatenate([[0], np.cumsum(sizes)])
    groups["missing"][:-1] = sizes
    return groups, rows[np.argsort(number, kind="stable")].astype(np.int32)


def _stages(problem: Problem) -> tuple[Arrays, Arrays]:
    given = problem.stages
    stages = _records(records.STAGE, len(given.volume) + 1, first_link=given.links.starts)
    stages["volume"][:-1], stages["rate"][:-1] = given.volume, given.rate_bytes_per_s
    return stages, _records(records.CROSSING, len(given.weights), link=given.links.values, weight=given.weights)


def _streams(problem: Problem) -> tuple[Arrays, int]:
    """Streams, with room for the links of the longest path that each may cross; and all that room together."""
    table = problem.plan.streams
    crossed = np.diff(problem.stages.links.starts)
    longest = np.zeros(len(problem.stages.first) - 1, np.int64)
    path_of_stage = np.repeat(np.arange(len(longest)), np.diff(problem.stages.first))
    np.maximum.at(longest, path_of_stage, crossed)
    rows = np.flatnonzero(problem.path != NONE)
    room = np.zeros(len(table), np.int64)
    np.maximum.at(room, problem.stream[rows], longest[problem.path[rows]])
    first_node = np.concatenate([[0], np.cumsum(room)])
    streams = _records(
        records.STREAM,
        len(table),
        device=table.device,
        priority=table.priority,
        row=NONE,
        next=NONE,
        next_waiting=NONE,
        first_node=first_node[:-1],
    )
    return streams, int(first_node[-1])
