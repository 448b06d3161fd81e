"""Deadlock is a result: tasks that can never start are named, with what each waits for."""

from stepsim.errors import DeadlockError
from stepsim.plan import TaskKind
from stepsim.simulator.run import Run

SHOWN = 3


def check_all_ran(run: Run) -> None:
    """Raises `DeadlockError` when the clock stopped before every row had ended."""
    stuck = [row for row, event in enumerate(run.ended) if not event.triggered]
    if not stuck:
        return
    names, lanes, lane = run.plan.row_names(), run.plan.lane_names(), run.plan.lane_of_rows()
    named = {row: f"{names[row]} on {lanes[lane[row]]}" for row in stuck}
    shown = "; ".join(f"row {row} ({named[row]}) waits for {_reason(run, row, named)}" for row in stuck[:SHOWN])
    more = f"; and {len(stuck) - SHOWN} more" if len(stuck) > SHOWN else ""
    raise DeadlockError(f"{len(stuck)} of {len(run.ended)} tasks can never start: {shown}{more}")


def _reason(run: Run, row: int, named: dict[int, str]) -> str:
    """The first of: an unfinished dependency, what holds its thread, the row before it in line, its group."""
    for earlier in run.dependencies[row]:
        if earlier in named:
            return f"row {earlier} ({named[earlier]})"
    before = [earlier for earlier in named if earlier < row]
    if not run.issued[row].triggered:
        thread = run.plan.tasks.thread
        held = (r for r in before if thread[r] == thread[row] and (run.blocks[r] or run.kind[r] == TaskKind.HOST))
        first = next(held)
        return f"row {first} ({named[first]}), which holds its thread"
    in_line = [earlier for earlier in before if run.stream[earlier] == run.stream[row]]
    if in_line:
        return f"row {in_line[-1]}, before it on the same stream"
    group = run.group[row]
    assert group is not None, "a row that waits for nothing has run"
    missing = [other for other in group.rows if other in named and other != row]
    return f"the others of its group, rows {missing}"
