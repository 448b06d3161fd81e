"""Strategies: (Workload, Machine, Costs) in, a Proposal out. One strategy, one file."""

from stepsim.strategies.least_memory import LeastMemory, Search, least_memory
from stepsim.strategies.memory.capuchin import Capuchin
from stepsim.strategies.memory.greedy import Greedy
from stepsim.strategies.memory.home.strategy import Home, HomeExtended
from stepsim.strategies.memory.keep_all import KeepAll
from stepsim.strategies.memory.refined import Refined
from stepsim.strategies.memory.remat.chen import Chen
from stepsim.strategies.memory.remat.strategy import Checkmate
from stepsim.strategies.memory.schedule import Action
from stepsim.strategies.memory.superneurons import SuperNeurons
from stepsim.strategies.memory.swapadvisor.strategy import SwapAdvisor
from stepsim.strategies.memory.vdnn import VDnn, VDnnDynamic
from stepsim.strategies.proposal import Evaluate, Proposal, Strategy

STRATEGIES: dict[str, Strategy] = {
    "keep-all": KeepAll(),
    "greedy": Greedy(),
    "greedy-swap": Greedy(name="greedy-swap", actions=(Action.SWAP,)),
    "greedy-recompute": Greedy(name="greedy-recompute", actions=(Action.RECOMPUTE,)),
    "home": Home(),
    "home-extended": HomeExtended(),
    "vdnn-all": VDnn(),
    "vdnn-conv": VDnn(name="vdnn-conv", inputs="conv"),
    "vdnn-dynamic": VDnnDynamic(),
    "vdnn-every": VDnn(name="vdnn-every", inputs="every"),
    "vdnn-single-conv": VDnn(name="vdnn-single-conv", inputs="single-conv"),
    "superneurons": SuperNeurons(),
    "superneurons-no-cache": SuperNeurons(name="superneurons-no-cache", offload="all"),
    "superneurons-in-time": SuperNeurons(name="superneurons-in-time", offload="in-time"),
    "superneurons-no-reuse": SuperNeurons(name="superneurons-no-reuse", segments="memory"),
    "capuchin": Capuchin(),
    "capuchin-5": Capuchin(name="capuchin-5", slack=0.05),
    "capuchin-best": Capuchin(name="capuchin-best", slack="best"),
    "chen-sqrt": Chen(name="chen-sqrt", square_root=True),
    "chen-greedy": Chen(),
    "checkmate": Checkmate(),
    "checkmate-rounded": Checkmate(name="checkmate-rounded", rounded=True),
    "swapadvisor": SwapAdvisor(),
    "refined": Refined(),
}
"""What the command line knows by name."""

__all__ = [
    "STRATEGIES",
    "Evaluate",
    "Greedy",
    "Home",
    "HomeExtended",
    "KeepAll",
    "LeastMemory",
    "Proposal",
    "Search",
    "Strategy",
    "least_memory",
]
