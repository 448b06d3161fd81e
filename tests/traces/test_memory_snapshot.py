"""Memory snapshots as PyTorch pickles them: small ones by hand, then the measured ones put back into that form."""

import pickle

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepsim.errors import FileError
from stepsim.traces import memory_snapshot
from stepsim.traces.allocations import hidden_rests, read_allocations, replay_allocations, start_blocks
from stepsim.traces.memory_snapshot import looks_like_memory_snapshot, read_memory_snapshot
from stepsim.units import MIB

BASE = 1 << 46
SIDE = 0x7F00_0000_1000
"""Handle of a stream beside the default one, which has 0."""

FRAMES = [{"filename": "train.py", "line": 7, "name": "step"}]


def entry(action, offset, size_bytes, stream=0):
    return {"action": action, "addr": BASE + offset, "size": size_bytes, "stream": stream, "frames": FRAMES}


def segment(offset, sizes, *, stream=0, device=0, **more):
    """``sizes`` are (bytes, in use) of its blocks."""
    states = {True: "active_allocated", False: "inactive"}
    return {
        "device": device,
        "address": BASE + offset,
        "total_size": sum(size for size, _ in sizes),
        "stream": stream,
        "segment_type": "large",
        "segment_pool_id": (0, 0),
        "blocks": [{"size": size, "requested_size": size, "state": states[used]} for size, used in sizes],
        **more,
    }


def dumped(folder, segments, *traces, protocol=4):
    path = folder / "snapshot.pickle"
    snapshot = {"segments": segments, "device_traces": list(traces), "allocator_settings": {"max_split_size": -1}}
    path.write_bytes(pickle.dumps(snapshot, protocol))
    return path


def replayed(trace):
    return replay_allocations(trace, start_blocks(trace))


SMALL = (
    [segment(0, [(4 * MIB, True), (8 * MIB, True), (6 * MIB, True), (2 * MIB, False)])],
    [
        entry("free_requested", 0, 4 * MIB - 100),
        entry("free_completed", 0, 4 * MIB - 100),
        entry("alloc", 12 * MIB, 6 * MIB),
        entry("alloc", 0, 3 * MIB),
        entry("snapshot", -BASE, 0),
    ],
)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_snapshot_replays_to_the_recorded_addresses_and_blocks(tmp_path, protocol):
    trace = read_memory_snapshot(dumped(tmp_path, *SMALL, protocol=protocol))

    replay = replayed(trace)

    assert trace.event.tolist() == [1, 2, 3]
    assert replay.first_difference is None
    assert replay.allocated_bytes.tolist() == [8 * MIB, 14 * MIB, 18 * MIB]
    assert replay.blocks == trace.blocks


def test_each_stream_has_its_own_blocks(tmp_path):
    """Both hold 20 MiB that are free; 4 MiB come on one stream, 6 MiB on the other, neither from the lower address."""
    segments = [
        segment(0, [(6 * MIB, True), (14 * MIB, False)], stream=SIDE),
        segment(32 * MIB, [(4 * MIB, True), (16 * MIB, False)]),
    ]
    events = [entry("alloc", 32 * MIB, 4 * MIB), entry("alloc", 0, 6 * MIB, SIDE)]

    trace = read_memory_snapshot(dumped(tmp_path, segments, events))
    replay = replayed(trace)

    assert trace.stream.tolist() == [0, 1]
    assert replay.equal.all()
    assert replay.blocks == trace.blocks


def test_what_was_there_on_a_side_stream_and_goes_is_free_for_that_stream(tmp_path):
    events = [entry("free_completed", 0, 20 * MIB, SIDE), entry("alloc", 0, 20 * MIB, SIDE)]

    replay = replayed(read_memory_snapshot(dumped(tmp_path, [segment(0, [(20 * MIB, True)], stream=SIDE)], events)))

    assert replay.equal.tolist() == [True]


def test_a_block_that_waits_for_another_stream_is_in_use(tmp_path):
    blocks = [{"size": 20 * MIB, "state": "active_pending_free"}]
    path = dumped(tmp_path, [segment(0, [(20 * MIB, True)], blocks=blocks)], [entry("free_requested", 0, 20 * MIB)])

    assert read_memory_snapshot(path).blocks.free.tolist() == [False]


def test_of_several_devices_one_must_be_told(tmp_path):
    segments = [segment(0, [(20 * MIB, True)]), segment(0, [(40 * MIB, True)], device=1)]
    path = dumped(tmp_path, segments, [entry("alloc", 0, 20 * MIB)], [entry("alloc", 0, 40 * MIB)])

    with pytest.raises(FileError, match=r"device: must be told: the snapshot has events or segments of 0, 1$"):
        read_memory_snapshot(path)
    assert read_memory_snapshot(path, device=1).size_bytes.tolist() == [40 * MIB]
    for absent in (2, -1):
        with pytest.raises(FileError, match=rf"device: has neither events nor segments, got {absent}"):
            read_memory_snapshot(path, device=absent)


def test_devices_without_events_or_segments_are_passed_over(tmp_path):
    path = dumped(tmp_path, [segment(0, [(20 * MIB, True)], device=2)], [], [], [entry("alloc", 0, 20 * MIB)])

    assert read_memory_snapshot(path).address.tolist() == [BASE]


def test_segments_without_events_are_all_there_at_the_start(tmp_path):
    trace = read_memory_snapshot(dumped(tmp_path, SMALL[0], []))

    assert len(trace.event) == 0
    assert start_blocks(trace) == trace.blocks


def test_events_without_segments_end_with_no_block(tmp_path):
    trace = read_memory_snapshot(dumped(tmp_path, [], [entry("alloc", 0, MIB), entry("free_completed", 0, MIB)]))

    assert trace.released.tolist() == [False, True]
    assert len(trace.blocks) == 0


def test_what_is_freed_outside_all_segments_is_refused(tmp_path):
    path = dumped(tmp_path, [segment(0, [(MIB, False)])], [entry("free_completed", MIB, MIB)])

    with pytest.raises(FileError, match=rf"addr: was freed, but lies in no segment of the start, got {BASE + MIB}"):
        read_memory_snapshot(path)


def test_a_snapshot_is_told_by_its_head(tmp_path):
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        assert looks_like_memory_snapshot(dumped(tmp_path, *SMALL, protocol=protocol).read_bytes())
    assert not looks_like_memory_snapshot(pickle.dumps({"a": 1}))
    assert not looks_like_memory_snapshot(b'{"segments": [], "device_traces": []}')


# --- bad input --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("segments", "trace", "message"),
    [
        ([1], [], r"segments\[0\]: must be a dictionary, got 'int'"),
        ({}, [], r"segments: must be a list, got 'dict'"),
        ([segment(0, [(MIB, True)], total_size="1")], [], r"segments\[0\]\.total_size: must be a whole number .* '1'"),
        ([segment(0, [(MIB, True)], address=True)], [], r"segments\[0\]\.address: must be a whole number .* True"),
        ([segment(0, [(MIB, True)], total_size=2 * MIB)], [], rf"its blocks must add up to its total, got {BASE}"),
        ([segment(0, [(MIB, True)], blocks=[{"size": -1}])], [], r"segments\[0\]\.blocks\[0\]\.size: must be a whole"),
        ([segment(0, [(MIB, True)], blocks=[{"size": 1}])], [], r"blocks\[0\]\.state: is missing"),
        ([segment(0, [(MIB, True)], is_expandable=True)], [], r"is_expandable: must be false"),
        ([segment(0, [(MIB, True)], segment_pool_id=(0, 3))], [], r"segment_pool_id: must be \(0, 0\)"),
        ([], [7], r"device_traces\[0\]\[0\]: must be a dictionary"),
        ([], [{"addr": 1}], r"device_traces\[0\]\[0\]\.action: is missing: this is no memory snapshot"),
        ([], [{"action": 3}], r"device_traces\[0\]\[0\]\.action: must be a string of ASCII, got 'int'"),
        ([], [{"action": "\ud800"}], r"action: must be a string of ASCII"),
        ([], [entry("alloc", 0, 1.5)], r"device_traces\[0\]\[0\]\.size: must be a whole number of 63 bits, got 1\.5"),
        ([], [entry("alloc", 0, 2**63)], r"device_traces\[0\]\[0\]\.size: must be a whole number of 63 bits"),
        ([], [entry("segment_free", 0, MIB)], r"action: must be one of alloc, .* got 'segment_free'"),
        ([], 7, r"device_traces\[0\]: must be a list, got 'int'"),
    ],
)
def test_a_wrong_field_is_named_in_one_line(tmp_path, segments, trace, message):
    with pytest.raises(FileError, match=message):
        read_memory_snapshot(dumped(tmp_path, segments, trace))


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([], "snapshot: must be a dictionary, got 'list'"),
        ({}, "segments: is missing: this is no memory snapshot"),
        ({"segments": []}, "device_traces: is missing"),
        ({"segments": [], "device_traces": []}, "device: must be told: .* of none"),
    ],
)
def test_a_pickle_of_something_else_is_refused(tmp_path, value, message):
    (tmp_path / "other.pickle").write_bytes(pickle.dumps(value))

    with pytest.raises(FileError, match=message):
        read_memory_snapshot(tmp_path / "other.pickle")


def test_segments_that_share_their_blocks_cannot_fill_the_memory(tmp_path, monkeypatch):
    """A few bytes of a pickle name a list again: n segments with the same n blocks would make n * n rows."""
    monkeypatch.setattr(memory_snapshot, "MOST_ROWS", 1000)
    shared = [{"size": 1, "state": "inactive"}] * 100

    with pytest.raises(FileError, match=r"segments\[10\]\.blocks: must be at most 1000 in all, got 1100"):
        read_memory_snapshot(dumped(tmp_path, [segment(offset, [], blocks=shared) for offset in range(100)], []))


VALUES = st.none() | st.integers() | st.floats() | st.text(max_size=3) | st.lists(st.integers(), max_size=2)


@given(
    key=st.sampled_from(["address", "total_size", "stream", "segment_type", "segment_pool_id", "device", "blocks"]),
    event=st.sampled_from(["action", "addr", "size", "stream"]),
    value=VALUES,
    twice=st.booleans(),
)
def test_any_value_in_any_field_gives_a_trace_or_one_line(tmp_path_factory, key, event, value, twice):
    segments, events = [{**SMALL[0][0], key: value}], [*SMALL[1], {**SMALL[1][2], event: value}]
    path = dumped(tmp_path_factory.getbasetemp(), segments * (1 + twice), events)
    try:
        trace = read_memory_snapshot(path)
    except FileError:
        return
    assert len(replayed(trace).equal) == (~trace.released).sum()


# --- measured ---------------------------------------------------------------------------------------------------------


def as_snapshot(events_path, segments_path):
    """The snapshot of which the measured tables were taken, without stack frames."""
    events, blocks = pd.read_csv(events_path), pd.read_csv(segments_path)
    segments = [
        {
            "device": 0,
            "address": int(address),
            "total_size": int(rows["total"].iloc[0]),
            "stream": 0,
            "segment_type": rows["type"].iloc[0],
            "blocks": [
                {"size": int(size), "state": state}
                for size, state in zip(rows["block_size"], rows["state"], strict=True)
            ],
        }
        for address, rows in blocks.groupby("segment")
    ]
    return {"segments": segments, "device_traces": [events.to_dict("records")]}


@pytest.mark.parametrize("name", ["medium_ctx128_training", "medium_ctx256_inference", "medium_ctx512_training"])
def test_a_measured_snapshot_gives_the_same_trace_as_its_tables_and_replays_address_by_address(
    data_dir, tmp_path, name
):
    folder = data_dir / "memory_snapshots"
    events_path = next(folder.glob(f"{name}_events.csv*"), None)
    if events_path is None:
        pytest.skip(f"no {name} in {folder}")
    tables = events_path, folder / f"{name}_segments.csv"
    (tmp_path / "snapshot.pickle").write_bytes(pickle.dumps(as_snapshot(*tables)))

    trace, known = read_memory_snapshot(tmp_path / "snapshot.pickle"), read_allocations(*tables)

    for column in ("event", "request", "released", "address", "size_bytes", "stream", "there", "new_segments"):
        assert np.array_equal(getattr(trace, column), getattr(known, column)), column
    assert trace.blocks == known.blocks
    assert replay_allocations(trace, start_blocks(trace, hidden_rests(trace))).equal.all()
