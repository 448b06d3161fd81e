"""SwapAdvisor, as far as plans of exact bytes can follow it.

Huang, Jin and Li, "SwapAdvisor", ASPLOS 2020. The paper's: a genetic algorithm over the order of the ops and the memory
allocation; Belady's choice of what leaves, out after its last use and in as early as there is room; the time of the
simulated step as fitness, survival by softmax, children by crossing and list scheduling with chance.

Ours, which is why it is "SwapAdvisor-like" and no more: no pools are modelled. A plan counts bytes, so that any tensor
may take any room; of the allocation there remains how many saved activations of each size may be on the device at once.
Only these move, once each, neither weights nor gradients; so a step ends as it began, without a second pass. A copy out
is queued at the last use and may begin before it if its lane is free. The best plan of a generation always survives.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from stepsim.machines import Machine
from stepsim.memory import memory_profile
from stepsim.plan import Costs, Plan
from stepsim.strategies.memory.lowering import computing_device, plan_for_rows
from stepsim.strategies.memory.prices import prices_of
from stepsim.strategies.memory.propose import begin, propose
from stepsim.strategies.memory.rows import Row, settle
from stepsim.strategies.memory.swapadvisor.belady import Leaving, leaving
from stepsim.strategies.memory.swapadvisor.genes import Genes, cross, mutate, needs
from stepsim.strategies.memory.swapadvisor.uses import Problem, Uses
from stepsim.strategies.memory.swapadvisor.walk import Walked, rows_of, walk
from stepsim.strategies.proposal import Evaluate, Proposal
from stepsim.workloads import Workload

Score = tuple[int, float]
"""Bytes over the limit, and seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SwapAdvisor:
    """Genes that evolve, timed by a walk through the step; ``finalists`` of them in the simulator.

    ``chance`` is the paper's 10 %, of a gene to change. ``population`` is smaller than its 144, which had 72 processors
    for half an hour. ``threshold_ops`` is in its place of the paper's threshold, whose value is not known here. It ends
    after ``generations``, after ``patience`` of them without a gain, or where nothing could be gained.
    """

    name: str = "swapadvisor"
    population: int = 48
    generations: int = 40
    patience: int = 8
    chance: float = 0.1
    threshold_ops: int = 2
    finalists: int = 4
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
        search = _Search(self, Problem.of(workload, prices_of(workload, machine, costs)), memory_bytes)
        complete = search.run(began_s + time_limit_s)
        plans = [plan_for_rows(workload, machine, rows) for rows in search.finalists()]
        best = min(plans, key=lambda plan: _verdict(plan, machine, evaluate, memory_bytes))
        return propose(
            self.name, best, machine, evaluate, memory_bytes=memory_bytes, began_s=began_s, complete=complete
        )


def _verdict(plan: Plan, machine: Machine, evaluate: Evaluate, memory_bytes: int) -> tuple[int, float]:
    excess_bytes = max(0, memory_profile(plan).peak_bytes(computing_device(machine)) - memory_bytes)
    return excess_bytes, evaluate(plan).makespan_s


class _Search:
    """What was timed so far: bytes over the limit count first, then seconds."""

    def __init__(self, options: SwapAdvisor, problem: Problem, memory_bytes: int) -> None:
        self.options, self.problem, self.memory_bytes = options, problem, memory_bytes
        self.needed = needs(problem.workload)
        self.generator = np.random.default_rng(options.seed)
        self.scores: dict[Genes, Score] = {}

    def run(self, deadline_s: float) -> bool:
        """Whether it ended by itself."""
        self._time([self._as_captured(self.problem.most)], deadline_s)
        population, idle = self._first(), 0
        for generation in range(self.options.generations):
            best = self.best_score
            if best <= (0, self.problem.least_s) or idle >= self.options.patience:
                return True
            born = self._children(population) if generation else population
            if not self._time(born, deadline_s):
                return False
            idle = 0 if self.best_score < best else idle + 1
            population = self._survivors([*population, *born])
        return True

    @property
    def best_score(self) -> Score:
        return min(self.scores.values())

    def finalists(self) -> list[list[Row]]:
        """Settled rows of the best, the best first; of genes that come to the same only the first."""
        best = {score: genes for genes, score in reversed(self.scores.items())}
        return [self._rows(best[score]) for score in sorted(best)[: self.options.finalists]]

    def _first(self) -> list[Genes]:
        """The order of the workload with everything allowed to stay, and with nothing; then any orders and counts."""
        most, chance = self.problem.most, self.options.chance
        found = [self._as_captured(most), self._as_captured((0,) * len(most))]
        for _ in range(self.options.population - len(found)):
            counts = tuple(self.generator.integers(np.add(most, 1)).tolist())
            found.append(mutate(self._as_captured(counts), self.needed, most, chance, self.generator))
        return found

    def _as_captured(self, counts: tuple[int, ...]) -> Genes:
        return Genes(tuple(range(len(self.needed))), counts)

    def _children(self, parents: Sequence[Genes]) -> list[Genes]:
        """As many as their parents, each of two of them."""
        found = []
        for _ in parents:
            first, second = self.generator.choice(len(parents), 2, replace=len(parents) < 2).tolist()
            child = cross(parents[first], parents[second], self.generator)
            found.append(mutate(child, self.needed, self.problem.most, self.options.chance, self.generator))
        return found

    def _survivors(self, genes: Sequence[Genes]) -> list[Genes]:
        """The best, and others with the chances of a softmax of how much slower they are."""
        best, *others = sorted(dict.fromkeys(genes), key=self.scores.__getitem__)
        num_others = min(len(others), self.options.population - 1)
        if not num_others:
            return [best]
        chances = np.exp([-_slower(self.scores[each], self.scores[best]) for each in others])
        chosen = self.generator.choice(len(others), num_others, replace=False, p=chances / chances.sum())
        return [best, *(others[number] for number in sorted(chosen.tolist()))]

    def _time(self, genes: Sequence[Genes], deadline_s: float) -> bool:
        """Whether there was time for all of them; there is for the first."""
        for each in genes:
            if self.scores and time.monotonic() > deadline_s:
                return False
            if each not in self.scores:
                walked = self._walked(each)[-1]
                self.scores[each] = max(0, walked.peak_bytes - self.memory_bytes), walked.seconds
        return True

    def _walked(self, genes: Genes) -> tuple[Uses, Leaving, Walked]:
        uses = Uses.of(self.problem, genes.order)
        gone = leaving(self.problem, uses, genes.counts, self.memory_bytes, self.options.threshold_ops)
        return uses, gone, walk(self.problem, genes.order, uses, gone, self.memory_bytes)

    def _rows(self, genes: Genes) -> list[Row]:
        uses, gone, walked = self._walked(genes)
        rows = rows_of(self.problem, genes.order, uses, gone, walked)
        return list(settle(self.problem.workload, rows, self.memory_bytes))


def _slower(score: Score, best: Score) -> float:
    """By which share of the best; one further over the limit counts as once more slower. Nobody is without a chance."""
    return min(score[1] / best[1] - 1 if best[1] else 0.0, 30.0) + (score[0] > best[0])
