"""Transfers: one copy engine a direction, point-to-point links, and rows that meet in a group."""

from stepsim.plan import TaskKind
from stepsim.simulator.run import Group, Run, Steps


def copy(run: Run, row: int) -> Steps:
    """A copy holds its engine. Engines serve first come first served: by ready time, then plan order."""
    yield run.places.take(row, run.engine[row])
    run.begin(row)
    yield from _move(run, row)
    run.places.leave(run.engine[row])


def _move(run: Run, row: int) -> Steps:
    """Latency, then the bytes, which hold every link of the route. A recorded transfer takes what it took.

    A link carries one transfer at a time, first come first served. A transfer takes all its links at once, so that
    two transfers never hold what the other needs.
    """
    if run.fixed[row]:
        yield from run.spend(run.seconds[row])
        return
    yield from run.spend(run.latency_s[row])
    yield run.places.take(row, run.links[row])
    yield from run.spend(run.size_bytes[row] / min(run.rate_cap_bytes_per_s[row], run.link_rate_bytes_per_s[row]))
    run.places.leave(run.links[row])


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
