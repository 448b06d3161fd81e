"""Moves: copies, and rows that meet in a group. Latency first, then the bytes flow."""

from math import inf

from stepsim.plan import NONE
from stepsim.simulator.reference.flows import Flow
from stepsim.simulator.reference.instants import Steps
from stepsim.simulator.reference.run import Run, Stage


def copy(run: Run, row: int) -> Steps:
    """A copy holds a slot of its engine from start to end; one within a device needs none."""
    if run.engine[row] == NONE:
        yield from _move(run, [row])
        return
    engine = run.engines[run.engine[row]]
    yield engine.take(row)
    yield from _move(run, [row])
    engine.leave()


def meet(run: Run, row: int) -> Steps:
    """A member waits for the last one, holding its stream and nothing else; the last one moves the bytes of all.

    send     --F0--SSSS        the receive arrived first and waits
    receive  ......SSSS--F0--
    """
    group = run.group[row]
    assert group is not None, "a send, receive or collective has a group"
    group.missing -= 1
    if group.missing > 0:
        yield group.done
        return
    yield from _move(run, group.rows)
    group.done.succeed()


def _move(run: Run, rows: list[int]) -> Steps:
    """All of ``rows`` start, hold their shares of their devices, and end together; the first says what it costs."""
    first = rows[0]
    for row in rows:
        run.begin(row)
        run.devices[run.device[row]].take(row, run.needs[row])
    yield from run.spend(run.latency_s[first])
    for stage in run.stages[run.path[first]]:
        yield from _flow(run, first, stage)
    for row in rows:
        run.devices[run.device[row]].leave(row)


def _flow(run: Run, row: int, stage: Stage) -> Steps:
    """The bytes of one stage. Where nothing bounds their rate they take no time."""
    size_bytes = run.size_bytes[row] * stage.volume
    cap_bytes_per_s = min(run.rate_cap_bytes_per_s[row], stage.rate_bytes_per_s)
    if size_bytes > 0 and cap_bytes_per_s < inf:
        yield from run.links.carry(Flow(row, cap_bytes_per_s, stage.weights), size_bytes)
