"""From a workload and its prices to the arrays of a `HomeProblem`."""

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from stepsim.plan import TaskKind
from stepsim.strategies.memory.home.problem import HomeProblem, Ints
from stepsim.strategies.memory.prices import Prices
from stepsim.strategies.memory.schedule import can_recompute, candidates, schedule
from stepsim.tables import Ragged
from stepsim.workloads import Phase, Workload

FEATURE_MAP_SHARE = 1e-4
"""A saved tensor that is less than this share of all is kept: batch statistics are no feature maps. Our choice."""

MOST_TICKS = 2**59
"""Of the longest step that is possible, so that a few of them can be added in 64 bits."""


def home_problem(workload: Workload, prices: Prices) -> HomeProblem:
    """``workload`` at ``prices``, which have each op, and each way of each saved activation."""
    return _Builder(workload, prices).build()


def feature_maps(workload: Workload) -> dict[int, list[int]]:
    """Forward op to the tensors that are its feature maps; ops without any are left out."""
    saved = candidates(workload)
    least_bytes = FEATURE_MAP_SHARE * sum(workload.tensors[tensor].size_bytes for tensor in saved)
    found: dict[int, list[int]] = {}
    for tensor in saved:
        if workload.tensors[tensor].size_bytes >= least_bytes and _rests(workload, tensor):
            found.setdefault(workload.producer[tensor], []).append(tensor)
    return dict(sorted(found.items()))


def _rests(workload: Workload, tensor: int) -> bool:
    """Whether the forward pass is done with it before the backward pass reads it."""
    later = [op for op in workload.consumers[tensor] if workload.ops[op].phase is not Phase.FORWARD]
    return bool(later) and _last_forward(workload, tensor) < later[0]


def _last_forward(workload: Workload, tensor: int) -> int:
    users = (workload.producer[tensor], *workload.consumers[tensor])
    return max(op for op in users if workload.ops[op].phase is Phase.FORWARD)


def _last_written(workload: Workload, tensor: int) -> int:
    """By the forward pass."""
    forward = (op for op in workload.consumers[tensor] if workload.ops[op].phase is Phase.FORWARD)
    return max([workload.producer[tensor], *(op for op in forward if tensor in workload.ops[op].mutates)])


class _Builder:
    """Numbers the maps, and lists what each stage and each layer does with them."""

    def __init__(self, workload: Workload, prices: Prices) -> None:
        self.workload, self.prices = workload, prices
        rows = schedule(workload, {}, 0)[:-1]  # a row for each op; the last one gives back the results
        self.released = [[tensor for tensor, _ in row.releases] for row in rows]
        self.dies_at = {tensor: stage for stage, tensors in enumerate(self.released) for tensor in tensors}
        self.layers = feature_maps(workload)
        self.layer = {tensor: layer for layer, tensors in enumerate(self.layers.values()) for tensor in tensors}
        self.leaves_at = {tensor: _last_forward(workload, tensor) for tensor in self.layer}
        self.maps = [*self.layer, *self._read_again()]
        self.number = {tensor: index for index, tensor in enumerate(self.maps)}
        self.tick_s = _tick_s(prices)
        self.ops_ticks = _ticks([prices[TaskKind.COMPUTE, op] for op in range(len(workload.ops))], self.tick_s)

    def _read_again(self) -> list[int]:
        """What a recomputation may read that is neither there all the time nor a layer's."""
        ops = (self.workload.ops[op] for op, tensors in self.layers.items() if can_recompute(self.workload, tensors[0]))
        read = dict.fromkeys(tensor for op in ops for tensor in op.inputs)
        return [tensor for tensor in read if tensor in self.dies_at and tensor not in self.layer]

    def build(self) -> HomeProblem:
        size_bytes = [tensor.size_bytes for tensor in self.workload.tensors]
        return HomeProblem(
            base_bytes=sum(size for tensor, size in enumerate(size_bytes) if tensor not in self.workload.producer),
            tick_s=self.tick_s,
            **self._of_stages(),
            **self._of_maps(),
            **self._of_layers(),
        )

    def _of_stages(self) -> dict[str, Any]:
        ops = self.workload.ops
        reads = [[t for t in op.inputs if t in self.layer] for op in ops]
        dies = [[t for t in tensors if t in self.number] for tensors in self.released]
        leaves: list[list[int]] = [[] for _ in ops]
        for tensor, stage in sorted(self.leaves_at.items()):
            leaves[stage].append(tensor)
        num_alone = 1 + max((self.dies_at[tensor] for tensor in self.maps), default=-1)
        num_stages = num_alone + (num_alone < len(ops))
        allocates, frees = self._bytes_by_stage(num_alone)
        ticks = np.append(self.ops_ticks[:num_alone], self.ops_ticks[num_alone:].sum())[:num_stages]
        turn = next((stage for stage, op in enumerate(ops) if op.phase is not Phase.FORWARD), num_stages)
        return {
            "turn": min(turn, num_stages),
            "stage_ticks": ticks,
            "later_ticks": ticks.sum() - np.cumsum(ticks),
            "allocates": allocates,
            "frees": frees,
            "reads": self._lists(reads, num_stages),
            "leaves": self._lists(leaves, num_stages),
            "dies": self._lists(dies, num_stages),
        }

    def _of_maps(self) -> dict[str, Any]:
        maps, tensors, never = self.maps, self.workload.tensors, len(self.workload.ops)
        out_s, in_s = (
            [self.prices.get((way, tensor), 0.0) for tensor in maps] for way in (TaskKind.SWAP_OUT, TaskKind.SWAP_IN)
        )
        return {
            "tensor": _ints(maps),
            "size_bytes": _ints(tensors[tensor].size_bytes for tensor in maps),
            "out_ticks": _ticks(out_s, self.tick_s),
            "in_ticks": _ticks(in_s, self.tick_s),
            "layer": _ints(self.layer.get(tensor, len(self.layers)) for tensor in maps),
            "made_at": _ints(_last_written(self.workload, tensor) for tensor in maps),
            "leaves_at": _ints(self.leaves_at.get(tensor, never) for tensor in maps),
            "dies_at": _ints(self.dies_at[tensor] for tensor in maps),
        }

    def _of_layers(self) -> dict[str, Any]:
        ops, tensors, made = self.workload.ops, self.workload.tensors, list(self.layers.values())
        needs = [[t for t in ops[op].inputs if t in self.number] for op in self.layers]
        effects = (
            min([self.leaves_at[t] for t in out] + [self.dies_at[t] for t in read])
            for out, read in zip(made, needs, strict=True)
        )
        return {
            "again_ticks": self.ops_ticks[list(self.layers)],
            "makes_bytes": _ints(sum(tensors[t].size_bytes for t in ops[op].outputs) for op in self.layers),
            "num_actions": _ints(2 + can_recompute(self.workload, out[0]) for out in made),
            "first_effect": _ints(effects),
            "members": self._lists(made, len(made)),
            "needs": self._lists(needs, len(made)),
        }

    def _lists(self, tensors: Sequence[Sequence[int]], size: int) -> Ragged:
        """Maps by number; beyond the last of ``tensors`` there are empty lists."""
        shown = [[self.number[t] for t in dict.fromkeys(each)] for each in tensors[:size]]
        return Ragged.from_lists(shown + [[]] * (size - len(shown)))

    def _bytes_by_stage(self, num_alone: int) -> tuple[Ints, Ints]:
        """Bytes allocated before, and given back after, each stage; those of maps are given back elsewhere."""
        size = [tensor.size_bytes for tensor in self.workload.tensors]
        allocates = _ints(sum(size[t] for t in op.outputs) for op in self.workload.ops)
        frees = _ints(sum(size[t] for t in tensors if t not in self.number) for tensors in self.released)
        if num_alone < len(allocates):
            level = np.cumsum(allocates[num_alone:] - frees[num_alone:])
            most = int((level + frees[num_alone:]).max())
            allocates = np.append(allocates[:num_alone], most)
            frees = np.append(frees[:num_alone], most - level[-1])
        return allocates, frees


def _tick_s(prices: Prices) -> float:
    """Such that a step in which nothing overlaps, with everything done twice, is shorter than `MOST_TICKS`."""
    longest_s = 2 * sum(prices.values())
    return 2.0 ** math.ceil(math.log2(longest_s)) / MOST_TICKS if longest_s else 1.0


def _ints(values: Iterable[int]) -> Ints:
    return np.fromiter(values, np.int64)


def _ticks(seconds: Sequence[float], tick_s: float) -> Ints:
    return np.rint(np.array(seconds, np.float64) / tick_s).astype(np.int64)
