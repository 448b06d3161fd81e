"""Processes meet only in groups: a send with its receive, or the members of a collective, alike and in one order."""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from stepsim.errors import PlanError
from stepsim.plan import NONE, Plan, TaskKind
from stepsim.plan.names import row_error

Mask = NDArray[np.bool_]
Numbers = NDArray[np.int64]


def check_groups(plan: Plan) -> None:
    """Raises `PlanError` that names the first row of a group that cannot meet."""
    groups = _Groups.of(plan)
    if len(groups):
        _check_members(plan, groups)
        _check_agreement(plan, groups)


@dataclass(frozen=True, eq=False)
class _Groups:
    """Rows that stand in a group, sorted by group and then in issue order. ``begin`` is where each group begins."""

    rows: Numbers
    group: Numbers
    begin: Numbers

    @classmethod
    def of(cls, plan: Plan) -> Self:
        rows = np.flatnonzero(plan.tasks.group != NONE)
        number = plan.tasks.group[rows]
        order = np.argsort(number, kind="stable")
        is_first = np.diff(number[order], prepend=np.int32(NONE)) != 0
        return cls(rows[order], np.cumsum(is_first) - 1, np.flatnonzero(is_first))

    def __len__(self) -> int:
        return len(self.begin)

    @property
    def first(self) -> Numbers:
        """The first row of each group."""
        return self.rows[self.begin]

    @property
    def sizes(self) -> Numbers:
        return np.diff(self.begin, append=len(self.rows))

    def of_number(self, group: int) -> list[int]:
        """Rows of one group."""
        begin = self.begin[group]
        return list(map(int, self.rows[begin : begin + self.sizes[group]]))

    def all_are(self, mask: Mask) -> Mask:
        """For each group whether ``mask``, one entry a row of a group, is true for all its rows."""
        return np.logical_and.reduceat(mask, self.begin)

    def differ(self, column: NDArray[np.int32] | Numbers) -> Mask:
        """For each group whether its rows differ in ``column`` of the plan."""
        values = column[self.rows]
        return np.not_equal(np.maximum.reduceat(values, self.begin), np.minimum.reduceat(values, self.begin))

    def in_groups(self, column: NDArray[np.int32]) -> Numbers:
        """``column`` of the plan for all rows, in each group in ascending order."""
        values = column[self.rows].astype(np.int64)
        return values[np.lexsort((values, self.group))]


_Rule = tuple[Mask, Callable[[Plan, list[int]], str]]
"""For each group whether it breaks the rule, and what to say of its rows then."""


def _check_members(plan: Plan, groups: _Groups) -> None:
    """A send meets its receive; the members of a collective are alike and are those of its team."""
    rules = _member_rules(plan, groups)
    broken = np.flatnonzero(np.logical_or.reduce([wrong for wrong, _ in rules]))
    if len(broken):
        group = int(broken[groups.first[broken].argmin()])
        describe = next(describe for wrong, describe in rules if wrong[group])
        rows = groups.of_number(group)
        raise row_error(plan, rows[0], describe(plan, rows))


def _member_rules(plan: Plan, groups: _Groups) -> list[_Rule]:
    tasks, team = plan.tasks, plan.collectives.team
    kind = tasks.kind[groups.rows]
    has_send = ~groups.all_are(kind != TaskKind.SEND)
    has_receive = ~groups.all_are(kind != TaskKind.RECEIVE)
    is_message = (groups.sizes == 2) & has_send & has_receive
    is_collective = groups.all_are(kind == TaskKind.COLLECTIVE)
    wanted = np.append(np.diff(team.starts), NONE)[tasks.collective[groups.first]]
    other_collective = is_collective & groups.differ(tasks.collective)
    is_full = is_collective & (wanted == groups.sizes) & ~other_collective
    stream = groups.in_groups(tasks.stream)
    shares = np.append(np.diff(stream) == 0, False) & np.append(np.diff(groups.group) == 0, False)
    return [
        (~is_message & ~is_collective, _wrong_kinds),
        (is_collective & (wanted != groups.sizes), _wrong_number),
        (groups.differ(tasks.size_bytes), _different("size_bytes")),
        (is_message & groups.differ(tasks.route), _different("route")),
        (other_collective, _different("collective")),
        (~groups.all_are(~shares), _one_stream),
        (_misses_its_team(plan, groups, is_full), _missing),
    ]


def _misses_its_team(plan: Plan, groups: _Groups, is_full: Mask) -> Mask:
    """For each group, if it has as many rows as its team has devices, whether they stand on other devices."""
    tasks, team = plan.tasks, plan.collectives.team
    sorted_team = np.append(team.values[np.lexsort((team.values, team.owners()))], NONE)
    begin = np.append(team.starts, 0)[tasks.collective[groups.first]]
    place = np.arange(len(groups.rows)) + (begin - groups.begin)[groups.group]
    expected = sorted_team[np.where(is_full[groups.group], place, NONE)]
    return is_full & ~groups.all_are(groups.in_groups(tasks.device) == expected)


def _wrong_kinds(plan: Plan, rows: list[int]) -> str:
    labels = [TaskKind(kind).label for kind in sorted(plan.tasks.kind[rows].tolist())]
    return f"a group is a send and a receive, or collectives; this one is {labels}"


def _wrong_number(plan: Plan, rows: list[int]) -> str:
    wanted = len(plan.collectives.team[int(plan.tasks.collective[rows[0]])])
    return f"its collective has {wanted} members, the plan has rows for {len(rows)}"


def _different(name: str) -> Callable[[Plan, list[int]], str]:
    def describe(plan: Plan, rows: list[int]) -> str:
        values = np.unique(getattr(plan.tasks, name)[rows]).tolist()
        return f"members of its group differ in {name}: {values}"

    return describe


def _one_stream(plan: Plan, rows: list[int]) -> str:
    return "two members of its group stand on one stream, where the first waits for the second"


def _missing(plan: Plan, rows: list[int]) -> str:
    team = plan.collectives.team[int(plan.tasks.collective[rows[0]])]
    missing = team[~np.isin(team, plan.tasks.device[rows])][0]
    return f"no member of its group is on {plan.devices.name[missing]!r}, which is in its team"


def _check_agreement(plan: Plan, groups: _Groups) -> None:
    """Groups over the same streams come in the same order on each of them, or they deadlock."""
    team = _teams(groups, groups.in_groups(plan.tasks.stream))[groups.group]
    stream = plan.tasks.stream[groups.rows]
    order = np.lexsort((groups.rows, stream, team))
    group, is_new_team = groups.group[order], np.diff(team[order], prepend=NONE) != 0
    is_new_stream = is_new_team | (np.diff(stream[order], prepend=NONE) != 0)
    places = np.arange(len(order))
    team_begin, stream_begin = (np.maximum.accumulate(places * is_new) for is_new in (is_new_team, is_new_stream))
    disagrees = group != group[team_begin + places - stream_begin]
    if disagrees.any():
        rows = groups.rows[np.isin(team, team[order][disagrees])]
        first = groups.rows == rows.min()
        raise _disagreement(plan, np.sort(groups.rows[team == team[first]]).tolist())


def _disagreement(plan: Plan, rows: list[int]) -> PlanError:
    """``rows`` are those of all groups over one set of streams, and the streams do not agree."""
    orders: dict[int, list[int]] = defaultdict(list)
    group = dict(zip(rows, plan.tasks.group[rows].tolist(), strict=True))
    for row in rows:
        orders[int(plan.tasks.stream[row])].append(group[row])
    first, *others = orders.values()
    pairs = (pair for other in others for pair in zip(first, other, strict=True))
    one, two = next(pair for pair in pairs if pair[0] != pair[1])
    row = next(row for row in rows if group[row] == one)
    return row_error(plan, row, f"members disagree in order: group {one} here, {two} there")


def _teams(groups: _Groups, stream: Numbers) -> Numbers:
    """For each group the number of its set of streams; ``stream`` is sorted in each group."""
    numbers: dict[bytes, int] = {}
    flat, width = stream.tobytes(), stream.itemsize
    ends = (groups.begin + groups.sizes) * width
    return np.array(
        [
            numbers.setdefault(flat[begin:end], len(numbers))
            for begin, end in zip((groups.begin * width).tolist(), ends.tolist(), strict=True)
        ]
    )
