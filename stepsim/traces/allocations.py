"""Recorded events of PyTorch's CUDA caching allocator, and their replay.

A memory snapshot (``torch.cuda.memory._snapshot``) has the latest events and, at their end, all segments with their
blocks. What was there at the start follows by taking the events back from there. Served again from that start, every
allocation must return the address that was recorded. Loading this module loads numba.
"""

from bisect import bisect_left, insort
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from stepsim.errors import FileError
from stepsim.memory.allocator import BlockTable, CachingAllocator, no_blocks
from stepsim.memory.allocator_rules import SMALL_BYTES, UNIT_BYTES, pool_of, rounded_up
from stepsim.traces.csv_tables import need_columns, read_csv
from stepsim.traces.log_lines import warn_of_columns

ACTIONS = ("alloc", "free_requested", "free_completed", "segment_alloc")
"""What is understood. A block is free when its free has completed; the request before that changes nothing."""

STREAM = 0
"""Of the CSV files, whose segments do not say their stream."""


@dataclass(frozen=True, eq=False, kw_only=True)
class AllocatorTrace:
    """Allocations and frees in the order of the recording, as events about requests.

    Event ``i`` allocates request ``request[i]`` or, where ``released[i]``, gives it back; ``event[i]`` is its row in
    the file. A request (columns ``address``, ``size_bytes``, ``stream``, numbered from 0) that was ``there`` has no
    allocation in the recording.
    ``blocks`` are those at the end; ``new_segments`` the addresses of segments that came in between, in order.
    """

    event: NDArray[np.int64]
    request: NDArray[np.int32]
    released: NDArray[np.bool_]
    address: NDArray[np.int64]
    size_bytes: NDArray[np.int64]
    stream: NDArray[np.int32]
    there: NDArray[np.bool_]
    blocks: BlockTable
    new_segments: NDArray[np.int64]


@dataclass(frozen=True, eq=False, kw_only=True)
class AllocatorReplay:
    """What the allocator made of a trace.

    ``equal`` says for each allocation, in order, whether it returned the recorded address; ``first_difference`` is the
    row in the file of the first that did not. Bytes are after each event; ``blocks`` are those at the end.
    """

    equal: NDArray[np.bool_]
    first_difference: int | None
    allocated_bytes: NDArray[np.int64]
    reserved_bytes: NDArray[np.int64]
    blocks: BlockTable


def read_allocations(events_path: str | Path, segments_path: str | Path) -> AllocatorTrace:
    """Read a snapshot of one stream from two CSV files (or ``.csv.gz``).

    Events have the columns action, addr, size (as requested), stream; segments have one row a block: segment (its
    address), total, type (small or large), block_size, state. Raises `FileError` for anything else.
    """
    events, segments = read_csv(events_path), read_csv(segments_path)
    _check(events_path, events, ("action",), ("addr", "size", "stream"), unused=("t_us",))
    numbers, unused = ("segment", "total", "block_size"), ("allocated", "active")
    _check(segments_path, segments, ("type", "state"), numbers, unused=unused)
    for stream in set(events["stream"]) - {STREAM}:
        raise FileError(events_path, "stream", stream, "must be 0: segments do not say whose they are")
    return allocator_trace(events_path, events, segments_path, segments.assign(stream=STREAM))


def allocator_trace(
    events_path: str | Path, events: pd.DataFrame, segments_path: str | Path, segments: pd.DataFrame
) -> AllocatorTrace:
    """The trace of tables as `read_allocations` reads them; segments have a stream too. Streams are numbers from 0.

    Raises `FileError` for an action that is none of `ACTIONS`, and for blocks that do not fill their segment.
    """
    for action in set(events["action"]) - set(ACTIONS):
        raise FileError(events_path, "action", action, f"must be one of {', '.join(ACTIONS)}")
    blocks = _blocks(segments_path, segments)
    moves = events[events["action"].isin(("alloc", "free_completed"))]
    request, (address, size_bytes, stream, there) = _requests(moves, blocks)
    new_segments = events.loc[events["action"] == "segment_alloc", "addr"].to_numpy(np.int64)
    _check_there(events_path, address[there > 0], blocks, new_segments)
    return AllocatorTrace(
        event=moves.index.to_numpy(np.int64),
        request=request,
        released=(moves["action"] == "free_completed").to_numpy(),
        address=address,
        size_bytes=size_bytes,
        stream=stream.astype(np.int32),
        there=there > 0,
        blocks=blocks,
        new_segments=new_segments,
    )


def start_blocks(trace: AllocatorTrace, rests: Mapping[int, int] | None = None) -> BlockTable:
    """The blocks before the first event, from those at the end by taking the events back.

    Events say what was requested, not how large the block was. A block that was not cut keeps a rest of at most
    `SMALL_BYTES`; where the next block was in use, the gap between the two is that rest. Where it was free, ``rests``
    (address to bytes, see `hidden_rests`) may tell.
    """
    rests = {} if rests is None else rests
    live = {address: size + rests.get(address, 0) for address, size in _there(trace).items()}
    addresses = sorted(live)
    rows: list[tuple[int, int, int, int, bool]] = []
    for segment, end, pool in _segments(trace):
        here = addresses[bisect_left(addresses, segment) : bisect_left(addresses, end)]
        filled = _fill(segment, end, [(address, live[address]) for address in here], cut=pool % 2 == 0)
        rows += [(segment, address, size, pool, free) for address, size, free in filled]
    table = np.array(rows, np.int64).reshape(-1, 5).T
    return BlockTable(table[0], table[1], table[2], table[3].astype(np.int32), table[4] > 0)


def hidden_rests(trace: AllocatorTrace) -> dict[int, int]:
    """Rests of blocks of the start, by address, that only later allocations tell of.

    The first block that is cut from the free space behind a block of the start begins where that one ended.
    """
    there = _there(trace)
    live, found = sorted(there), {}
    for request, released in zip(trace.request.tolist(), trace.released.tolist(), strict=True):
        address = int(trace.address[request])
        if released:
            live.remove(address)
            there.pop(address, None)
            continue
        place = bisect_left(live, address)
        size = there.pop(live[place - 1], 0) if place else 0
        rest = address - live[place - 1] - size
        if size > SMALL_BYTES and 0 < rest <= SMALL_BYTES:
            found[live[place - 1]] = rest
        insort(live, address)
    return found


def replay_allocations(trace: AllocatorTrace, start: BlockTable) -> AllocatorReplay:
    """Serve the requests of ``trace`` again, from the blocks ``start``."""
    held = no_blocks(len(trace.address))
    at = {int(address): place for place, address in enumerate(start.address)}
    for request in np.flatnonzero(trace.there).tolist():
        held["block"][request] = at[int(trace.address[request])]
    served = np.zeros((len(trace.request), 2), np.int64)
    allocator = CachingAllocator(int((~trace.released).sum()), start=start, segments=trace.new_segments)
    allocator.serve(trace.request, trace.released, trace.size_bytes, trace.stream, held, served)
    asked = ~trace.released
    allocated = trace.request[asked]
    equal = held["address"][allocated] == trace.address[allocated]
    return AllocatorReplay(
        equal=equal,
        first_difference=None if equal.all() else int(trace.event[asked][equal.argmin()]),
        allocated_bytes=served[:, 0],
        reserved_bytes=served[:, 1],
        blocks=allocator.blocks(),
    )


def _check(
    path: str | Path, table: pd.DataFrame, texts: tuple[str, ...], numbers: tuple[str, ...], *, unused: tuple[str, ...]
) -> None:
    """Raises `FileError` for a missing column and for ``numbers`` that are none. Warns once of unknown columns."""
    need_columns(path, table, (*texts, *numbers))
    for column in numbers:
        values = pd.to_numeric(table[column], errors="coerce")
        for place in np.flatnonzero(~(values.between(0, 2**63 - 1024) & (values % 1 == 0))).tolist():
            raise FileError(path, f"row {place}, {column}", table[column].iloc[place], "must be a whole number >= 0")
    warn_of_columns(path, table.columns, (*texts, *numbers, *unused))


def _blocks(path: str | Path, rows: pd.DataFrame) -> BlockTable:
    rows = rows.sort_values("segment", kind="stable")
    inside = rows.groupby("segment")["block_size"]
    for segment in rows.loc[inside.transform("sum") != rows["total"], "segment"]:
        raise FileError(path, "segment", segment, "its blocks must add up to its total")
    segment, size_bytes = rows["segment"].to_numpy(np.int64), rows["block_size"].to_numpy(np.int64)
    address = segment + inside.cumsum().to_numpy(np.int64) - size_bytes
    pool = rows["stream"].map(lambda stream: pool_of(0, stream)) + (rows["type"] == "large")
    return BlockTable(segment, address, size_bytes, pool.to_numpy(np.int32), (rows["state"] == "inactive").to_numpy())


def _requests(moves: pd.DataFrame, blocks: BlockTable) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """The request of each event; and rows of address, bytes, stream, and whether a request was there at the start."""
    request: list[int] = []
    requests: list[tuple[int, int, int, bool]] = []
    serving: dict[int, int] = {}
    columns = (moves[column].tolist() for column in ("action", "addr", "size", "stream"))
    for action, address, size, stream in zip(*columns, strict=True):
        known = serving.pop(address, None)
        if known is None:
            there = action == "free_completed"
            known = len(requests)
            requests.append((address, rounded_up(size, UNIT_BYTES) if there else size, stream, there))
        if action == "alloc":
            serving[address] = known
        request.append(known)
    columns = (column[~blocks.free].tolist() for column in (blocks.address, blocks.size_bytes, blocks.pool))
    for address, size, pool in zip(*columns, strict=True):
        if address not in serving:
            requests.append((address, size, pool // 2 - 1, True))
    return np.array(request, np.int32), np.array(requests, np.int64).reshape(-1, 4).T


def _check_there(
    path: str | Path, address: NDArray[np.int64], blocks: BlockTable, new_segments: NDArray[np.int64]
) -> None:
    """No segment of the start has gone, so that what was there lies in one of them."""
    old = ~np.isin(blocks.segment, new_segments)
    start, end = blocks.address[old], (blocks.address + blocks.size_bytes)[old]
    before = np.searchsorted(start, address, side="right")
    inside = address < np.concatenate([[0], end])[before]
    for lost in address[~inside]:
        raise FileError(path, "addr", int(lost), "was freed, but lies in no segment of the start")


def _there(trace: AllocatorTrace) -> dict[int, int]:
    """Address and bytes of the requests that were there at the start."""
    return dict(zip(trace.address[trace.there].tolist(), trace.size_bytes[trace.there].tolist(), strict=True))


def _segments(trace: AllocatorTrace) -> Iterator[tuple[int, int, int]]:
    """Address, end and pool of the segments that were there at the start."""
    blocks = trace.blocks
    first = np.flatnonzero(np.diff(blocks.segment, prepend=-1))
    bounds = np.append(first, len(blocks))
    for begin, stop in pairwise(bounds.tolist()):
        segment = int(blocks.segment[begin])
        if segment not in trace.new_segments:
            yield segment, segment + int(blocks.size_bytes[begin:stop].sum()), int(blocks.pool[begin])


def _fill(begin: int, end: int, inside: list[tuple[int, int]], *, cut: bool) -> Iterator[tuple[int, int, bool]]:
    """Address, bytes and freeness of the blocks from ``begin`` to ``end``; ``inside`` are those in use.

    Where no rest is too small to be ``cut``, every gap is a free block; else a small one belongs to the block before.
    """
    gap = (inside[0][0] if inside else end) - begin
    if gap:
        yield begin, gap, True
    for (address, size), (following, _) in pairwise([*inside, (end, 0)]):
        gap = following - address - size
        if gap <= SMALL_BYTES and not cut:
            size += gap
            gap = 0
        yield address, size, False
        if gap:
            yield address + size, gap, True
