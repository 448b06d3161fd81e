"""A greedy search: while the step does not fit, make the decision that frees the most for the least time.

Not from a paper: the plainest thing that mixes swap and recompute, and the rival that better searches must beat.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

import numpy as np

from stepsim.machines import Machine
from stepsim.plan import Costs, TaskKind
from stepsim.strategies.memory.lowering import plan_for_policy
from stepsim.strategies.memory.prices import Prices, prices_of
from stepsim.strategies.memory.propose import begin, propose
from stepsim.strategies.memory.rows import Row, resident_bytes
from stepsim.strategies.memory.schedule import Action, Policy, can_recompute, candidates, schedule
from stepsim.strategies.proposal import Evaluate, Proposal
from stepsim.workloads import Workload

Decision = tuple[int, Action]

NO_TIME_S = 1e-9
"""Decisions that add less than this nanosecond are as good as free."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Greedy:
    """Decide tensor by tensor, then take back every decision that turned out not to be needed.

    At each step decisions are tried, the cheapest bytes first, until ``shortlist`` of them lower the *excess* (bytes
    over the limit, summed over the rows of the schedule); of these the one is made that lowers it the most for each
    second that it adds. ``actions`` are those it may choose from.
    """

    name: str = "greedy"
    actions: tuple[Action, ...] = (Action.SWAP, Action.RECOMPUTE)
    shortlist: int = 12

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
        prices, deadline_s = prices_of(workload, machine, costs), began_s + time_limit_s
        search = _Search(workload, prices, memory_bytes, self.actions, deadline_s)
        complete = search.run(self.shortlist)
        plan = plan_for_policy(workload, machine, search.policy, memory_bytes)
        return propose(
            self.name, plan, machine, evaluate, memory_bytes=memory_bytes, began_s=began_s, complete=complete
        )


@dataclass(frozen=True, slots=True)
class _Trial:
    """An open decision with the excess that it would leave, the seconds of the step then, and its gain."""

    tensor: int
    action: Action
    excess: int
    seconds: float
    gain: float


class _Search:
    """The policy so far, what it adds to the step, and how far it is from the limit."""

    def __init__(
        self,
        workload: Workload,
        prices: Prices,
        memory_bytes: int,
        actions: tuple[Action, ...],
        deadline_s: float,
    ) -> None:
        self.workload = workload
        self.prices = prices
        self.memory_bytes = memory_bytes
        self.actions = actions
        self.deadline_s = deadline_s
        self.policy: dict[int, Action] = {}

    def run(self, shortlist: int) -> bool:
        """Decide until the step fits or nothing helps. False when time ran out first."""
        excess, seconds = self._score(self.policy)
        while excess:
            trials = list(islice(self._trials(excess, seconds), shortlist))
            if self._late():
                return False
            if not trials:
                return True
            best = max(trials, key=lambda trial: trial.gain)
            excess, seconds, self.policy[best.tensor] = best.excess, best.seconds, best.action
        self._take_back()
        return True

    def _trials(self, excess: int, seconds: float) -> Iterator[_Trial]:
        """Of the open decisions those that lower the excess, until time runs out."""
        for tensor, action in self._open_decisions():
            if self._late():
                return
            left, longer = self._score({**self.policy, tensor: action})
            if left < excess:
                gain = (excess - left) / max(longer - seconds, NO_TIME_S)
                yield _Trial(tensor, action, left, longer, gain)

    def _late(self) -> bool:
        return time.monotonic() > self.deadline_s

    def _open_decisions(self) -> list[Decision]:
        """Decisions not yet made, the cheapest bytes first."""
        decisions = [
            (tensor, action)
            for tensor in candidates(self.workload)
            for action in self.actions
            if tensor not in self.policy and (action is Action.SWAP or can_recompute(self.workload, tensor))
        ]
        return sorted(decisions, key=lambda d: (self._price(*d) / self.workload.tensors[d[0]].size_bytes, d))

    def _price(self, tensor: int, action: Action) -> float:
        if action is Action.SWAP:
            return self.prices[TaskKind.SWAP_OUT, tensor] + self.prices[TaskKind.SWAP_IN, tensor]
        return self.prices[TaskKind.RECOMPUTE, self.workload.producer[tensor]]

    def _score(self, policy: Policy) -> tuple[int, float]:
        """Excess in byte-rows, and the seconds of all rows one after another."""
        rows = schedule(self.workload, policy, self.memory_bytes)
        levels = np.array(resident_bytes(self.workload, rows))
        excess = int(np.maximum(levels - self.memory_bytes, 0).sum())
        return excess, sum(self._seconds(row) for row in rows)

    def _seconds(self, row: Row) -> float:
        return 0.0 if row.kind is TaskKind.RELEASE else self.prices[row.kind, row.subject]

    def _take_back(self) -> None:
        """Keep again what the others have made room for, the dearest first."""
        for tensor in sorted(self.policy, key=lambda t: self._price(t, self.policy[t]), reverse=True):
            without = {t: action for t, action in self.policy.items() if t != tensor}
            if self._score(without)[0] == 0:
                self.policy = without
