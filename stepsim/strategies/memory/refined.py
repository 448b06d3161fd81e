"""Swap and recompute decided together, against the peak and the time of the whole plan in the full simulator.

Not from a paper. The plans of other strategies come first, and the best of them is never given up for a worse one.
Their policies, and random ones, are the particles of a search that tries every action at every layer, with HOME's
compiled evaluator, for several prefetch windows. The best of what that finds is run in the full simulator: copy
engines, links, launch costs. Then, while time is left, decisions are changed one by one, and kept where the simulated
step is shorter.
"""

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from stepsim.errors import WorkloadError
from stepsim.machines import Machine
from stepsim.memory import Accounting, memory_profile
from stepsim.plan import Costs, Plan, TaskKind
from stepsim.strategies.memory.capuchin import Capuchin
from stepsim.strategies.memory.greedy import Greedy
from stepsim.strategies.memory.home.building import home_problem
from stepsim.strategies.memory.home.options import Rules, Swarm
from stepsim.strategies.memory.home.problem import ACTIONS, KEEP, Actions, HomeProblem
from stepsim.strategies.memory.home.strategy import HomeExtended
from stepsim.strategies.memory.lower_bound import lower_bound_s
from stepsim.strategies.memory.lowering import computing_device, plan_for_policy
from stepsim.strategies.memory.prices import Prices, prices_of
from stepsim.strategies.memory.propose import begin, lacking
from stepsim.strategies.memory.remat.chen import Chen
from stepsim.strategies.memory.schedule import Action
from stepsim.strategies.memory.superneurons import SuperNeurons
from stepsim.strategies.memory.swapadvisor.strategy import SwapAdvisor
from stepsim.strategies.memory.vdnn import VDnn
from stepsim.strategies.proposal import Evaluate, Proposal, Strategy
from stepsim.workloads import Workload

if TYPE_CHECKING:
    from stepsim.strategies.memory.home.swarm import Found

WINDOWS = (1, 2, 4, 8, 16)
"""Ops between asking for a swapped tensor and its reader, that are tried."""

SHARE_OF_RIVALS = 0.5
"""Of the time limit, at most."""

RIVALS: tuple[Strategy, ...] = (
    Greedy(),
    Greedy(name="greedy-recompute", actions=(Action.RECOMPUTE,)),
    Chen(),
    SuperNeurons(),
    VDnn(name="vdnn-conv", inputs="conv"),
    VDnn(),
    HomeExtended(),
    Capuchin(slack="best"),
    SwapAdvisor(),
)
"""Each family at its best, the quick ones first, which leave their time to the others. Checkmate is not among them: its
programs take minutes."""

TRIALS = 16
"""Changed decisions that are simulated in each round: those that the evaluator likes best."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refined:
    """The best plan of ``rivals``, refined; see above.

    With ``accounting`` "caching" a plan fits where what PyTorch's caching allocator reserves for it does. It never
    proposes a plan that takes longer than that of one of the ``rivals`` that it asked and that fits; once their half of
    the time is up and something fits no further one is asked. Complete: rivals and swarms ended by themselves, and if a
    swarm found the best plan no single decision is left that helps it.
    """

    name: str = "refined"
    rivals: tuple[Strategy, ...] = RIVALS
    swarm: Swarm = field(
        default_factory=lambda: Swarm(num_particles=40, num_iterations=40, random_share=1.0, leader="ever")
    )
    accounting: Accounting = "exact"
    seed: int = 0

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
        judge = _Judge(machine, evaluate, memory_bytes, self.accounting)
        judge.hear(plan_for_policy(workload, machine, {}, memory_bytes))
        complete, share_ends_s = True, began_s + SHARE_OF_RIVALS * time_limit_s
        for number, rival in enumerate(self.rivals):
            left_s = max(0.0, share_ends_s - time.monotonic())
            if judge.verdict[0] == 0 and not left_s:
                complete = False
                break
            proposal = rival.plan(
                workload,
                machine,
                costs,
                memory_bytes=memory_bytes,
                evaluate=evaluate,
                time_limit_s=left_s / (len(self.rivals) - number),
            )
            judge.hear(proposal.plan)
            complete = complete and proposal.complete
        prices = prices_of(workload, machine, costs)
        is_late = time.monotonic() > began_s + time_limit_s
        bound_s = None if is_late else _bound_s(workload, prices, memory_bytes)
        search = _Search(workload, machine, home_problem(workload, prices), memory_bytes, judge)
        ended = search.run(self.swarm, np.random.default_rng(self.seed), began_s + time_limit_s)
        return Proposal(
            strategy=self.name,
            plan=judge.best,
            feasible=judge.verdict[0] == 0,
            complete=complete and ended,
            predicted_s=judge.verdict[1],
            predicted_peak_bytes=memory_profile(judge.best).peak_bytes(computing_device(machine)),
            search_seconds=time.monotonic() - began_s,
            lower_bound_s=bound_s,
        )


def _bound_s(workload: Workload, prices: Prices, memory_bytes: int) -> float | None:
    try:
        return lower_bound_s(workload, prices, memory_bytes)
    except WorkloadError:
        return None


class _Judge:
    """Knows the best plan so far: bytes over the limit count first, then seconds, then bytes held."""

    def __init__(self, machine: Machine, evaluate: Evaluate, memory_bytes: int, accounting: Accounting) -> None:
        self.machine, self.device, self.evaluate = machine, computing_device(machine), evaluate
        self.memory_bytes, self.accounting = memory_bytes, accounting
        self.verdict: tuple[int, float, int] = (memory_bytes, math.inf, 0)
        self.plans: list[Plan] = []

    @property
    def best(self) -> Plan:
        return self.plans[-1]

    def hear(self, plan: Plan) -> bool:
        """Whether ``plan`` is better than all before."""
        held = memory_profile(plan, self.accounting)
        held_bytes = held.peak_reserved_bytes(self.device)
        peaks = held.peaks() | {self.device: held_bytes}
        excess_bytes = sum(needs - has for needs, has in lacking(peaks, self.machine, self.memory_bytes).values())
        if self.plans and excess_bytes > self.verdict[0]:
            return False
        verdict = (excess_bytes, self.evaluate(plan).makespan_s, held_bytes)
        if self.plans and verdict >= self.verdict:
            return False
        self.verdict = verdict
        self.plans.append(plan)
        return True


class _Search:
    """Policies as actions of layers, with a prefetch window each."""

    def __init__(
        self, workload: Workload, machine: Machine, problem: HomeProblem, memory_bytes: int, judge: _Judge
    ) -> None:
        self.workload, self.machine, self.problem = workload, machine, problem
        self.memory_bytes, self.judge = memory_bytes, judge

    def run(self, swarm: Swarm, rng: np.random.Generator, deadline_s: float) -> bool:
        """Whether it ended by itself."""
        if not self.problem.num_layers:
            return True
        seeds = np.array([self._actions_of(plan) for plan in self.judge.plans], np.int8)
        best: tuple[Actions, int] | None = None
        complete = True
        for number, window in enumerate(WINDOWS):
            now_s = time.monotonic()
            if now_s > deadline_s:
                return False
            share_s = (deadline_s - now_s) / (len(WINDOWS) - number + 1)
            found = self._swarm(swarm, window, rng, now_s + share_s, seeds)
            complete = complete and found.complete
            if found.actions is not None and self.judge.hear(self._plan(found.actions, window)):
                best = found.actions, window
        polished = best is None or self._polish(*best, deadline_s)
        return complete and polished

    def _swarm(
        self, swarm: Swarm, window: int, rng: np.random.Generator, deadline_s: float, seeds: NDArray[np.int8]
    ) -> "Found":
        from stepsim.strategies.memory.home.evaluator import Evaluator
        from stepsim.strategies.memory.home.swarm import search

        evaluator = Evaluator(self.problem, self.memory_bytes, Rules(prefetch_stages=window, penalty=True))
        return search(evaluator, swarm, rng, deadline_s, seeds)

    def _polish(self, actions: Actions, window: int, deadline_s: float) -> bool:
        """Change single decisions while one helps in the full simulator."""
        while time.monotonic() < deadline_s:
            for trial in self._likely(actions, window):
                if time.monotonic() > deadline_s:
                    return False
                if self.judge.hear(self._plan(trial, window)):
                    actions = trial
                    break
            else:
                return True
        return False

    def _likely(self, actions: Actions, window: int) -> Sequence[Actions]:
        """Of all policies that differ in one layer those that the evaluator likes best."""
        from stepsim.strategies.memory.home.evaluator import Evaluator

        evaluator = Evaluator(self.problem, self.memory_bytes, Rules(prefetch_stages=window, penalty=True))
        return sorted(self._changed(actions), key=evaluator.ticks)[:TRIALS]

    def _changed(self, actions: Actions) -> Iterator[Actions]:
        for layer, now in enumerate(actions.tolist()):
            for action in range(int(self.problem.num_actions[layer])):
                if action != now:
                    changed = actions.copy()
                    changed[layer] = action
                    yield changed

    def _plan(self, actions: Actions, window: int) -> Plan:
        return plan_for_policy(self.workload, self.machine, self.problem.policy(actions), self.memory_bytes, window)

    def _actions_of(self, plan: Plan) -> Actions:
        """What ``plan`` does with each layer: what goes out is swapped; what a recomputation makes is recomputed."""
        tasks, tensor = plan.tasks, plan.buffers.tensor.tolist()
        found = np.full(self.problem.num_layers, KEEP, np.int8)
        layer_of = dict(zip(self.problem.tensor.tolist(), self.problem.layer.tolist(), strict=True))
        for kind, action, lists in (
            (TaskKind.RECOMPUTE, Action.RECOMPUTE, tasks.writes),
            (TaskKind.SWAP_OUT, Action.SWAP, tasks.reads),
        ):
            for row in np.flatnonzero(tasks.kind == kind).tolist():
                for buffer in lists[row]:
                    layer = layer_of.get(tensor[buffer], self.problem.num_layers)
                    if layer < self.problem.num_layers and ACTIONS.index(action) < self.problem.num_actions[layer]:
                        found[layer] = ACTIONS.index(action)
        return found
