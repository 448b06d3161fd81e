"""Deadlock is a result: tasks that can never start are named, with what each waits for."""

from stepsim.errors import DeadlockError
from stepsim.simulator.run import Run

SHOWN = 3


def check_all_ran(run: Run) -> None:
    """Raises `DeadlockError` when the clock stopped before every row had ended."""
    stuck = [row for row, event in enumerate(run.ended) if not event.triggered]
    if not stuck:
        return
    named = _named(run, stuck)
    shown = "; ".join(f"row {row} ({named[row]}) waits for {_reason(run, row, named)}" for row in stuck[:SHOWN])
    more = f"; and {len(stuck) - SHOWN} more" if len(stuck) > SHOWN else ""
    raise DeadlockError(f"{len(stuck)} of {len(run.ended)} tasks can never start: {shown}{more}")


def _named(run: Run, stuck: list[int]) -> dict[int, str]:
    names, tasks, lanes = run.plan.row_names(), run.plan.lane_of_rows(), run.plan.lane_names()
    assert len(tasks) == len(names)
    return {row: f"{names[row]} on {lanes[tasks[row]]}" for row in stuck}


def _reason(run: Run, row: int, named: dict[int, str]) -> str:
    """The first of: an unfinished dependency, the row before it in line, or the others of its group."""
    for earlier in run.dependencies[row]:
        if earlier in named:
            return f"row {earlier} ({named[earlier]})"
    lane, thread = run.plan.lane_of_rows(), run.plan.tasks.thread
    for earlier in sorted(named, reverse=True):
        if earlier < row and lane[earlier] == lane[row]:
            return f"row {earlier} before it on the same stream"
        if earlier < row and thread[earlier] == thread[row] and not run.issued[row].triggered:
            return f"row {earlier}, which blocks its thread"
    group = run.group[row]
    assert group is not None, "a row that waits for nothing has run"
    missing = [other for other in group.rows if other in named and other != row]
    return f"the others of its group, rows {missing}"
