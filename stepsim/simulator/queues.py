"""Streams and host threads: the queues that tasks stand in."""

from stepsim.plan import TaskKind
from stepsim.simulator.run import Run, Steps
from stepsim.simulator.transfers import copy, meet


def run_stream(run: Run, rows: list[int]) -> Steps:
    """A stream runs its rows in plan order, one at a time, each when it is issued and all it waits for has ended."""
    for row in rows:
        yield run.issued[row]
        yield from run.wait(row)
        yield from _run_row(run, row)
        run.finish(row)


def _run_row(run: Run, row: int) -> Steps:
    group = run.group[row]
    if group is not None:
        yield from meet(run, row, group)
    elif run.kind[row] in (TaskKind.SWAP_OUT, TaskKind.SWAP_IN, TaskKind.COPY):
        yield from copy(run, row)
    else:
        run.begin(row)
        if run.kind[row] != TaskKind.RELEASE:
            yield from run.spend(run.seconds[row])


def run_thread(run: Run, rows: list[int]) -> Steps:
    """A thread issues its rows in plan order, each at its launch cost.

    Host work runs on the thread itself and pays no launch, nor does a release, which launches nothing; a row that
    blocks holds the thread until it has ended.

    thread  LLL   LLL         two kernels of 1 at launch cost 3
    stream     K     K
    """
    for row in rows:
        if run.kind[row] == TaskKind.HOST:
            yield from run.wait(row)
            run.begin(row)
            yield from run.spend(run.seconds[row])
            run.finish(row)
            continue
        if run.kind[row] != TaskKind.RELEASE:
            yield from run.spend(run.launch_s[row])
        run.issued[row].succeed()
        if run.blocks[row]:
            yield run.ended[row]
