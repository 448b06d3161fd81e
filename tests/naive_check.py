"""The rules of order and of groups once more, in plain loops over rows: what the self-check must agree with."""

from collections import defaultdict
from collections.abc import Iterator
from itertools import chain

from stepsim.plan import NONE, Plan, TaskKind

Uses = dict[int, dict[int, int]]
"""Buffer to lane to the last row on it that has read or written the buffer."""


def order_problem(plan: Plan) -> str | None:
    """What is wrong with the first use of a buffer that is not there or not free; `None` for a plan in order."""
    clocks = naive_clocks(plan)
    for row, buffer, problem in _Walk(plan, clocks).problems():
        return f"row {row} ({plan.row_names()[row]}): buffer {plan.buffers.name[buffer]!r} {problem}"
    return None


def naive_clocks(plan: Plan) -> list[dict[int, int]]:
    """For each row: lane to the last row on it that has ended before this row starts; itself on its own lane."""
    lane, thread = plan.lane_of_rows().tolist(), plan.tasks.thread.tolist()
    done: list[dict[int, int]] = []
    for row in range(len(plan)):
        before = set(plan.tasks.dependencies[row].tolist())
        before |= {other for other in range(row) if lane[other] == lane[row]}
        before |= {other for other in range(row) if thread[other] == thread[row] and _blocks(plan, other)}
        clock = {lane[row]: row}
        for earlier in before:
            for other, reached in done[earlier].items():
                clock[other] = max(clock.get(other, NONE), reached)
        done.append(clock)
    return done


def _blocks(plan: Plan, row: int) -> bool:
    return bool(plan.tasks.kind[row] == TaskKind.HOST or plan.tasks.blocks_thread[row])


class _Walk:
    """One walk in issue order over all uses of buffers."""

    def __init__(self, plan: Plan, clocks: list[dict[int, int]]) -> None:
        self.plan, self.clocks = plan, clocks
        self.lane = plan.lane_of_rows().tolist()
        self.initial = set(range(len(plan.buffers))) - set(plan.tasks.allocates.values.tolist())
        self.live, self.written, self.gone = set(self.initial), set(self.initial), set[int]()
        self.writer: dict[int, int] = {}
        self.uses: Uses = defaultdict(dict)

    def problems(self) -> Iterator[tuple[int, int, str]]:
        """Up to the first one the walk knows what has happened; what comes later is of no worth."""
        tasks = self.plan.tasks
        for row in range(len(self.plan)):
            for rule, lists in (
                (self._allocate, tasks.allocates),
                (self._read, tasks.reads),
                (self._write, tasks.writes),
                (self._release, tasks.releases),
            ):
                for buffer in lists[row].tolist():
                    for problem in rule(row, buffer):
                        yield row, buffer, problem

    def _allocate(self, row: int, buffer: int) -> Iterator[str]:
        if buffer in self.live or buffer in self.gone:
            yield "is allocated twice"
        if self._is_foreign(row, buffer):
            owner = int(self.plan.buffers.owner[buffer])
            last = max((other for other in range(row) if self.lane[other] == owner), default=NONE)
            if not self._follows(row, last):
                yield f"is allocated on a foreign stream before row {last} of its owner stream"
        self.live.add(buffer)

    def _read(self, row: int, buffer: int) -> Iterator[str]:
        yield from self._use(row, buffer)
        if buffer not in self.written:
            yield "is read before it is written"
        if not self._follows(row, self.writer.get(buffer, NONE)):
            yield f"is read without waiting for row {self.writer[buffer]}, which writes it"
        self.uses[buffer][self.lane[row]] = row

    def _write(self, row: int, buffer: int) -> Iterator[str]:
        yield from self._use(row, buffer)
        yield from self._claim(row, buffer, "written")
        self.written.add(buffer)
        self.writer[buffer] = row
        self.uses[buffer][self.lane[row]] = row

    def _release(self, row: int, buffer: int) -> Iterator[str]:
        yield from self._use(row, buffer)
        if self._is_foreign(row, buffer):
            yield "is released on a stream that does not own it"
        yield from self._claim(row, buffer, "released")
        self.live.discard(buffer)
        self.gone.add(buffer)

    def _use(self, row: int, buffer: int) -> Iterator[str]:
        if buffer not in self.live:
            yield f"is used {'after its release' if buffer in self.gone else 'before it is allocated'}"
        device = self.plan.buffers.device[buffer]
        if self.plan.devices.process[device] != self.plan.process_of_rows()[row]:
            yield "belongs to another process"

    def _claim(self, row: int, buffer: int, verb: str) -> Iterator[str]:
        early = [user for user in self.uses[buffer].values() if not self._follows(row, user)]
        if early:
            yield f"is {verb} without waiting for row {max(early)}, which uses it"

    def _is_foreign(self, row: int, buffer: int) -> bool:
        return int(self.plan.buffers.owner[buffer]) not in (NONE, int(self.plan.tasks.stream[row]))

    def _follows(self, row: int, earlier: int) -> bool:
        return earlier == NONE or self.clocks[row].get(self.lane[earlier], NONE) >= earlier


def group_problem(plan: Plan) -> str | None:
    """What is wrong with the first group that cannot meet; `None` if all can."""
    members: dict[int, list[int]] = defaultdict(list)
    for row, group in enumerate(plan.tasks.group.tolist()):
        if group != NONE:
            members[group].append(row)
    alone = ((rows[0], problem) for rows in members.values() for problem in _member_problems(plan, rows))
    for row, problem in chain(alone, _order_problems(plan, members)):
        return f"row {row} ({plan.row_names()[row]}): {problem}"
    return None


def _member_problems(plan: Plan, rows: list[int]) -> Iterator[str]:
    tasks = plan.tasks
    kinds = sorted(tasks.kind[rows].tolist())
    is_message, is_collective = kinds == [TaskKind.SEND, TaskKind.RECEIVE], set(kinds) == {TaskKind.COLLECTIVE}
    if not is_message and not is_collective:
        labels = [TaskKind(kind).label for kind in kinds]
        yield f"a group is a send and a receive, or collectives; this one is {labels}"
    team = plan.collectives.team[int(tasks.collective[rows[0]])].tolist() if is_collective else []
    if is_collective and len(team) != len(rows):
        yield f"its collective has {len(team)} members, the plan has rows for {len(rows)}"
    for name in ("size_bytes", "route" if is_message else "collective"):
        values = sorted(set(getattr(tasks, name)[rows].tolist()))
        if len(values) > 1:
            yield f"members of its group differ in {name}: {values}"
    if len(set(tasks.stream[rows].tolist())) < len(rows):
        yield "two members of its group stand on one stream, where the first waits for the second"
    for device in team:
        if device not in tasks.device[rows]:
            yield f"no member of its group is on {plan.devices.name[device]!r}, which is in its team"


def _order_problems(plan: Plan, members: dict[int, list[int]]) -> Iterator[tuple[int, str]]:
    stream = plan.tasks.stream.tolist()
    orders: dict[frozenset[int], dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
    for row, group in enumerate(plan.tasks.group.tolist()):
        if group != NONE:
            orders[frozenset(stream[member] for member in members[group])][stream[row]].append(group)
    for first, *others in (order.values() for order in orders.values()):
        for other in others:
            for one, two in zip(first, other, strict=True):
                if one != two:
                    yield members[one][0], f"members disagree in order: group {one} here, {two} there"
