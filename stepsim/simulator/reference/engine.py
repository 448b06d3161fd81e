"""One run, from the first instant to the last."""

from collections import defaultdict

from stepsim.plan import NONE
from stepsim.simulator.outcome import Outcome, Progress, Sharing, stopped
from stepsim.simulator.problem import Problem
from stepsim.simulator.reference.queues import run_stream, run_thread
from stepsim.simulator.reference.run import Run


def run_reference(problem: Problem, sharing: Sharing, progress: Progress | None = None) -> Outcome:
    """Run until nothing happens any more. Raises `StoppedError` on Ctrl-C."""
    run = Run(problem, sharing, progress)
    for rows in _rows_by(problem.stream.tolist()):
        run.env.process(run_stream(run, rows))
    for rows in _rows_by(problem.thread.tolist()):
        run.env.process(run_thread(run, rows))
    try:
        run.env.run()
    except KeyboardInterrupt:
        raise stopped(run.num_ended, len(problem.plan), run.env.now) from None
    return run.outcome()


def _rows_by(column: list[int]) -> list[list[int]]:
    """Rows in plan order for each entry of a column, but NONE."""
    found: dict[int, list[int]] = defaultdict(list)
    for row, entry in enumerate(column):
        if entry != NONE:
            found[entry].append(row)
    return list(found.values())
