"""Transfers: one copy engine a direction, point-to-point links, and rows that meet in a group."""

from contextlib import ExitStack

from stepsim.plan import TaskKind
from stepsim.simulator.run import Group, Run, Steps


def copy(run: Run, row: int) -> Steps:
    """A copy holds its engine. Engines serve first come first served: by ready time, then plan order."""
    turn = (run.env.now, row)
    yield run.turn_to_start(row)
    with run.engine[row].request(priority=turn) as granted:  # type: ignore[arg-type]
        yield granted
        run.begin(row)
        yield from _move(run, row)


def _move(run: Run, row: int) -> Steps:
    """Latency, then the bytes, which hold every link of the route. A recorded transfer takes what it took.

    A link carries one transfer at a time, first come first served. Links are taken in the order of their names, so
    that two transfers never hold what the other needs.
    """
    if run.fixed[row]:
        yield from run.spend(run.seconds[row])
        return
    yield from run.spend(run.latency_s[row])
    links, turn = run.links[row], (run.env.now, row)
    rate = min([run.rate_cap_bytes_per_s[row], *(link.bandwidth_bytes_per_s for link in links)])
    with ExitStack() as held:
        for name in sorted(link.name for link in links):
            yield held.enter_context(run.lines[name].request(priority=turn))  # type: ignore[arg-type]
        yield from run.spend(run.size_bytes[row] / rate)


def meet(run: Run, row: int, group: Group) -> Steps:
    """A member waits for the last one, holding its stream; then all of them run together.

    send     --F0--SSSS        the receive arrived first and waits
    receive  ......SSSS--F0--
    """
    group.missing -= 1
    if group.missing == 0:
        group.all_here.succeed()
        run.env.process(_work_together(run, group))
    yield group.all_here
    run.begin(row)
    yield group.done


def _work_together(run: Run, group: Group) -> Steps:
    """The cost of a group is that of its first member in plan order."""
    first = group.rows[0]
    if run.kind[first] == TaskKind.COLLECTIVE:
        yield from run.spend(run.seconds[first])
    else:
        yield from _move(run, first)
    group.done.succeed()
