import gzip
import json
import random
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepsim.errors import FileError
from stepsim.traces import event_stream
from stepsim.traces.event_stream import EventStream

AWKWARD = st.sampled_from(["}, {", '"traceEvents": [', "\\", '"', "]}", "é }, {", "\n  },\n  {\n"])
TEXTS = st.text(max_size=4) | AWKWARD
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)
EVENTS = st.lists(st.dictionaries(TEXTS, VALUES, max_size=3), max_size=12)
KEYS = st.dictionaries(TEXTS.filter(lambda key: key != "traceEvents"), VALUES, max_size=3)


def read(path, *, block_bytes=event_stream.BLOCK_BYTES):
    """All entries, the other keys, and the size of each block."""
    with patch.object(event_stream, "BLOCK_BYTES", block_bytes):
        stream = EventStream(path)
        blocks = list(stream)
    return [entry for block in blocks for entry in block], stream.header, [len(block) for block in blocks]


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return tmp_path_factory.mktemp("stream") / "t.json"


@given(before=KEYS, events=EVENTS, after=KEYS, indent=st.sampled_from([None, 0, 2]), block_bytes=st.integers(1, 99))
def test_blocks_joined_are_the_events_however_the_file_is_laid_out(path, before, events, after, indent, block_bytes):
    document = before | {"traceEvents": events} | {key: after[key] for key in after if key not in before}
    path.write_text(json.dumps(document, indent=indent))

    entries, header, _ = read(path, block_bytes=block_bytes)

    assert entries == events
    assert header == {key: value for key, value in document.items() if key != "traceEvents"}


@given(events=EVENTS, zipped=st.booleans(), block_bytes=st.integers(1, 99))
def test_a_bare_list_is_read_alike_zipped_or_not(path, events, zipped, block_bytes):
    content = json.dumps(events, ensure_ascii=False).encode()
    path.write_bytes(gzip.compress(content) if zipped else content)

    assert read(path, block_bytes=block_bytes)[:2] == (events, {})


def test_a_key_of_the_same_name_further_in_is_another(path):
    path.write_text('{"metadata": {"traceEvents": [{"a": 1}]}, "traceEvents": [{"b": 2}], "end": 3}')

    entries, header, _ = read(path, block_bytes=1)

    assert entries == [{"b": 2}]
    assert header == {"metadata": {"traceEvents": [{"a": 1}]}, "end": 3}


def events_of(count, size_bytes=100):
    return [{"number": number, "text": "x" * size_bytes} for number in range(count)]


def test_a_long_file_comes_in_many_blocks(path):
    path.write_text(json.dumps({"traceEvents": events_of(5000), "end": 1}))

    entries, _, sizes = read(path, block_bytes=4096)

    assert entries == events_of(5000)
    assert len(sizes) > 100
    assert max(sizes) < 100


def test_an_event_longer_than_a_block_is_read(path):
    events = [*events_of(20), *events_of(1, size_bytes=50_000), *events_of(20)]
    path.write_text(json.dumps({"traceEvents": events}))

    assert read(path, block_bytes=256)[0] == events


def test_events_that_hold_long_lists_of_objects_are_read_if_not_in_blocks(path):
    events = [{"number": number, "frames": [{"line": line} for line in range(200)]} for number in range(50)]
    path.write_text(json.dumps({"traceEvents": events}))

    assert read(path, block_bytes=4096)[0] == events


@pytest.mark.parametrize("zipped", [False, True])
def test_a_file_cut_short_anywhere_is_refused(path, zipped):
    content = json.dumps({"traceEvents": events_of(4), "end": {"a": [1]}}).encode()
    content = gzip.compress(content) if zipped else content
    for length in range(len(content)):
        path.write_bytes(content[:length])
        with pytest.raises(FileError):
            read(path, block_bytes=64)


def test_damage_in_the_middle_is_found(path):
    content = json.dumps({"traceEvents": events_of(1000)}).encode()
    middle = len(content) // 2
    path.write_bytes(content[:middle] + b"\xff" + content[middle:])

    with pytest.raises(FileError, match="file: is not JSON"):
        read(path, block_bytes=4096)


@pytest.mark.parametrize("filling", [b" ", b'{"ph": "X"}, '])
def test_a_gzip_that_unpacks_to_much_more_than_a_trace_is_refused(path, filling):
    content = b"[" + filling * (2**25 // len(filling)) + b"{}]"
    path.write_bytes(gzip.compress(content))

    with pytest.raises(FileError, match=r"gzip: unpacks to more than 200 times its size"):
        read(path)


@pytest.mark.parametrize("filling", [b" ", b",{}"])
def test_what_ends_no_event_is_held_up_to_a_limit(path, filling):
    """Noise before it, so that it is no bomb by what was read of the file."""
    content = b'[{"name": "' + random.Random(0).randbytes(2**17).hex().encode() + b'", "args": [{}'
    path.write_bytes(content + filling * (2**22 // len(filling)) + b"]}]")

    with (
        patch.object(event_stream, "MOST_AHEAD_BYTES", 2**20),
        pytest.raises(FileError, match="traceEvents: no event ends within 1048576 bytes, unzipped"),
    ):
        read(path)


def test_a_small_file_may_repeat_itself(path):
    path.write_bytes(gzip.compress(json.dumps([{"ph": "X"}] * 100_000).encode()))

    assert len(read(path)[0]) == 100_000
