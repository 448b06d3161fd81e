"""The step as HOME sees it: layers to decide on, and what each stage runs, reads, makes and gives back, as arrays."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stepsim.plan import TaskKind
from stepsim.strategies.memory.prices import Prices
from stepsim.strategies.memory.rows import Row
from stepsim.strategies.memory.schedule import Action, Policy, can_recompute, candidates, schedule
from stepsim.workloads import Phase, Workload

KEEP, SWAP, RECOMPUTE = ACTIONS = range(3)
"""The paper's numbers (section 4)."""

NAMES = (Action.KEEP, Action.SWAP, Action.RECOMPUTE)

FEATURE_MAP_SHARE = 1e-4
"""A saved tensor that is less than this share of all is kept: batch statistics are no feature maps. Our choice."""

TICKS = 2**59
"""The longest step that is possible is at most so many ticks, so that sums of a few still fit into 64 bits."""

STAGE = np.dtype(
    [(name, np.int64) for name in ("ticks", "later_ticks", "allocates", "frees")]
    + [(name, np.int32) for name in ("reads", "dies", "leaves", "phase")]
)
MAP = np.dtype(
    [(name, np.int64) for name in ("size", "out_ticks", "in_ticks")]
    + [(name, np.int32) for name in ("layer", "leaves_at", "dies_at", "tensor")]
)
LAYER = np.dtype(
    [(name, np.int64) for name in ("ticks", "makes")]
    + [(name, np.int32) for name in ("op", "first_effect", "members", "needs", "num_actions", "unused")]
)


@dataclass(frozen=True, eq=False, kw_only=True)
class HomeProblem:
    """One step of a workload, for the evaluator.

    A *layer* is a forward op with feature maps: saved outputs, each at least `FEATURE_MAP_SHARE` of all that is saved,
    that the forward pass is done with before the backward pass first reads them. One action goes for all maps of a
    layer, which a pooling has two of (its indices). A *stage* is an op of the step, forward, backward or update; what
    follows the last that touches a map is one stage.

    Captured graphs are no chains. A branch is a map with several readers: it leaves after the last forward one, and
    is there again from the first backward one to the last. A concatenation is an op with many inputs. All other
    tensors (gradients, outputs that no backward op reads, batch statistics, the loss) come and go with their stages
    as `stepsim.strategies.memory.schedule` has it when everything is kept: ``allocates`` before a stage, ``frees``
    after it. One that a recomputation reads, an output that nobody saved, stays until it has run. Weights, inputs and
    optimizer state are ``base_bytes``.

    Times are whole *ticks* of ``tick_s`` seconds, a power of two, so that sums are exact in any order.

    Attributes
    ----------
    stages
        `STAGE` records, one more than there are stages: ``reads``, ``dies`` and ``leaves`` are where the lists of a
        stage begin, and the next record says where they end. ``later_ticks`` are of all later stages.
    maps
        `MAP` records: first the tensors of layers; then others that a recomputation may read, whose layer is the last
        record of ``layers``, always kept. After stage ``leaves_at`` it goes out or is dropped, unless it is kept; after
        stage ``dies_at`` no stage reads it.
    layers
        `LAYER` records, two more than there are layers. ``ticks`` and ``makes`` (bytes) are of running its op again. An
        action of the layer changes nothing before stage ``first_effect``. ``num_actions`` is 2 without recomputation.
    reads, dies, leaves
        Indices into ``maps``: of what a stage reads (of layers only), of what no later stage reads, and of what leaves
        after it.
    members, needs
        Indices into ``maps``: of what a layer makes, and of what it takes to run its op again.
    turn
        The first stage that is not forward.
    """

    base_bytes: int
    tick_s: float
    stages: NDArray[Any]
    maps: NDArray[Any]
    layers: NDArray[Any]
    reads: NDArray[np.int32]
    dies: NDArray[np.int32]
    leaves: NDArray[np.int32]
    members: NDArray[np.int32]
    needs: NDArray[np.int32]
    turn: int

    @property
    def num_layers(self) -> int:
        return len(self.layers) - 2

    @property
    def num_actions(self) -> NDArray[np.int32]:
        """Actions that each layer may take, the first of `ACTIONS`. Shape (layers,)."""
        return self.layers["num_actions"][: self.num_layers]

    @property
    def compute_s(self) -> float:
        """Seconds of all stages, one after the other."""
        return float(self.stages["ticks"].sum() * self.tick_s)

    def policy(self, actions: NDArray[np.int8]) -> Policy:
        """The policy of ``actions``, one for each layer."""
        taken = self.maps[self.maps["layer"] < self.num_layers]
        return {
            int(each["tensor"]): NAMES[actions[each["layer"]]] for each in taken if actions[each["layer"]] != KEEP
        }


def home_problem(workload: Workload, prices: Prices) -> HomeProblem:
    """``workload`` at ``prices``, which have a row for each op and for each way of each candidate."""
    return _Builder(workload, prices).build()


class _Builder:
    """Numbers layers and maps, and lists what each stage does with them."""

    def __init__(self, workload: Workload, prices: Prices) -> None:
        self.workload, self.prices = workload, prices
        self.rows = schedule(workload, {}, 0)[:-1]  # one row an op; the last would give back the results
        self.layers = self._layers()
        self.tensors = [*chain.from_iterable(self.layers.values()), *self._read_again()]
        self.number = {tensor: number for number, tensor in enumerate(self.tensors)}
        self.dies_at = {tensor: stage for stage, row in enumerate(self.rows) for tensor, _ in row.releases}

    def build(self) -> HomeProblem:
        workload, size = self.workload, self._size
        reads = [[t for t in dict.fromkeys(op.inputs) if self._layer_of(t) < len(self.layers)] for op in workload.ops]
        dies = [[t for t, _ in row.releases if t in self.number] for row in self.rows]
        leaves: list[list[int]] = [[] for _ in workload.ops]
        for tensor in sorted(chain.from_iterable(self.layers.values())):
            leaves[self._leaves_at(tensor)].append(tensor)
        touched = (stage for stage, lists in enumerate(zip(reads, dies, leaves, strict=True)) if any(lists))
        stages = _folded(self._stages(), 1 + max(touched, default=-1))
        tick_s = self._tick_s()
        turn = next((k for k, op in enumerate(workload.ops) if op.phase is not Phase.FORWARD), len(stages))
        members, needs = list(self.layers.values()), [self._needs(op) for op in self.layers]
        tables = self._stage_table(stages, tick_s), self._map_table(tick_s), self._layer_table(tick_s)
        lists = {}
        for table, name, rows in (
            (tables[0], "reads", reads[: len(stages)]),
            (tables[0], "dies", dies[: len(stages)]),
            (tables[0], "leaves", leaves[: len(stages)]),
            (tables[2], "members", members),
            (tables[2], "needs", needs),
        ):
            ends = np.cumsum([0, *map(len, rows)])
            table[name] = np.pad(ends, (0, len(table) - len(ends)), mode="edge")
            lists[name] = np.array([self.number[t] for t in chain.from_iterable(rows)], np.int32)
        outside = sum(size(tensor) for tensor in range(len(workload.tensors)) if tensor not in workload.producer)
        return HomeProblem(
            base_bytes=outside,
            tick_s=tick_s,
            stages=tables[0],
            maps=tables[1],
            layers=tables[2],
            turn=min(turn, len(stages)),
            **lists,
        )
