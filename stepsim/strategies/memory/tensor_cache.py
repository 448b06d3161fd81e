"""Which tensors a least-recently-used cache evicts: Wang et al., "SuperNeurons", PPoPP 2018, section 3.3.

F0 F1 F2 ... | ... B2 B1 B0      x0 was used least recently when there is no room, then x1, then x2
"""

from collections.abc import Collection

import numpy as np

from stepsim.plan import TaskKind
from stepsim.strategies.memory.rows import Row, resident_bytes
from stepsim.workloads import Phase, Workload


def evicted(workload: Workload, rows: list[Row], tensors: Collection[int], memory_bytes: int) -> list[int]:
    """Of ``tensors``, which ``rows`` keep, those to evict where the settled ``rows`` lack room.

    Each is gone from its last use in the forward pass to its next; the one that was used least recently goes first.
    What a row in between uses is locked.
    """
    level_bytes = np.array(resident_bytes(workload, rows), np.int64)
    away = _away(workload, rows, tensors)
    found: list[int] = []
    for number in range(len(rows)):
        while level_bytes[number] > memory_bytes:
            idle = [tensor for tensor, (last, back) in away.items() if last < number < back]
            if not idle:
                break
            victim = min(idle, key=lambda tensor: (away[tensor], tensor))
            last, back = away.pop(victim)
            level_bytes[last + 1 : back] -= workload.tensors[victim].size_bytes
            found.append(victim)
    return found


def _away(workload: Workload, rows: list[Row], tensors: Collection[int]) -> dict[int, tuple[int, int]]:
    """The last row of a forward pass that uses each tensor, and the next row that does."""
    found: dict[int, tuple[int, int]] = {}
    for number, row in enumerate(rows):
        for tensor in {copy[0] for copy in (*row.reads, *row.writes)}.intersection(tensors):
            last, back = found.get(tensor, (number, len(rows)))
            found[tensor] = (number, len(rows)) if _is_forward(workload, row) else (last, min(back, number))
    return found


def _is_forward(workload: Workload, row: Row) -> bool:
    return row.kind is TaskKind.COMPUTE and workload.ops[row.subject].phase is Phase.FORWARD
