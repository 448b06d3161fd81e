"""The caching allocator of one device: what it hands out and reserves, event by event.

Loading this module loads numba. The rules, with their source, are in `stepsim.memory.allocator_rules`.
"""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from stepsim.memory.allocator_rules import BLOCK, HELD, NO_BLOCK, STATE, UNLIMITED, serve
from stepsim.tables import Columns


@dataclass(frozen=True, eq=False)
class BlockTable(Columns):
    """The blocks of a device in order of address. ``segment`` is the address of the segment they are part of."""

    segment: NDArray[np.int64]
    address: NDArray[np.int64]
    size_bytes: NDArray[np.int64]
    pool: NDArray[np.int32]
    free: NDArray[np.bool_]

    @classmethod
    def empty(cls) -> Self:
        none = np.zeros(0, np.int64)
        return cls(none, none, none, none.astype(np.int32), none.astype(np.bool_))


class CachingAllocator:
    """The allocator of one device. Room for ``num_requests`` allocations; ``start`` is what is there before them.

    Beyond ``limit_bytes`` the driver gives no segment. ``segments`` are the addresses of the next ones, where known.
    """

    def __init__(
        self,
        num_requests: int,
        *,
        limit_bytes: int = UNLIMITED,
        start: BlockTable | None = None,
        segments: NDArray[np.int64] | None = None,
    ) -> None:
        start = BlockTable.empty() if start is None else start
        self._blocks = np.empty(len(start) + 2 * num_requests, BLOCK)
        self._free = np.empty(len(self._blocks), np.int32)
        self._state = np.zeros(1, STATE)
        self._segments = np.zeros(0, np.int64) if segments is None else segments
        self._load(start, limit_bytes)

    def _load(self, start: BlockTable, limit_bytes: int) -> None:
        blocks, number = self._blocks[: len(start)], np.arange(len(start))
        first = np.diff(start.segment, prepend=-1) != 0
        blocks["address"], blocks["size"], blocks["pool"] = start.address, start.size_bytes, start.pool
        blocks["before"] = np.where(first, NO_BLOCK, number - 1)
        blocks["after"] = np.where(np.append(first[1:], True), NO_BLOCK, number + 1)
        blocks["free"] = start.free
        free = np.flatnonzero(start.free)
        order = np.lexsort((start.address[free], start.size_bytes[free], start.pool[free]))
        self._free[: len(free)] = free[order]
        allocated, reserved = start.size_bytes[~start.free].sum(), start.size_bytes.sum()
        end = (start.address + start.size_bytes).max(initial=0)
        self._state[0] = (allocated, reserved, limit_bytes, end, 0, len(free), len(start), NO_BLOCK)

    def serve(
        self,
        request: NDArray[np.int32],
        released: NDArray[np.bool_],
        size_bytes: NDArray[np.int64],
        stream: NDArray[np.int32],
        held: NDArray[np.void],
        levels: NDArray[np.int64],
    ) -> int:
        """Serve events in order; returns how many of them there was room for.

        Event ``i`` allocates request ``request[i]``, or gives it back where ``released[i]``. A request has
        ``size_bytes`` (of nothing there is no block), a ``stream``, and in ``held`` (dtype `HELD`) what serves it.
        After event ``i``, ``levels[i]`` (shape (events, 2)) is what is allocated and reserved.
        """
        return serve(
            self._state,
            self._blocks,
            self._free,
            self._segments,
            _read_only(request),
            _read_only(released),
            _read_only(size_bytes),
            _read_only(stream),
            held,
            levels,
        )

    def blocks(self) -> BlockTable:
        used = self._blocks[: int(self._state[0]["num_blocks"])]
        used = np.sort(used[used["size"] > 0], order="address")
        first = np.maximum.accumulate(np.where(used["before"] == NO_BLOCK, np.arange(len(used)), 0))
        segment = used["address"][first]
        return BlockTable(segment, used["address"], used["size"], used["pool"], used["free"] > 0)


def no_blocks(num_requests: int) -> NDArray[np.void]:
    """`HELD` for requests that nothing serves yet."""
    held = np.zeros(num_requests, HELD)
    held["block"] = NO_BLOCK
    return held


def _read_only(column: NDArray[Any]) -> NDArray[Any]:
    """Columns of plans are read-only; numba compiles once for each combination."""
    view = column.view()
    view.setflags(write=False)
    return view
