"""Moves: copies, messages and collectives. Latency, then bytes that flow, stage by stage."""

import numpy as np

from stepsim.simulator.compiled.events import set_event
from stepsim.simulator.compiled.kernels import dirty
from stepsim.simulator.compiled.records import (
    ENDS,
    ENGINES,
    FLOW_ENDS,
    JOINED,
    LATENCY_ENDS,
    LINKS,
    MOVED,
    NEXT_STAGE,
    NONE,
    State,
    inline,
)
from stepsim.simulator.compiled.rows import do


@inline
def call(s: State, engine: int) -> None:
    if not s.engines[engine].called:
        s.engines[engine].called = 1
        s.called_engines[s.count[ENGINES]] = engine
        s.count[ENGINES] += 1


@inline
def _take_shares(s: State, row: int) -> None:
    """A moving row takes its shares of its device, in plan order."""
    number = s.tasks[row].stream
    stream = s.streams[number]
    stream.row = row
    stream.sm = s.prices[row].sm
    stream.bandwidth = s.prices[row].bandwidth
    if stream.sm == 0 and stream.bandwidth == 0:
        return
    device = s.devices[stream.device]
    before, after = NONE, device.moving
    while after != NONE and s.streams[after].row < row:
        before, after = after, s.streams[after].next
    stream.next = after
    if before == NONE:
        device.moving = number
    else:
        s.streams[before].next = number
    dirty(s, stream.device)


@inline
def _return_shares(s: State, row: int) -> None:
    number = s.tasks[row].stream
    stream = s.streams[number]
    if stream.sm == 0 and stream.bandwidth == 0:
        return
    device = s.devices[stream.device]
    if device.moving == number:
        device.moving = stream.next
    else:
        before = device.moving
        while s.streams[before].next != number:
            before = s.streams[before].next
        s.streams[before].next = stream.next
    dirty(s, stream.device)


@inline
def start_move(s: State, row: int, now: float) -> None:
    """``row`` is a copy, or the first of its group."""
    group = s.tasks[row].group
    if group == NONE:
        s.start[row] = now
        _take_shares(s, row)
    else:
        for place in range(s.groups[group].first_member, s.groups[group + 1].first_member):
            s.start[s.members[place]] = now
            _take_shares(s, s.members[place])
    number = s.tasks[row].stream
    path = s.tasks[row].path
    s.streams[number].stage = NONE if path == NONE else s.paths[path] - 1
    latency_s = s.prices[row].seconds
    if latency_s > 0:
        s.streams[number].event = LATENCY_ENDS
        set_event(s.heap, s.places, s.count, number, now + latency_s)
    else:
        do(s, NEXT_STAGE, row)


@inline
def next_stage(s: State, row: int, now: float) -> None:
    """Let the bytes of the next stage that takes time flow; without one the move has ended."""
    number = s.tasks[row].stream
    stream = s.streams[number]
    price = s.prices[row]
    path = s.tasks[row].path
    while path != NONE and stream.stage + 1 < s.paths[path + 1]:
        stream.stage += 1
        stage = s.stages[stream.stage]
        left = price.size_bytes * stage.volume
        cap = min(price.cap, stage.rate)
        if left > 0 and cap < np.inf:
            stream.left = left
            stream.cap = cap
            stream.since = now
            stream.rate = 0.0
            stream.event = FLOW_ENDS
            _join(s, number)
            return
    do(s, MOVED, row)


@inline
def _join(s: State, number: int) -> None:
    """Put the flow into the lists of its links, which are in plan order."""
    stream = s.streams[number]
    first = s.stages[stream.stage].first_link
    stream.num_nodes = s.stages[stream.stage + 1].first_link - first
    for place in range(stream.num_nodes):
        here = stream.first_node + place
        node, crossing = s.nodes[here], s.crossings[first + place]
        node.stream, node.link, node.weight = number, crossing.link, crossing.weight
        before, after = NONE, s.links[node.link].flows
        while after != NONE and s.streams[s.nodes[after].stream].row < stream.row:
            before, after = after, s.nodes[after].next
        node.before, node.next = before, after
        if after != NONE:
            s.nodes[after].before = here
        if before == NONE:
            s.links[node.link].flows = here
        else:
            s.nodes[before].next = here
        _touch(s, node.link)
    s.joined[s.count[JOINED]] = number
    s.count[JOINED] += 1


@inline
def leave(s: State, number: int) -> None:
    stream = s.streams[number]
    for here in range(stream.first_node, stream.first_node + stream.num_nodes):
        node = s.nodes[here]
        if node.before == NONE:
            s.links[node.link].flows = node.next
        else:
            s.nodes[node.before].next = node.next
        if node.next != NONE:
            s.nodes[node.next].before = node.before
        _touch(s, node.link)


@inline
def _touch(s: State, link: int) -> None:
    if not s.links[link].touched:
        s.links[link].touched = 1
        s.touched_links[s.count[LINKS]] = link
        s.count[LINKS] += 1


@inline
def end_move(s: State, row: int) -> None:
    task = s.tasks[row]
    if task.group == NONE:
        _return_shares(s, row)
        if task.engine != NONE:
            s.engines[task.engine].free += 1
            call(s, task.engine)
        do(s, ENDS, row)
    else:
        for place in range(s.groups[task.group].first_member, s.groups[task.group + 1].first_member):
            _return_shares(s, s.members[place])
            do(s, ENDS, s.members[place])
