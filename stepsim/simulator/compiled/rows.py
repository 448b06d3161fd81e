"""Rows: what they wait for, their issue, what happens when all is there, and their end."""

from stepsim.simulator.compiled.events import set_event
from stepsim.simulator.compiled.records import ENDED, HOST, ISSUES, NONE, PENDING, READY, TURN_COMES, State, inline


@inline
def do(s: State, what: int, number: int) -> None:
    entry = s.pending[s.count[PENDING]]
    entry.what, entry.number = what, number
    s.count[PENDING] += 1


@inline
def done_waiting(s: State, row: int) -> None:
    """One thing less to wait for."""
    s.waits[row] -= 1
    if s.waits[row] == 0:
        do(s, READY, row)


@inline
def issue(s: State, thread: int, now: float) -> None:
    """Issue rows from the one that the thread stands at, to the next that holds it."""
    issue_s = now
    row = s.threads[thread].row
    while row != NONE:
        task = s.tasks[row]
        if task.kind == HOST:
            s.threads[thread].row = row
            if issue_s > now:
                s.threads[thread].event = TURN_COMES
                set_event(s.heap, s.places, s.count, len(s.streams) + thread, issue_s)
            else:
                s.ready[row] = issue_s
                done_waiting(s, row)
            return
        issue_s += s.prices[row].launch_s
        s.ready[row] = issue_s
        done_waiting(s, row)
        row = task.next_in_thread
        if task.blocks:
            break
    s.threads[thread].row = row


@inline
def end(s: State, row: int, now: float) -> None:
    """Tell those that wait for the row."""
    s.end[row] = now
    s.count[ENDED] += 1
    task = s.tasks[row]
    for place in range(task.first_successor, s.tasks[row + 1].first_successor):
        done_waiting(s, s.successors[place])
    if task.next_in_stream != NONE:
        done_waiting(s, task.next_in_stream)
    if task.blocks:
        if task.kind == HOST:
            s.threads[task.thread].row = task.next_in_thread
        do(s, ISSUES, task.thread)
