"""Ask for swapped tensors earlier than they are needed, as far as there is room for them."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from stepsim.plan import TaskKind
from stepsim.strategies.memory.prices import Prices
from stepsim.strategies.memory.rows import Row, on_host
from stepsim.workloads import Workload


def moved_up(workload: Workload, rows: list[Row], places: Mapping[int, int], memory_bytes: int) -> list[Row]:
    """``rows``, not settled yet, with swap-in rows moved up: ``places`` tells for their number the row to stand before.

    Where ``memory_bytes`` are exceeded on the way the row stops below, and where the copy that went out was used last.
    The order of the swap-ins does not change.
    """
    level_bytes = live_bytes(workload, rows)
    last_use = {copy: number for number, row in enumerate(rows) for copy in row.reads}
    gone = {row.subject: last_use[row.reads[0]] for row in rows if row.kind is TaskKind.SWAP_OUT}
    reached: dict[int, int] = {}
    for number in sorted(places, reverse=True):
        tensor, place = rows[number].subject, number
        size_bytes = workload.tensors[tensor].size_bytes
        highest = max(places[number], gone[tensor] + 1)
        while place > highest and level_bytes[place - 1] + size_bytes <= memory_bytes:
            place -= 1
        level_bytes[place:number] += size_bytes
        reached[number] = place
    before: dict[int, list[Row]] = {}
    lowest = 0
    for number in sorted(reached):
        lowest = max(lowest, reached[number])
        before.setdefault(lowest, []).append(rows[number])
    moved = []
    for number, row in enumerate(rows):
        moved += before.get(number, [])
        moved += [row] if number not in reached else []
    return moved


def live_bytes(workload: Workload, rows: list[Row]) -> NDArray[np.int64]:
    """Bytes on the device while each row runs, if every copy went right after its last use; results stay."""
    first: dict[tuple[int, int], int] = {}
    last: dict[tuple[int, int], int] = {}
    for number, row in enumerate(rows):
        for copy in (*row.reads, *row.writes):
            first.setdefault(copy, number)
            last[copy] = number
    stays = {(tensor, 0) for tensor in (workload.loss, *workload.gradients.values())}
    change = np.zeros(len(rows) + 1, np.int64)
    for tensor, each in enumerate(workload.tensors):
        if tensor not in workload.producer:
            change[0] += each.size_bytes
    for copy, began in first.items():
        if copy[0] in workload.producer and not on_host(copy):
            change[began] += workload.tensors[copy[0]].size_bytes
            if copy not in stays:
                change[last[copy] + 1] -= workload.tensors[copy[0]].size_bytes
    return np.cumsum(change)[:-1]


def start_s(rows: list[Row], prices: Prices) -> NDArray[np.float64]:
    """When each row is issued if computing never waits for a copy: all that computes before it is done."""
    computes = (TaskKind.COMPUTE, TaskKind.RECOMPUTE)
    takes_s = [prices[row.kind, row.subject] if row.kind in computes else 0.0 for row in rows]
    return np.concatenate(([0.0], np.cumsum(takes_s, dtype=float)))[: len(rows)]


def in_time(rows: list[Row], prices: Prices, ahead_s: Mapping[int, float]) -> dict[int, int]:
    """For the number of each swap-in row the latest row to stand before, so that the tensor is back when it is needed.

    One copy runs at a time, and those before the copies that they would keep waiting. ``ahead_s`` says for a tensor how
    much earlier than that. No row comes to stand where its tensor is still on its way out.
    """
    issued_s, out_s = start_s(rows, prices), _out_s(rows, prices)
    places: dict[int, int] = {}
    lane_s = np.inf
    for number in reversed(range(len(rows))):
        tensor = rows[number].subject
        if rows[number].kind is TaskKind.SWAP_IN:
            wish_s = min(issued_s[number], lane_s) - prices[TaskKind.SWAP_IN, tensor] - ahead_s.get(tensor, 0.0)
            lane_s = max(wish_s, out_s[tensor])
            latest = int(np.searchsorted(issued_s, wish_s, side="right")) - 1
            earliest = int(np.searchsorted(issued_s, out_s[tensor], side="left"))
            places[number] = min(max(latest, earliest, 0), number)
    return places


def _out_s(rows: list[Row], prices: Prices) -> dict[int, float]:
    """When each tensor is out, one after another."""
    issued_s, free_s, found = start_s(rows, prices), 0.0, {}
    for number, row in enumerate(rows):
        if row.kind is TaskKind.SWAP_OUT:
            free_s = max(free_s, float(issued_s[number])) + prices[row.kind, row.subject]
            found[row.subject] = free_s
    return found
