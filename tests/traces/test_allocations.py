"""Recorded events of the caching allocator: a small recording by hand, then the measured ones."""

import sys
from bisect import bisect_right, insort

import numpy as np
import pytest

from stepsim.errors import FileError
from stepsim.traces.allocations import hidden_rests, read_allocations, replay_allocations, start_blocks
from stepsim.units import KIB, MIB

BASE = 1 << 30


def recorded(folder, events, blocks, stream=0):
    """``events`` are (action, offset, bytes) and ``blocks`` (bytes, in use) of one segment of 20 MiB at BASE."""
    rows = [f"{action},{BASE + offset},{size},{stream}" for action, offset, size in events]
    (folder / "events.csv").write_text("\n".join(["action,addr,size,stream", *rows, ""]))
    total = sum(size for size, _ in blocks)
    states = {True: "active_allocated", False: "inactive"}
    rows = [f"{BASE},{total},large,{size},{states[used]}" for size, used in blocks]
    (folder / "segments.csv").write_text("\n".join(["segment,total,type,block_size,state", *rows, ""]))
    return folder / "events.csv", folder / "segments.csv"


def replayed(trace, rests=None):
    return replay_allocations(trace, start_blocks(trace, rests))


def test_the_start_is_the_end_with_the_events_taken_back(tmp_path):
    """4 MiB were there and go, 6 MiB come in their place and stay; 8 MiB were there all along."""
    events = [("free_requested", 0, 4 * MIB), ("free_completed", 0, 4 * MIB), ("alloc", 12 * MIB, 6 * MIB)]
    trace = read_allocations(*recorded(tmp_path, events, [(4 * MIB, 0), (8 * MIB, 1), (6 * MIB, 1), (2 * MIB, 0)]))

    start = start_blocks(trace)

    assert (start.address - BASE).tolist() == [0, 4 * MIB, 12 * MIB]
    assert start.size_bytes.tolist() == [4 * MIB, 8 * MIB, 8 * MIB]
    assert start.free.tolist() == [False, False, True]


def test_a_replay_returns_the_recorded_addresses_and_ends_with_the_recorded_blocks(tmp_path):
    events = [("free_completed", 0, 4 * MIB - 100), ("alloc", 12 * MIB, 6 * MIB), ("alloc", 0, 3 * MIB)]
    blocks = [(4 * MIB, True), (8 * MIB, True), (6 * MIB, True), (2 * MIB, False)]
    trace = read_allocations(*recorded(tmp_path, events, blocks))

    replay = replayed(trace)

    assert replay.first_difference is None
    assert replay.allocated_bytes.tolist() == [8 * MIB, 14 * MIB, 18 * MIB]
    assert replay.reserved_bytes.tolist() == [20 * MIB] * 3
    assert replay.blocks == trace.blocks


def test_an_address_that_the_rules_do_not_give_is_told_by_its_row(tmp_path):
    events = [("free_requested", 0, 2 * MIB), ("free_completed", 0, 2 * MIB), ("alloc", 10 * MIB, 2 * MIB)]
    trace = read_allocations(
        *recorded(tmp_path, events, [(2 * MIB, 0), (8 * MIB, 1), (2 * MIB, 1), (8 * MIB, 0)]),
    )

    replay = replayed(trace)

    assert replay.equal.tolist() == [False]
    assert replay.first_difference == 2


def test_a_rest_that_no_event_tells_shows_in_the_block_cut_from_behind_it(tmp_path):
    """4 MiB in a block of 4.5 MiB: what follows was free, and 5 MiB are cut from it at 4.5 MiB."""
    rest = 512 * KIB
    events = [("alloc", 4 * MIB + rest, 5 * MIB), ("free_completed", 4 * MIB + rest, 5 * MIB)]
    events += [("free_completed", 0, 4 * MIB)]
    trace = read_allocations(*recorded(tmp_path, events, [(20 * MIB, False)]))

    assert replayed(trace).first_difference == 0
    assert hidden_rests(trace) == {BASE: rest}
    assert replayed(trace, hidden_rests(trace)).first_difference is None


def test_a_new_segment_lies_where_the_driver_put_it(tmp_path):
    trace = read_allocations(
        *recorded(tmp_path, [("segment_alloc", 0, 20 * MIB), ("alloc", 0, 20 * MIB)], [(20 * MIB, True)])
    )

    assert len(start_blocks(trace)) == 0
    assert replayed(trace).first_difference is None


@pytest.mark.parametrize(
    ("event", "stream", "message"),
    [
        (("segment_free", 0, MIB), 0, "action: must be one of alloc, .* got 'segment_free'"),
        (("alloc", 0, MIB), 7, "stream: must be 0: segments do not say whose they are, got 7"),
    ],
)
def test_what_cannot_be_replayed_is_refused(tmp_path, event, stream, message):
    paths = recorded(tmp_path, [event], [(MIB, True)], stream)

    with pytest.raises(FileError, match=message):
        read_allocations(*paths)


def test_a_missing_column_is_named(tmp_path):
    _, segments = recorded(tmp_path, [], [(MIB, True)])

    with pytest.raises(FileError, match="column: must be there, got 'action'"):
        read_allocations(segments, segments)
    with pytest.raises(FileError, match=r"nothing\.csv: file: cannot be read"):
        read_allocations(tmp_path / "nothing.csv", segments)


def test_blocks_that_do_not_fill_their_segment_are_refused(tmp_path):
    events, segments = recorded(tmp_path, [], [(MIB, True)])
    segments.write_text(segments.read_text().replace(f"{MIB},large", f"{2 * MIB},large"))

    with pytest.raises(FileError, match=rf"segment: its blocks must add up to its total, got {BASE}"):
        read_allocations(events, segments)


# --- measured: GPT-2 medium, context 128 and 512 in training, 256 in inference ----------------------------------------


def measured(data_dir, name):
    folder = data_dir / "memory_snapshots"
    events = next(folder.glob(f"{name}_events.csv*"), None)
    if events is None:
        pytest.skip(f"no {name} in {folder}")
    return read_allocations(events, folder / f"{name}_segments.csv")


@pytest.mark.parametrize(
    ("name", "allocations", "peak_reserved_bytes"),
    [("medium_ctx128_training", 6526, 7_235_174_400), ("medium_ctx256_inference", 1280, 1_864_368_128)],
)
def test_every_recorded_address_is_returned(data_dir, name, allocations, peak_reserved_bytes):
    trace = measured(data_dir, name)

    replay = replayed(trace)

    assert len(replay.equal) == allocations
    assert replay.first_difference is None
    assert replay.blocks == trace.blocks
    assert replay.reserved_bytes.max() == peak_reserved_bytes == trace.blocks.size_bytes.sum()


def test_at_context_512_three_rests_at_the_start_are_not_in_the_events(data_dir):
    """The 92nd allocation (row 179) finds two free blocks of 20 MiB and takes the lower one. It lies behind a block of
    4 MiB that had kept a rest of 983,040 bytes; without the rest it looks 983,040 bytes larger, and the other is taken.
    """
    trace = measured(data_dir, "medium_ctx512_training")

    replay = replayed(trace)

    assert (len(replay.equal), int(replay.equal.sum()), replay.first_difference) == (7591, 6690, 179)
    assert hidden_rests(trace) == {38106365952: 983_040, 36335255552: 983_040, 36905680896: 983_040}
    assert replay.reserved_bytes.max() == trace.blocks.size_bytes.sum() == 12_660_506_624


def counted(trace, start):
    """Allocated bytes after each event by the recorded addresses alone.

    A large block has what lies behind it, up to the next one in use or the end of its segment, if at most 1 MiB.
    """
    used = ~start.free
    sizes = dict(zip(start.address[used].tolist(), start.size_bytes[used].tolist(), strict=True))
    borders = sorted({*sizes, *trace.blocks.segment.tolist(), sys.maxsize})
    (starts, ends), total, totals = segment_ends(trace), sum(sizes.values()), []
    for request, released in zip(trace.request.tolist(), trace.released.tolist(), strict=True):
        address, size = int(trace.address[request]), -(-int(trace.size_bytes[request]) // 512) * 512
        if released:
            total -= sizes.pop(address)
            if address not in starts:
                borders.remove(address)
        else:
            end = ends[bisect_right(starts, address) - 1]
            rest = min(borders[bisect_right(borders, address)], end) - address - size
            sizes[address] = size + rest if size > MIB >= rest else size
            total += sizes[address]
            if address not in starts:
                insort(borders, address)
        totals.append(total)
    return totals


def segment_ends(trace):
    blocks = trace.blocks
    starts = np.unique(blocks.segment)
    return starts.tolist(), [int(blocks.size_bytes[blocks.segment == start].sum() + start) for start in starts]


@pytest.mark.parametrize("name", ["medium_ctx128_training", "medium_ctx256_inference", "medium_ctx512_training"])
def test_with_hidden_rests_every_address_is_returned_and_bytes_are_exact_at_every_event(data_dir, name):
    trace = measured(data_dir, name)
    start = start_blocks(trace, hidden_rests(trace))

    replay = replay_allocations(trace, start)

    assert replay.equal.all()
    assert replay.blocks == trace.blocks
    assert replay.allocated_bytes.tolist() == counted(trace, start)
    assert replay.allocated_bytes[-1] == trace.blocks.size_bytes[~trace.blocks.free].sum()
