"""What it takes to make a tensor again, when some of what it was made from is gone as well.

x0 -> x1 -> x2 -> x3      x1 and x2 are gone: to make x2 takes two ops, from the source x0; and once x1 is gone, who
                          made x2 from x1 has to make x1 first
"""

from collections import Counter
from dataclasses import dataclass

from stepsim.plan import TaskKind
from stepsim.strategies.memory.prices import Prices
from stepsim.strategies.memory.schedule import forward_only
from stepsim.workloads import Workload


@dataclass(frozen=True, slots=True)
class Recipe:
    """Seconds of the ops that make a tensor again, and the tensors that they start from."""

    seconds: float
    sources: frozenset[int]


class Lineage:
    """Knows the targets chosen so far, which are recomputed, and what they are made from.

    What else has a place in memory is taken to be there: other saved tensors, and all that comes from outside.
    """

    def __init__(self, workload: Workload, prices: Prices) -> None:
        self.workload, self.prices = workload, prices
        self._gone = set(forward_only(workload))
        self._targets: set[int] = set()
        self._recipes: dict[int, Recipe] = {}
        self._uses: Counter[int] = Counter()

    def seconds(self, tensor: int) -> float:
        """What recomputing ``tensor`` adds: once for itself, and once for each target that has it as a source.

        The repeated cost of a candidate that targets are made from: Capuchin, section 4.4.
        """
        return (1 + self._uses[tensor]) * self._recipe(tensor).seconds

    def choose(self, tensor: int) -> None:
        """Make it a target: who had it as a source starts from its sources now."""
        self._targets.add(tensor)
        self._gone.add(tensor)
        self._recipes = {each: recipe for each, recipe in self._recipes.items() if tensor not in recipe.sources}
        self._uses = Counter(source for target in self._targets for source in self._recipe(target).sources)

    def _recipe(self, tensor: int) -> Recipe:
        if tensor not in self._recipes:
            self._recipes[tensor] = self._written(tensor)
        return self._recipes[tensor]

    def _written(self, tensor: int) -> Recipe:
        ops: dict[int, None] = {}
        sources: set[int] = set()
        missing = [tensor]
        while missing:
            op = self.workload.producer[missing.pop()]
            if op not in ops:
                ops[op] = None
                inputs = self.workload.ops[op].inputs
                missing += [source for source in inputs if source in self._gone]
                sources.update(source for source in inputs if source not in self._gone)
        return Recipe(sum(self.prices[TaskKind.RECOMPUTE, op] for op in ops), frozenset(sources))
