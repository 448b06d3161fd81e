"""Strategies: (Workload, Machine, Costs) in, a Proposal out. One strategy, one file."""

from stepsim.strategies.memory.greedy import Greedy
from stepsim.strategies.memory.keep_all import KeepAll
from stepsim.strategies.memory.remat.chen import Chen
from stepsim.strategies.memory.remat.strategy import Checkmate
from stepsim.strategies.memory.schedule import Action
from stepsim.strategies.proposal import Evaluate, Proposal, Strategy

STRATEGIES: dict[str, Strategy] = {
    "keep-all": KeepAll(),
    "greedy": Greedy(),
    "greedy-swap": Greedy(name="greedy-swap", actions=(Action.SWAP,)),
    "greedy-recompute": Greedy(name="greedy-recompute", actions=(Action.RECOMPUTE,)),
    "chen-sqrt": Chen(name="chen-sqrt", square_root=True),
    "chen-greedy": Chen(),
    "checkmate": Checkmate(),
    "checkmate-rounded": Checkmate(name="checkmate-rounded", rounded=True),
}
"""What the command line knows by name."""

__all__ = ["STRATEGIES", "Evaluate", "Greedy", "KeepAll", "Proposal", "Strategy"]
