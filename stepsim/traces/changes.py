"""Changes of a recorded run, as a what-if: what would it have taken without its launches, its copies, its loader?

For the first three the direction is known. With recorded costs each row takes a fixed time, so that every start is the
latest of some ends (max-plus): less time or fewer dependencies make no row later, more of them make none earlier, and
rounding keeps order too. The one exception are copies of several streams that share a copy engine, since the engine
serves whoever is ready first: `provable` tells.
"""

from dataclasses import replace

import numpy as np

from stepsim.plan import NONE, TRANSFERS, StreamTable
from stepsim.traces.intervals import Times, covered_until, union
from stepsim.traces.replay import Rebuilt


def without_launch_costs(rebuilt: Rebuilt) -> Rebuilt:
    """Launches take no time, as in a captured graph. No row starts later."""
    return replace(rebuilt, launch_s=np.zeros_like(rebuilt.launch_s))


def without_copies(rebuilt: Rebuilt) -> Rebuilt:
    """Copies between host and device take no time, nor does their launch. No row starts later."""
    copies = np.isin(rebuilt.plan.tasks.kind, TRANSFERS)
    seconds = np.where(copies, 0.0, rebuilt.seconds)
    return replace(rebuilt, seconds=seconds, launch_s=np.where(copies, 0.0, rebuilt.launch_s))


def on_one_stream(rebuilt: Rebuilt) -> Rebuilt:
    """All that runs on a device runs on one stream of it, in the order of issue. No row starts earlier."""
    plan = rebuilt.plan
    _, first, merged = np.unique(plan.streams.device, return_index=True, return_inverse=True)
    streams = StreamTable(
        name=tuple(plan.streams.name[stream] for stream in first.tolist()),
        device=plan.streams.device[first],
        role=tuple(plan.streams.role[stream] for stream in first.tolist()),
        priority=np.zeros_like(plan.streams.priority[first]),
    )
    stream = np.where(plan.tasks.stream == NONE, NONE, merged[plan.tasks.stream]).astype(plan.tasks.stream.dtype)
    return replace(rebuilt, plan=replace(plan, streams=streams, tasks=replace(plan.tasks, stream=stream)))


def without_host_work(rebuilt: Rebuilt, start_s: Times, end_s: Times) -> Rebuilt:
    """What host threads did between two calls takes no time as far as it lies in one of these intervals."""
    covered = union(start_s, end_s)
    begin_s = rebuilt.start_s
    inside_s = covered_until(begin_s + rebuilt.seconds, *covered) - covered_until(begin_s, *covered)
    seconds = np.where(rebuilt.gaps, np.maximum(0.0, rebuilt.seconds - inside_s), rebuilt.seconds)
    return replace(rebuilt, seconds=seconds)


def provable(rebuilt: Rebuilt) -> bool:
    """Whether no two streams copy by one route, so through one engine: then the direction of a change is certain."""
    tasks = rebuilt.plan.tasks
    copies = np.isin(tasks.kind, TRANSFERS)
    used = np.unique(np.stack([tasks.route[copies], tasks.stream[copies]]), axis=1)
    return bool(len(np.unique(used[0])) == used.shape[1])
