"""What evolves: the order of the ops, and how many tensors of each size may be on the device at once.

Crossing and mutating are those of SwapAdvisor (Huang, Jin and Li, ASPLOS 2020), in so far as the paper's chromosome is
kept: the order is; of its memory allocation, which maps sizes to classes and gives each class a number of objects, the
numbers are, with a class for each size. Its spread of the Gaussian is not known here: a quarter of the tensors.
"""

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from stepsim.workloads import Workload

Order = tuple[int, ...]
"""Every op of the step once, each after what it needs."""

Needs = Sequence[frozenset[int]]
"""For each op those that must run before it."""


@dataclass(frozen=True, slots=True)
class Genes:
    """An order of ops, and for each class of sizes how many of its tensors may be there at once."""

    order: Order
    counts: tuple[int, ...]


def needs(workload: Workload) -> Needs:
    """Writers of what an op reads, and of what it overwrites all readers; random ops draw one after another."""
    writer: dict[int, int] = {}
    readers: dict[int, set[int]] = {}
    drew: set[int] = set()
    found = []
    for index, op in enumerate(workload.ops):
        written = (*op.outputs, *op.mutates)
        before = {writer[tensor] for tensor in (*op.inputs, *written) if tensor in writer}
        before.update(*(readers.get(tensor, ()) for tensor in written))
        if op.random:
            before, drew = before | drew, {index}
        found.append(frozenset(before))
        for tensor in op.inputs:
            readers.setdefault(tensor, set()).add(index)
        for tensor in written:
            writer[tensor], readers[tensor] = index, set()
    return found


def cross(first: Genes, second: Genes, generator: np.random.Generator) -> Genes:
    """A head of the first's order, then the other ops as the second has them; counts of both at one point."""
    head = first.order[: int(generator.integers(len(first.order) + 1))]
    taken = set(head)
    point = int(generator.integers(len(first.counts) + 1))
    return Genes(
        (*head, *(op for op in second.order if op not in taken)), (*first.counts[:point], *second.counts[point:])
    )


def mutate(genes: Genes, needed: Needs, most: Sequence[int], chance: float, generator: np.random.Generator) -> Genes:
    """Both parts; a count stays between 0 and the ``most`` tensors of its class."""
    counts = [
        min(most[number], max(0, round(generator.normal(count, max(1.0, most[number] / 4)))))
        if generator.random() < chance
        else count
        for number, count in enumerate(genes.counts)
    ]
    return Genes(reordered(genes.order, needed, chance, generator), tuple(counts))


def reordered(order: Order, needed: Needs, chance: float, generator: np.random.Generator) -> Order:
    """List scheduling: each time a random ready op with ``chance``, else the ready op that ``order`` has first."""
    return tuple(_list_schedule(order, needed, chance, generator))


def _list_schedule(order: Order, needed: Needs, chance: float, generator: np.random.Generator) -> Iterator[int]:
    missing = [len(before) for before in needed]
    after: list[list[int]] = [[] for _ in needed]
    for op, before in enumerate(needed):
        for earlier in before:
            after[earlier].append(op)
    place = {op: number for number, op in enumerate(order)}
    ready = [place[op] for op, count in enumerate(missing) if not count]
    heapq.heapify(ready)
    while ready:
        if generator.random() < chance:
            number = ready.pop(int(generator.integers(len(ready))))
            heapq.heapify(ready)
        else:
            number = heapq.heappop(ready)
        yield (op := order[number])
        for later in after[op]:
            missing[later] -= 1
            if not missing[later]:
                heapq.heappush(ready, place[later])
