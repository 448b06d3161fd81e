"""HOME as a strategy: as the paper has it, and extended."""

from dataclasses import dataclass, field, replace

import numpy as np

from stepsim.machines import Machine
from stepsim.plan import Costs
from stepsim.strategies.memory.home.building import home_problem
from stepsim.strategies.memory.home.options import Rules, Swarm
from stepsim.strategies.memory.home.problem import SWAP, HomeProblem
from stepsim.strategies.memory.lowering import plan_for_policy
from stepsim.strategies.memory.prices import prices_of
from stepsim.strategies.memory.propose import begin, propose
from stepsim.strategies.memory.schedule import Policy
from stepsim.strategies.proposal import Evaluate, Proposal
from stepsim.workloads import Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class Home:
    """The paper's search, to the letter: see `Swarm` and `Rules`, also for what the paper leaves open.

    Where keeping everything fits, that is the plan: no policy takes less. Where no particle ever fits, everything is
    swapped out, which may fit or not. Where that does not, the search is done again with each of ``fewer_stages`` in
    turn instead of ``rules.prefetch_stages``, until something fits; the paper has no such numbers.
    """

    name: str = "home"
    swarm: Swarm = field(default_factory=Swarm)
    rules: Rules = field(default_factory=Rules)
    seed: int = 0
    fewer_stages: tuple[int, ...] = ()

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
        problem = home_problem(workload, prices_of(workload, machine, costs))
        for stages in (self.rules.prefetch_stages, *self.fewer_stages):
            rules = replace(self.rules, prefetch_stages=stages)
            policy, complete = self._decide(problem, rules, memory_bytes, began_s + time_limit_s)
            plan = plan_for_policy(workload, machine, policy, memory_bytes, stages)
            found = propose(
                self.name, plan, machine, evaluate, memory_bytes=memory_bytes, began_s=began_s, complete=complete
            )
            if found.feasible:
                break
        return found

    def _decide(self, problem: HomeProblem, rules: Rules, memory_bytes: int, deadline_s: float) -> tuple[Policy, bool]:
        """The policy, and whether the search ended by itself."""
        from stepsim.strategies.memory.home.evaluator import Evaluator
        from stepsim.strategies.memory.home.swarm import search

        evaluator = Evaluator(problem, memory_bytes, rules)
        kept = np.zeros(problem.num_layers, np.int8)
        if not problem.num_layers or evaluator.evaluate(kept).seconds is not None:
            return {}, True
        found = search(evaluator, self.swarm, np.random.default_rng(self.seed), deadline_s)
        actions = np.full_like(kept, SWAP) if found.actions is None else found.actions
        return problem.policy(actions), found.complete


@dataclass(frozen=True, slots=True, kw_only=True)
class HomeExtended(Home):
    """Not the paper's: what comes back is asked for eight ops ahead, and fewer where nothing fits with eight; a policy
    over the limit is not unusable but penalised, and one action in twenty is tried at random.
    """

    name: str = "home-extended"
    swarm: Swarm = field(default_factory=lambda: Swarm(num_particles=100, num_iterations=100, random_share=0.05))
    rules: Rules = field(default_factory=lambda: Rules(prefetch_stages=8, penalty=True))
    fewer_stages: tuple[int, ...] = (4, 2, 1)
