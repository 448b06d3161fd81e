"""Kernels of one device share it, `leftover` or `fair`."""

import numpy as np

from stepsim.simulator.compiled.events import drop_event, set_event
from stepsim.simulator.compiled.records import DEVICES, ENDS, FULL, KERNEL_ENDS, NONE, State, inline
from stepsim.simulator.compiled.rows import do


@inline
def dirty(s: State, device: int) -> None:
    if not s.devices[device].dirty:
        s.devices[device].dirty = 1
        s.dirty_devices[s.count[DEVICES]] = device
        s.count[DEVICES] += 1


@inline
def start_kernel(s: State, row: int, now: float) -> None:
    """Alone on its device it runs at rate 1 at once, unless it would end in this instant: ends come after rates."""
    number = s.tasks[row].stream
    stream = s.streams[number]
    stream.row = row
    stream.left = s.prices[row].seconds
    stream.since = now
    stream.rate = 0.0
    stream.sm = s.prices[row].sm
    stream.bandwidth = s.prices[row].bandwidth
    stream.event = KERNEL_ENDS
    device = s.devices[stream.device]
    if device.kernels == NONE and device.moving == NONE and not device.dirty and now + stream.left > now:
        stream.rate = 1.0
        stream.next = NONE
        device.kernels = number
        set_event(s.heap, s.places, s.count, number, now + stream.left)
        return
    before, after = NONE, device.kernels
    while after != NONE:
        other = s.streams[after]
        if other.priority < stream.priority or (other.priority == stream.priority and other.row > row):
            break
        before, after = after, other.next
    stream.next = after
    if before == NONE:
        device.kernels = number
    else:
        s.streams[before].next = number
    dirty(s, stream.device)


@inline
def end_kernel(s: State, number: int) -> None:
    stream = s.streams[number]
    device = s.devices[stream.device]
    if device.kernels == number:
        device.kernels = stream.next
    else:
        before = device.kernels
        while s.streams[before].next != number:
            before = s.streams[before].next
        s.streams[before].next = stream.next
    if device.kernels != NONE:
        dirty(s, stream.device)
    do(s, ENDS, stream.row)


@inline
def set_rate(s: State, number: int, new: float, now: float) -> None:
    stream = s.streams[number]
    if new == stream.rate:
        return
    stream.left = max(0.0, stream.left - stream.rate * (now - stream.since))
    stream.since = now
    stream.rate = new
    if new > 0:
        set_event(s.heap, s.places, s.count, number, now + stream.left / new)
    else:
        drop_event(s.heap, s.places, s.count, number)


@inline
def share_device(s: State, number: int, fair: bool, now: float) -> None:
    """Give each kernel of the device its rate."""
    device = s.devices[number]
    device.dirty = 0
    used_sm = used_bandwidth = 0.0
    one = device.moving
    while one != NONE:
        used_sm += s.streams[one].sm
        used_bandwidth += s.streams[one].bandwidth
        one = s.streams[one].next
    one = device.kernels
    if not fair:
        while one != NONE:
            stream = s.streams[one]
            rate = 1.0
            if stream.sm > 0 and used_sm + stream.sm > FULL:
                rate = min(rate, max(0.0, 1 - used_sm) / stream.sm)
            if stream.bandwidth > 0 and used_bandwidth + stream.bandwidth > FULL:
                rate = min(rate, max(0.0, 1 - used_bandwidth) / stream.bandwidth)
            used_sm += stream.sm * rate
            used_bandwidth += stream.bandwidth * rate
            set_rate(s, one, rate, now)
            one = stream.next
        return
    while one != NONE:
        end = one
        while end != NONE and s.streams[end].priority == s.streams[one].priority:
            s.streams[end].new = -1.0
            end = s.streams[end].next
        _share_alike(s, one, end, used_sm, used_bandwidth)
        while one != end:
            stream = s.streams[one]
            used_sm += stream.sm * stream.new
            used_bandwidth += stream.bandwidth * stream.new
            set_rate(s, one, stream.new, now)
            one = stream.next


@inline
def _share_alike(s: State, first: int, end: int, used_sm: float, used_bandwidth: float) -> None:
    """Max-min over the rates of the kernels from ``first`` to before ``end``, of one priority."""
    while True:
        held_sm, held_bandwidth = used_sm, used_bandwidth
        rest_sm = rest_bandwidth = 0.0
        open_ = 0
        one = first
        while one != end:
            stream = s.streams[one]
            if stream.new < 0:
                open_ += 1
                rest_sm += stream.sm
                rest_bandwidth += stream.bandwidth
            else:
                held_sm += stream.sm * stream.new
                held_bandwidth += stream.bandwidth * stream.new
            one = stream.next
        if open_ == 0:
            return
        level_sm = level_bandwidth = np.inf
        if rest_sm > 0 and held_sm + rest_sm > FULL:
            level_sm = max(0.0, 1 - held_sm) / rest_sm
        if rest_bandwidth > 0 and held_bandwidth + rest_bandwidth > FULL:
            level_bandwidth = max(0.0, 1 - held_bandwidth) / rest_bandwidth
        one = first
        while one != end:
            stream = s.streams[one]
            if stream.new < 0:
                if level_sm == np.inf and level_bandwidth == np.inf:
                    stream.new = 1.0
                elif level_sm <= level_bandwidth:
                    if stream.sm > 0:
                        stream.new = level_sm
                elif stream.bandwidth > 0:
                    stream.new = level_bandwidth
            one = stream.next
