"""Proof of order: what a plan reads is there, and what it reuses is free.

Order is proved, not assumed: each row has a vector clock over the lanes (streams and threads) of its process, made of
its dependencies, the row before it in its stream, and the last row of its thread that blocked the thread. Row ``u`` is
ordered before row ``r`` when the clock of ``r`` has reached ``u``.
"""

from collections import defaultdict
from collections.abc import Iterator

from stepsim.errors import PlanError
from stepsim.plan import NONE, Plan, TaskKind


def row_error(plan: Plan, row: int, problem: str) -> PlanError:
    return PlanError(f"row {row} ({plan.row_names()[row]}): {problem}")


class BufferCheck:
    """One pass in issue order over all uses of buffers, beside the vector clocks."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.lane = plan.lane_of_rows().tolist()
        tasks = plan.tasks
        self.reads, self.writes = tasks.reads.to_lists(), tasks.writes.to_lists()
        self.allocates, self.releases = tasks.allocates.to_lists(), tasks.releases.to_lists()
        allocated = set(tasks.allocates.values.tolist())
        self.live = {buffer for buffer in range(len(plan.buffers)) if buffer not in allocated}
        self.written = set(self.live)
        self.gone: set[int] = set()
        self.writer: dict[int, int] = {}
        self.users: dict[int, dict[int, int]] = defaultdict(dict)
        self.last_on_lane: dict[int, int] = {}

    def run(self) -> None:
        for row, clock in enumerate(clocks(self.plan)):
            self.clock = clock
            for buffer in self.allocates[row]:
                self._allocate(row, buffer)
            for buffer in self.reads[row]:
                self._read(row, buffer)
            for buffer in self.writes[row]:
                self._write(row, buffer)
            for buffer in self.releases[row]:
                self._release(row, buffer)
            self.last_on_lane[self.lane[row]] = row

    def _after(self, row: int) -> bool:
        return self.clock.get(self.lane[row], NONE) >= row

    def _fail(self, row: int, buffer: int, problem: str) -> PlanError:
        return row_error(self.plan, row, f"buffer {self.plan.buffers.name[buffer]!r} {problem}")

    def _allocate(self, row: int, buffer: int) -> None:
        if buffer in self.live or buffer in self.gone:
            raise self._fail(row, buffer, "is allocated twice")
        owner = int(self.plan.buffers.owner[buffer])
        earlier = self.last_on_lane.get(owner, NONE)
        if owner not in (NONE, self.plan.tasks.stream[row]) and earlier != NONE and not self._after(earlier):
            raise self._fail(row, buffer, f"is allocated on a foreign stream before row {earlier} of its owner stream")
        self.live.add(buffer)

    def _use(self, row: int, buffer: int) -> None:
        if buffer not in self.live:
            state = "after its release" if buffer in self.gone else "before it is allocated"
            raise self._fail(row, buffer, f"is used {state}")
        device = self.plan.buffers.device[buffer]
        if self.plan.devices.process[device] != self.plan.threads.process[self.plan.tasks.thread[row]]:
            raise self._fail(row, buffer, "belongs to another process")

    def _read(self, row: int, buffer: int) -> None:
        self._use(row, buffer)
        if buffer not in self.written:
            raise self._fail(row, buffer, "is read before it is written")
        writer = self.writer.get(buffer)
        if writer is not None and not self._after(writer):
            raise self._fail(row, buffer, f"is read without waiting for row {writer}, which writes it")
        self.users[buffer][self.lane[row]] = row

    def _write(self, row: int, buffer: int) -> None:
        self._use(row, buffer)
        for user in self.users[buffer].values():
            if user != row and not self._after(user):
                raise self._fail(row, buffer, f"is written without waiting for row {user}, which uses it")
        self.written.add(buffer)
        self.writer[buffer] = row
        self.users[buffer][self.lane[row]] = row

    def _release(self, row: int, buffer: int) -> None:
        self._use(row, buffer)
        owner = int(self.plan.buffers.owner[buffer])
        if owner not in (NONE, self.plan.tasks.stream[row]):
            raise self._fail(row, buffer, "is released on a stream that does not own it")
        for user in self.users[buffer].values():
            if user != row and not self._after(user):
                raise self._fail(row, buffer, f"is released without waiting for row {user}, which uses it")
        self.live.discard(buffer)
        self.gone.add(buffer)


def clocks(plan: Plan) -> Iterator[dict[int, int]]:
    """For each row in issue order: lane to the last row on it that has ended before this row starts.

    The row itself counts on its own lane.
    """
    tasks = plan.tasks
    dependencies = tasks.dependencies.to_lists()
    lanes, threads = plan.lane_of_rows().tolist(), tasks.thread.tolist()
    blocks = ((tasks.kind == TaskKind.HOST) | tasks.blocks_thread).tolist()
    done: list[dict[int, int]] = []
    last_on_lane: dict[int, int] = {}
    last_block: dict[int, int] = {}
    for row, needs in enumerate(dependencies):
        before = {*needs, last_on_lane.get(lanes[row], NONE), last_block.get(threads[row], NONE)} - {NONE}
        clock: dict[int, int] = {}
        for earlier in before:
            for lane, reached in done[earlier].items():
                if reached > clock.get(lane, NONE):
                    clock[lane] = reached
        clock[lanes[row]] = row
        done.append(clock)
        last_on_lane[lanes[row]] = row
        if blocks[row]:
            last_block[threads[row]] = row
        yield clock
