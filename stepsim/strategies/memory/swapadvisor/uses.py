"""Where in an order tensors are used: bytes there at each place, and the gaps in which a tensor could be away."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from stepsim.plan import TaskKind
from stepsim.strategies.memory.prices import Prices
from stepsim.strategies.memory.schedule import candidates
from stepsim.workloads import Workload

Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Problem:
    """What all orders of a step share. Tensors that may leave are in a class with those of their size, else in none.

    Those are the saved activations, but for what an op writes in place: it would have to go out once more. ``used`` are
    the tensors that ``by`` uses, pairwise; tensors from outside, which are always there, are ``outside_bytes``.
    """

    workload: Workload
    op_s: Sequence[float]
    out_s: Sequence[float]
    in_s: Sequence[float]
    size_bytes: Ints
    size_class: Ints
    most: tuple[int, ...]
    stays: NDArray[np.bool_]
    used: Ints
    by: Ints
    outside_bytes: int

    @property
    def least_s(self) -> float:
        """All ops, one after another: no step takes less."""
        return math.fsum(self.op_s)

    @classmethod
    def of(cls, workload: Workload, prices: Prices) -> Self:
        tensors = range(len(workload.tensors))
        size_bytes = np.array([tensor.size_bytes for tensor in workload.tensors], np.int64)
        mutated = {tensor for op in workload.ops for tensor in op.mutates}
        movable = [tensor for tensor in candidates(workload) if tensor not in mutated]
        _, classes, most = np.unique(size_bytes[movable], return_inverse=True, return_counts=True)
        size_class = np.full(len(tensors), -1)
        size_class[movable] = classes
        results = {workload.loss, *workload.gradients.values()}
        uses = [
            (tensor, index)
            for index, op in enumerate(workload.ops)
            for tensor in dict.fromkeys((*op.inputs, *op.outputs))
            if tensor in workload.producer
        ]
        used, by = np.array(uses, np.int64).reshape(-1, 2).T
        return cls(
            workload=workload,
            op_s=[prices[TaskKind.COMPUTE, op] for op in range(len(workload.ops))],
            out_s=[prices.get((TaskKind.SWAP_OUT, tensor), 0.0) for tensor in tensors],
            in_s=[prices.get((TaskKind.SWAP_IN, tensor), 0.0) for tensor in tensors],
            size_bytes=size_bytes,
            size_class=size_class,
            most=tuple(most.tolist()),
            stays=np.isin(tensors, [*results]),
            used=used,
            by=by,
            outside_bytes=int(sum(size_bytes[tensor] for tensor in tensors if tensor not in workload.producer)),
        )


@dataclass(frozen=True, eq=False)
class Uses:
    """A step in one order. Gaps have an entry each: their tensor, and the places of the uses around them.

    Gaps stand from the farthest next use to the nearest; of those that end at one place the largest comes first.
    ``made_bytes`` and ``dead_bytes`` begin and end at each place; ``level_bytes`` are there while it runs, if nothing
    ever leaves, and ``held`` (shape (classes, places)) counts the tensors of each class then.
    """

    tensor: Ints
    after: Ints
    before: Ints
    made_bytes: Ints
    dead_bytes: Ints
    level_bytes: Ints
    held: Ints

    @classmethod
    def of(cls, problem: Problem, order: Sequence[int]) -> Self:
        num_places = len(order)
        place_of = np.empty(num_places, np.int64)
        place_of[list(order)] = np.arange(num_places)
        place = place_of[problem.by]
        by_tensor = np.lexsort((place, problem.used))
        tensor, place = problem.used[by_tensor], place[by_tensor]
        is_last = np.append(tensor[1:] != tensor[:-1], True)[: len(tensor)]
        is_first = np.roll(is_last, 1)
        movable = problem.size_class[tensor] >= 0
        dies = is_last & ~problem.stays[tensor]
        sizes = problem.size_bytes[tensor]
        made_bytes = np.bincount(place[is_first], sizes[is_first], num_places).astype(np.int64)
        dead_bytes = np.bincount(place[dies], sizes[dies], num_places).astype(np.int64)
        change = np.zeros((len(problem.most), num_places + 1), np.int64)
        np.add.at(change, (problem.size_class[tensor][movable & is_first], place[movable & is_first]), 1)
        np.add.at(change, (problem.size_class[tensor][movable & is_last], place[movable & is_last] + 1), -1)
        gap = np.flatnonzero(movable & ~is_last & (np.roll(place, -1) > place + 1))
        gap = gap[np.lexsort((-sizes[gap], -place[gap + 1]))]
        return cls(
            tensor=tensor[gap],
            after=place[gap],
            before=place[gap + 1],
            made_bytes=made_bytes,
            dead_bytes=dead_bytes,
            level_bytes=problem.outside_bytes + np.cumsum(made_bytes) - (np.cumsum(dead_bytes) - dead_bytes),
            held=np.cumsum(change, axis=1)[:, :-1],
        )
