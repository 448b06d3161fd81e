"""The rules of PyTorch's CUDA caching allocator as published, with default settings, compiled.

Source of every rule and number: pytorch/pytorch, c10/cuda/CUDACachingAllocator.cpp (no expandable segments, no limit on
splitting, no garbage collection). A request is rounded up to `UNIT_BYTES` and served by the smallest free block of its
pool that is large enough, the lowest address first; a pool is the small or the large blocks of one stream. Without such
a block the driver is asked for a segment. What a block has too much is split off, and neighbours that are free are
joined. When the driver has no room, the free segments of all streams go back to it before it is asked once more.

Which address the driver gives to a segment is not published. Here it lies behind all others, unless it was recorded.
"""

from typing import Any

import numpy as np
from numba import njit

from stepsim.units import MIB

UNIT_BYTES = 512
SMALL_BYTES = 1 * MIB
"""Up to this a request is small. Of a large block only a rest of more than this is split off."""
SMALL_SEGMENT_BYTES = 2 * MIB
LARGE_SEGMENT_BYTES = 20 * MIB
OWN_SEGMENT_BYTES = 10 * MIB
"""From here on a request gets a segment of its own size, rounded up to `SEGMENT_UNIT_BYTES`."""
SEGMENT_UNIT_BYTES = 2 * MIB

UNLIMITED = np.iinfo(np.int64).max
NO_BLOCK = -1

BLOCK = np.dtype(
    [
        ("address", np.int64),
        ("size", np.int64),
        ("pool", np.int32),
        ("before", np.int32),
        ("after", np.int32),
        ("free", np.int32),
    ]
)
"""``before`` and ``after`` are the neighbours in the segment; of blocks out of use ``after`` is the next such."""

STATE = np.dtype(
    [
        ("allocated", np.int64),
        ("reserved", np.int64),
        ("limit", np.int64),
        ("end", np.int64),
        ("num_segments", np.int64),
        ("num_free", np.int64),
        ("num_blocks", np.int64),
        ("unused", np.int64),
    ]
)
"""Bytes of a device, where its last segment ends, how much of the arrays is in use, and a first block out of use."""

HELD = np.dtype([("block", np.int32), ("address", np.int64), ("size", np.int64)])
"""For a request: the block that serves it, and what that block was when it was handed out."""

# Numpy arrays and records, whose fields mypy does not know.
State = Any
Blocks = Any
Ints = Any


@njit(cache=True)
def rounded_up(size_bytes: int, unit_bytes: int) -> int:
    return -(-size_bytes // unit_bytes) * unit_bytes


@njit(cache=True)
def pool_of(size_bytes: int, stream: int) -> int:
    """Even for small blocks, odd for large ones. Buffers without an owner (stream -1) have pools of their own."""
    return 2 * (stream + 1) + (size_bytes > SMALL_BYTES)


@njit(cache=True)
def segment_bytes(size_bytes: int) -> int:
    """The segment that the driver is asked for when no block fits a request, which is rounded."""
    if size_bytes <= SMALL_BYTES:
        return SMALL_SEGMENT_BYTES
    if size_bytes < OWN_SEGMENT_BYTES:
        return LARGE_SEGMENT_BYTES
    segment: int = rounded_up(size_bytes, SEGMENT_UNIT_BYTES)
    return segment


@njit(cache=True)
def serve(
    states: State,
    blocks: Blocks,
    free: Ints,
    segments: Ints,
    request: Ints,
    released: Ints,
    size_bytes: Ints,
    stream: Ints,
    held: Blocks,
    levels: Ints,
) -> int:
    """Serve events in order; returns how many of them there was room for: see `CachingAllocator.serve`."""
    state = states[0]
    for event in range(len(request)):
        mine = held[request[event]]
        if released[event]:
            if mine.block != NO_BLOCK:
                _give_back(state, blocks, free, mine.block)
        elif size_bytes[request[event]] > 0:
            size = rounded_up(size_bytes[request[event]], UNIT_BYTES)
            block = _allocate(state, blocks, free, segments, size, pool_of(size, stream[request[event]]))
            if block == NO_BLOCK:
                levels[event, 0], levels[event, 1] = state.allocated, state.reserved
                return event
            mine.block, mine.address, mine.size = block, blocks[block].address, blocks[block].size
        levels[event, 0], levels[event, 1] = state.allocated, state.reserved
    return len(request)


@njit(cache=True)
def _allocate(state: State, blocks: Blocks, free: Ints, segments: Ints, size: int, pool: int) -> int:
    """The block that serves ``size``, or NO_BLOCK where neither the pool nor the driver has room."""
    place = _place(state, blocks, free, pool, size, 0)
    if place < state.num_free and blocks[free[place]].pool == pool:
        block: int = free[place]
        _unlist(state, free, place)
    else:
        if state.reserved + segment_bytes(size) > state.limit:
            _release_cached(state, blocks, free)
        if state.reserved + segment_bytes(size) > state.limit:
            return NO_BLOCK
        block = _new_segment(state, blocks, segments, segment_bytes(size), pool)
    rest = blocks[block].size - size
    if rest > SMALL_BYTES or (pool % 2 == 0 and rest >= UNIT_BYTES):
        _split(state, blocks, free, block, size)
    blocks[block].free = 0
    state.allocated += blocks[block].size
    return block


@njit(cache=True)
def _give_back(state: State, blocks: Blocks, free: Ints, block: int) -> None:
    state.allocated -= blocks[block].size
    before, after = blocks[block].before, blocks[block].after
    if before != NO_BLOCK and blocks[before].free:
        _unlist(state, free, _place_of(state, blocks, free, before))
        _join(state, blocks, before, block)
        block = before
    if after != NO_BLOCK and blocks[after].free:
        _unlist(state, free, _place_of(state, blocks, free, after))
        _join(state, blocks, block, after)
    _list(state, blocks, free, block)


@njit(cache=True)
def _new_segment(state: State, blocks: Blocks, segments: Ints, size: int, pool: int) -> int:
    address = segments[state.num_segments] if state.num_segments < len(segments) else state.end
    state.num_segments += 1
    state.reserved += size
    state.end = max(state.end, address + size)
    block: int = _new_block(state, blocks, address, size, pool)
    return block


@njit(cache=True)
def _release_cached(state: State, blocks: Blocks, free: Ints) -> None:
    """Give the segments that are free from end to end back to the driver."""
    kept = 0
    for place in range(state.num_free):
        block = free[place]
        if blocks[block].before == NO_BLOCK and blocks[block].after == NO_BLOCK:
            state.reserved -= blocks[block].size
            _drop_block(state, blocks, block)
        else:
            free[kept] = block
            kept += 1
    state.num_free = kept


@njit(cache=True)
def _split(state: State, blocks: Blocks, free: Ints, block: int, size: int) -> None:
    """Keep the first ``size`` bytes of ``block``; the rest is a free block behind it."""
    mine = blocks[block]
    rest = _new_block(state, blocks, mine.address + size, mine.size - size, mine.pool)
    mine.size = size
    _link(blocks, rest, mine.after)
    _link(blocks, block, rest)
    _list(state, blocks, free, rest)


@njit(cache=True)
def _join(state: State, blocks: Blocks, block: int, after: int) -> None:
    """Make one block of ``block`` and the one behind it."""
    blocks[block].size += blocks[after].size
    _link(blocks, block, blocks[after].after)
    _drop_block(state, blocks, after)


@njit(cache=True)
def _link(blocks: Blocks, block: int, after: int) -> None:
    blocks[block].after = after
    if after != NO_BLOCK:
        blocks[after].before = block


@njit(cache=True)
def _new_block(state: State, blocks: Blocks, address: int, size: int, pool: int) -> int:
    """A block without neighbours, in the place of one out of use if there is one."""
    block: int = state.unused
    if block == NO_BLOCK:
        block = state.num_blocks
        state.num_blocks += 1
    else:
        state.unused = blocks[block].after
    mine = blocks[block]
    mine.address, mine.size, mine.pool, mine.free = address, size, pool, 1
    mine.before = mine.after = NO_BLOCK
    return block


@njit(cache=True)
def _drop_block(state: State, blocks: Blocks, block: int) -> None:
    blocks[block].size = 0
    blocks[block].after = state.unused
    state.unused = block


@njit(cache=True)
def _list(state: State, blocks: Blocks, free: Ints, block: int) -> None:
    """Note ``block`` as free."""
    place = _place_of(state, blocks, free, block)
    for behind in range(state.num_free, place, -1):
        free[behind] = free[behind - 1]
    free[place] = block
    blocks[block].free = 1
    state.num_free += 1


@njit(cache=True)
def _unlist(state: State, free: Ints, place: int) -> None:
    state.num_free -= 1
    for behind in range(place, state.num_free):
        free[behind] = free[behind + 1]


@njit(cache=True)
def _place_of(state: State, blocks: Blocks, free: Ints, block: int) -> int:
    place: int = _place(state, blocks, free, blocks[block].pool, blocks[block].size, blocks[block].address)
    return place


@njit(cache=True)
def _place(state: State, blocks: Blocks, free: Ints, pool: int, size: int, address: int) -> int:
    """Where a block stands among the free ones, which are in order of pool, size and address."""
    low, high = 0, state.num_free
    while low < high:
        middle = (low + high) // 2
        block = blocks[free[middle]]
        if (block.pool, block.size, block.address) < (pool, size, address):
            low = middle + 1
        else:
            high = middle
    return low
