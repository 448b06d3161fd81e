"""The loop over instants: ends, starts, rates."""

import hashlib
from pathlib import Path

from stepsim.simulator.compiled.events import drop_event, set_event
from stepsim.simulator.compiled.flows import share_links
from stepsim.simulator.compiled.kernels import end_kernel, share_device, start_kernel
from stepsim.simulator.compiled.moves import call, end_move, leave, next_stage, start_move
from stepsim.simulator.compiled.records import (
    COPY,
    DEVICES,
    ENDS,
    ENGINES,
    FLOW_ENDS,
    HEAP,
    HOST_ENDS,
    ISSUED,
    ISSUES,
    JOINED,
    KERNEL,
    KERNEL_ENDS,
    LINKS,
    MEMBER,
    MOVED,
    MOVES,
    NEXT_STAGE,
    NONE,
    PENDING,
    READY,
    RELEASE,
    RESUMES,
    TURN_COMES,
    F,
    State,
    cached,
    inline,
)
from stepsim.simulator.compiled.rows import do, done_waiting, end, issue


@inline
def _begin(s: State, row: int, now: float) -> None:
    """All that the row waited for is there."""
    task = s.tasks[row]
    s.ready[row] = now
    if task.kind == MEMBER:
        group = s.groups[task.group]
        group.missing -= 1
        if group.missing == 0:
            do(s, MOVES, s.members[group.first_member])
    elif task.kind == COPY:
        if task.engine == NONE:
            do(s, MOVES, row)
        else:
            _wait_for_engine(s, row, now)
    else:
        s.start[row] = now
        if task.kind == RELEASE or s.prices[row].seconds == 0:
            do(s, ENDS, row)
        elif task.kind == KERNEL:
            start_kernel(s, row, now)
        else:
            s.threads[task.thread].event = HOST_ENDS
            set_event(s.heap, s.places, s.count, len(s.streams) + task.thread, now + s.prices[row].seconds)


@inline
def _wait_for_engine(s: State, row: int, now: float) -> None:
    """Stand in line by (ready time, row)."""
    task = s.tasks[row]
    s.streams[task.stream].row = row
    before, after = NONE, s.engines[task.engine].waiting
    while after != NONE:
        other = s.streams[after].row
        if s.ready[other] == now and other > row:
            break
        before, after = after, s.streams[after].next_waiting
    s.streams[task.stream].next_waiting = after
    if before == NONE:
        s.engines[task.engine].waiting = task.stream
    else:
        s.streams[before].next_waiting = task.stream
    call(s, task.engine)


@inline
def _happen(s: State, id: int, now: float) -> None:
    """The event of a stream or thread."""
    if id >= len(s.streams):
        thread = id - len(s.streams)
        event, row = s.threads[thread].event, s.threads[thread].row
        if event == RESUMES:
            do(s, ISSUES, thread)
        elif event == TURN_COMES:
            s.ready[row] = now
            done_waiting(s, row)
        else:
            do(s, ENDS, row)
        return
    event, row = s.streams[id].event, s.streams[id].row
    if event == KERNEL_ENDS:
        end_kernel(s, id)
    elif event == ISSUED:
        do(s, READY, row)
    else:
        if event == FLOW_ENDS:
            leave(s, id)
        do(s, NEXT_STAGE, row)


@inline
def _work_off(s: State, now: float) -> None:
    """Do what is to be done, until there is no more. The order is of no account: effects of one instant commute."""
    while s.count[PENDING] > 0:
        s.count[PENDING] -= 1
        what, number = s.pending[s.count[PENDING]].what, s.pending[s.count[PENDING]].number
        if what == ENDS:
            end(s, number, now)
        elif what == READY:
            if s.ready[number] > now:  # when it will have been issued
                stream = s.tasks[number].stream
                s.streams[stream].row = number
                s.streams[stream].event = ISSUED
                set_event(s.heap, s.places, s.count, stream, s.ready[number])
            else:
                _begin(s, number, now)
        elif what == NEXT_STAGE:
            next_stage(s, number, now)
        elif what == MOVES:
            start_move(s, number, now)
        elif what == MOVED:
            end_move(s, number)
        else:
            issue(s, number, now)


@inline
def _start_copies(s: State, now: float) -> bool:
    """Serve each engine that has a new slot or a new copy. Whether any copy started."""
    num, started = s.count[ENGINES], False
    s.count[ENGINES] = 0
    for place in range(num):
        engine = s.engines[s.called_engines[place]]
        engine.called = 0
        while engine.free > 0 and engine.waiting != NONE:
            engine.free -= 1
            stream = s.streams[engine.waiting]
            engine.waiting = stream.next_waiting
            do(s, MOVES, stream.row)
            started = True
    return started


def _stamped(function: F) -> F:
    """numba's cache looks only at the file of the function that is called; its name tells of the files beside it."""
    sources = sorted(Path(__file__).parent.glob("*.py"))
    stamp = hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()[:8]
    function.__qualname__ += f"_{stamp}"
    return function


@cached
@_stamped
def advance(s: State, fair: bool, num_instants: int) -> bool:
    """Run on for at most ``num_instants`` instants. Whether there is more to come."""
    for _ in range(num_instants):
        if s.count[HEAP] == 0:
            return False
        now = s.heap[0].time_s
        while True:
            _work_off(s, now)
            if s.count[HEAP] > 0 and s.heap[0].time_s == now:
                id = s.heap[0].id
                drop_event(s.heap, s.places, s.count, id)
                _happen(s, id, now)
            elif not _start_copies(s, now):
                break
        for place in range(s.count[DEVICES]):
            share_device(s, s.dirty_devices[place], fair, now)
        s.count[DEVICES] = 0
        if s.count[LINKS] > 0 or s.count[JOINED] > 0:
            share_links(s, now)
    return True
