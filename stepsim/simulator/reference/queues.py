"""Streams and host threads: the queues that rows stand in."""

from stepsim.simulator.problem import RowKind
from stepsim.simulator.reference.instants import Steps
from stepsim.simulator.reference.moves import copy, meet
from stepsim.simulator.reference.run import Run


def run_stream(run: Run, rows: list[int]) -> Steps:
    """A stream runs its rows in plan order, one at a time, each when it is issued and all it waits for has ended."""
    for row in rows:
        yield run.issued[row]
        yield from run.wait(row)
        run.arrive(row)
        yield from _run_row(run, row)
        run.finish(row)


def _run_row(run: Run, row: int) -> Steps:
    match run.kind[row]:
        case RowKind.COPY:
            yield from copy(run, row)
        case RowKind.MEMBER:
            yield from meet(run, row)
        case RowKind.KERNEL:
            run.begin(row)
            device = run.devices[run.device[row]]
            yield from device.run(row, run.priority[row], run.needs[row], run.seconds[row])
        case RowKind.RELEASE:
            run.begin(row)


def run_thread(run: Run, rows: list[int]) -> Steps:
    """A thread issues its rows in plan order, each at its launch cost.

    Host work runs on the thread itself and pays no launch; a row that blocks holds the thread until it has ended.

    thread  LLL   LLL         two kernels of 1 at launch cost 3
    stream     K     K
    """
    for row in rows:
        if run.kind[row] == RowKind.HOST:
            run.issued[row].succeed()
            yield from _run_on_thread(run, row)
            continue
        yield from run.spend(run.launch_s[row])
        run.issued[row].succeed()
        if run.blocks[row]:
            yield run.ended[row]


def _run_on_thread(run: Run, row: int) -> Steps:
    yield from run.wait(row)
    run.arrive(row)
    run.begin(row)
    yield from run.spend(run.seconds[row])
    run.finish(row)
