"""Strategies: (Workload, Machine, Costs) in, a Proposal out. One strategy, one file."""

from stepsim.strategies.memory.greedy import Greedy
from stepsim.strategies.memory.keep_all import KeepAll
from stepsim.strategies.memory.schedule import Action
from stepsim.strategies.proposal import Evaluate, Proposal, Strategy

STRATEGIES: dict[str, Strategy] = {
    "keep-all": KeepAll(),
    "greedy": Greedy(),
    "greedy-swap": Greedy(name="greedy-swap", actions=(Action.SWAP,)),
    "greedy-recompute": Greedy(name="greedy-recompute", actions=(Action.RECOMPUTE,)),
}
"""What the command line knows by name."""

__all__ = ["STRATEGIES", "Evaluate", "Greedy", "KeepAll", "Proposal", "Strategy"]
