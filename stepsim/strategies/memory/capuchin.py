"""Capuchin: swap what has time to leave and return, then swap or recompute, whichever costs less.

Peng et al., "Capuchin", ASPLOS 2020, section 4. The first iteration is measured; here its times are predicted.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Literal

from stepsim.machines import Machine
from stepsim.plan import Costs, Plan, TaskKind
from stepsim.report import Report
from stepsim.strategies.memory.accesses import Gap, delay_s, gaps
from stepsim.strategies.memory.earlier import in_time, moved_up
from stepsim.strategies.memory.home.building import FEATURE_MAP_SHARE
from stepsim.strategies.memory.lineage import Lineage
from stepsim.strategies.memory.lowering import plan_for_rows
from stepsim.strategies.memory.on_demand import evicting
from stepsim.strategies.memory.prices import Prices, prices_of
from stepsim.strategies.memory.propose import begin, propose
from stepsim.strategies.memory.rows import Copy, Row, resident_bytes, settle
from stepsim.strategies.memory.schedule import Action, can_recompute, forward_only, order, schedule
from stepsim.strategies.proposal import Evaluate, Proposal
from stepsim.workloads import Workload

NINE_SLACKS = (0.0, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.5, 1.0)
"""What "best" tries. The paper has no slack; how much is worth trying, a prototype of this project told."""

EARLIER = 0.05
"""Of its swap time, by which a tensor that comes too late is asked for earlier: section 4.4."""

Decision = tuple[Gap, Action]


@dataclass(frozen=True, slots=True, kw_only=True)
class Capuchin:
    """Decide tensor by tensor until the required saving is met.

    Tensors whose gap covers a moment of the peak are looked at, the one with the most free time first. Those that add
    nothing are swapped. The others are swapped or recomputed, whichever adds less.

    actions
        What it may choose from: both, or one of them.
    rest
        The order of those others: ``"msps"``, most bytes saved per second of recomputing first, or ``"free-time"``.
    lanes
        What a swap adds is told with all swaps chosen before it in the same lanes; else from its own free time only.
    slack
        Share by which more is saved than is required, which is what the step that keeps everything lacks. ``"best"``
        tries `NINE_SLACKS` in the simulator, which the paper does not. Where the plan still does not fit, as much more
        is saved as it lacks.
    on_demand
        Where no number of decisions fits, the one that lacks least is taken and the rest evicted when there is no room,
        as the paper's runtime does: `stepsim.strategies.memory.on_demand`.
    feedback
        Rounds in the simulator, after each of which tensors that came too late are asked for 5 % of their swap time
        earlier. The paper has one in each iteration of the training.

    A swap-in starts as late as it can be in time and never where there is no room for it. Recomputation is on demand;
    what it makes on the way and later ops need stays. Computing waits for the copy that began first, and only when room
    is needed.
    """

    name: str = "capuchin"
    actions: tuple[Action, ...] = (Action.SWAP, Action.RECOMPUTE)
    rest: Literal["msps", "free-time"] = "msps"
    lanes: bool = True
    slack: float | Literal["best"] = 0.0
    feedback: int = 20
    on_demand: bool = True

    def plan(
        self,
        workload: Workload,
        machine: Machine,
        costs: Costs,
        *,
        memory_bytes: int,
        evaluate: Evaluate,
        time_limit_s: float,
    ) -> Proposal:
        began_s = begin(memory_bytes, time_limit_s)
        prices = prices_of(workload, machine, costs)
        trials = _Trials(workload, machine, prices, memory_bytes, evaluate, began_s + time_limit_s)
        decisions = list(self.decisions(workload, prices, memory_bytes))
        slacks = NINE_SLACKS if self.slack == "best" else (self.slack,)
        found = {trials.enough(decisions, slacks[0])}
        found |= {trials.enough(decisions, slack) for slack in slacks[1:] if not trials.late()}
        least_bytes = min(found)[0]
        for lacking_bytes, number in sorted(found):
            if lacking_bytes == least_bytes:
                trials.guide(decisions[:number], self.feedback, on_demand=self.on_demand and lacking_bytes > 0)
        best = trials.best
        return propose(
            self.name, best, machine, evaluate, memory_bytes=memory_bytes, began_s=began_s, complete=not trials.late()
        )

    def decisions(self, workload: Workload, prices: Prices, memory_bytes: int) -> Iterator[Decision]:
        """All that can be decided, in order; the required saving tells where to stop."""
        lineage, swapped, open_gaps = Lineage(workload, prices), list[Gap](), list[Gap]()
        for gap in _around_the_peak(workload, prices, memory_bytes):
            if Action.SWAP in self.actions and self._added_s(swapped, gap) <= 0:
                swapped.append(gap)
                yield gap, Action.SWAP
            else:
                open_gaps.append(gap)
        while open_gaps:
            gap = self._next(open_gaps, lineage)
            open_gaps.remove(gap)
            action = self._cheaper(workload, gap, swapped, lineage)
            if action is Action.SWAP:
                swapped.append(gap)
            elif action is Action.RECOMPUTE:
                lineage.choose(gap.tensor)
            if action is not Action.KEEP:
                yield gap, action

    def _added_s(self, swapped: list[Gap], gap: Gap) -> float:
        return delay_s([*swapped, gap]) - delay_s(swapped) if self.lanes else max(0.0, -gap.free_s)

    def _next(self, open_gaps: list[Gap], lineage: Lineage) -> Gap:
        if self.rest == "free-time" or Action.RECOMPUTE not in self.actions:
            return open_gaps[0]
        again = [gap for gap in open_gaps if can_recompute(lineage.workload, gap.tensor)]
        return min(again or open_gaps[:1], key=lambda gap: lineage.seconds(gap.tensor) / gap.size_bytes)

    def _cheaper(self, workload: Workload, gap: Gap, swapped: list[Gap], lineage: Lineage) -> Action:
        can_again = Action.RECOMPUTE in self.actions and can_recompute(workload, gap.tensor)
        if Action.SWAP not in self.actions:
            return Action.RECOMPUTE if can_again else Action.KEEP
        if can_again and lineage.seconds(gap.tensor) <= self._added_s(swapped, gap):
            return Action.RECOMPUTE
        return Action.SWAP


def _around_the_peak(workload: Workload, prices: Prices, memory_bytes: int) -> list[Gap]:
    """Gaps in which the step that keeps everything has too little memory, the one with the most free time first.

    Of feature maps only: batch statistics have more free time than anything else, and give no room.
    """
    level_bytes = resident_bytes(workload, schedule(workload, {}, memory_bytes))[: len(workload.ops)]
    peak = [op for op, level in enumerate(level_bytes) if level > memory_bytes]
    known = gaps(workload, prices)
    least_bytes = FEATURE_MAP_SHARE * sum(gap.size_bytes for gap in known)
    found = [gap for gap in known if gap.size_bytes >= least_bytes and any(gap.after < op < gap.before for op in peak)]
    return sorted(found, key=lambda gap: -gap.free_s)


class _Trials:
    """Plans from decisions, and the best so far: bytes over the limit count first, then seconds."""

    def __init__(
        self,
        workload: Workload,
        machine: Machine,
        prices: Prices,
        memory_bytes: int,
        evaluate: Evaluate,
        deadline_s: float,
    ) -> None:
        self.workload, self.machine, self.prices = workload, machine, prices
        self.memory_bytes, self.evaluate, self.deadline_s = memory_bytes, evaluate, deadline_s
        self.passing = dict.fromkeys(forward_only(workload), Action.RECOMPUTE)
        self.heard: dict[tuple[int, float], Plan] = {}

    @property
    def best(self) -> Plan:
        return self.heard[min(self.heard)]

    def late(self) -> bool:
        return time.monotonic() > self.deadline_s

    def enough(self, decisions: Sequence[Decision], slack: float) -> tuple[int, int]:
        """How many of the first decisions to take, after the bytes that their plan is then over the limit.

        As many as save what is required and ``slack`` more, and as the plan then takes to fit; if none does, those of
        least peak.
        """
        saved_bytes = list(accumulate((gap.size_bytes for gap, _ in decisions), initial=0))
        required_bytes = self._lacking(()) * (1 + slack)
        found: list[tuple[int, int]] = []
        for number, saved in enumerate(saved_bytes):
            if saved >= required_bytes or number == len(decisions):
                lacking_bytes = self._lacking(decisions[:number])
                found.append((lacking_bytes, number))
                if not lacking_bytes or self.late():
                    break
                required_bytes = saved + lacking_bytes
        return min(found)

    def guide(self, decisions: Sequence[Decision], rounds: int, *, on_demand: bool) -> None:
        """Hear the plan, and hear it again with swap-ins earlier that came too late, while that changes it and fits."""
        ahead_s: dict[int, float] = {}
        before: list[Row] = []
        planned = {gap.tensor for gap, action in decisions if action is Action.SWAP}
        for _ in range(rounds + 1):
            rows = self._rows(decisions, ahead_s, on_demand=on_demand)
            least_bytes = self._excess(before or rows)
            if rows == before or self._excess(rows) > least_bytes or (self.heard and self.late()):
                return
            before, report = rows, self._hear(rows)
            for tensor in planned.intersection(_too_late(rows, report)):
                swap_s = self.prices[TaskKind.SWAP_IN, tensor]
                ahead_s[tensor] = ahead_s.get(tensor, 0.0) + EARLIER * swap_s

    def _hear(self, rows: list[Row]) -> Report:
        plan = plan_for_rows(self.workload, self.machine, rows)
        report = self.evaluate(plan)
        self.heard.setdefault((self._excess(rows), report.makespan_s), plan)
        return report

    def _lacking(self, decisions: Sequence[Decision]) -> int:
        return self._excess(self._rows(decisions, {}))

    def _excess(self, rows: list[Row]) -> int:
        return max(0, max(resident_bytes(self.workload, rows)) - self.memory_bytes)

    def _rows(
        self, decisions: Sequence[Decision], ahead_s: Mapping[int, float], *, on_demand: bool = False
    ) -> list[Row]:
        policy = self.passing | {gap.tensor: action for gap, action in decisions}
        rows = order(self.workload, policy, 0)
        rows = moved_up(self.workload, rows, in_time(rows, self.prices, ahead_s), self.memory_bytes)
        rows = evicting(self.workload, rows, self.memory_bytes) if on_demand else rows
        return list(settle(self.workload, rows, self.memory_bytes))


def _too_late(rows: list[Row], report: Report) -> set[int]:
    """Tensors that computing waited for: still on their way in when all before their first reader was done."""
    end_s = report.timeline.spans.end_s.tolist()
    arrives_s: dict[Copy, float] = {}
    found, now_s = set(), 0.0
    for row, ends_s in zip(rows, end_s, strict=True):
        if row.kind is TaskKind.SWAP_IN:
            arrives_s[row.writes[0]] = ends_s
        elif row.kind is not TaskKind.SWAP_OUT:
            found |= {copy[0] for copy in row.reads if arrives_s.pop(copy, 0.0) > now_s}
            now_s = ends_s
    return found
