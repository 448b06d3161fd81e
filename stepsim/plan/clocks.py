"""Vector clocks: which rows have ended before a row starts, whatever the reason."""

from collections.abc import Iterator, Sequence

from stepsim.plan import NONE, Plan, TaskKind


def clocks(plan: Plan, rows: Sequence[int]) -> Iterator[tuple[int, dict[int, int]]]:
    """For each of ``rows``, in issue order: lane to the last row on it that has ended before this row starts.

    ``rows`` are all rows of some processes up to a last one, because a row waits only within its process: for its
    dependencies, for the row before it on its lane, and for the last row that blocked its thread. The row itself
    counts on its own lane.
    """
    tasks = plan.tasks
    lanes = plan.lane_of_rows()
    blocks = (tasks.kind == TaskKind.HOST) | tasks.blocks_thread
    done: dict[int, dict[int, int]] = {}
    last_on_lane: dict[int, int] = {}
    last_block: dict[int, int] = {}
    for row in rows:
        lane, thread = int(lanes[row]), int(tasks.thread[row])
        needs = tasks.dependencies[row].tolist()
        clock: dict[int, int] = {}
        for earlier in {*needs, last_on_lane.get(lane, NONE), last_block.get(thread, NONE)} - {NONE}:
            for other, reached in done[earlier].items():
                if reached > clock.get(other, NONE):
                    clock[other] = reached
        clock[lane] = row
        done[row] = clock
        last_on_lane[lane] = row
        if blocks[row]:
            last_block[thread] = row
        yield row, clock
