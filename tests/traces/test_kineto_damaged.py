"""Whatever happens to the bytes of a trace, it is read or refused in one line, never with another exception."""

import gzip
import json
import warnings
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kineto_files import NEW, OLD, KinetoFile

from stepsim.errors import StepsimError
from stepsim.traces import Trace, event_stream, read_kineto


def content(categories):
    file = KinetoFile(categories)
    for number in range(1, 5):
        file.step(number, 100 * number, 90)
        file.op(100 * number, 30)
        file.launched(100 * number + 5, 5, 100 * number + 15, 20, correlation=2 * number)
        file.call(100 * number + 20, 4, correlation=2 * number + 1, name="cudaMemcpyAsync")
        file.copy(100 * number + 40, 8, correlation=2 * number + 1, size_bytes=4096)
        file.add("cuda_sync", "Stream Sync", 100 * number, 18, 7, stream=7, correlation=number)
    return json.dumps(file.document(), indent=1).encode()


CONTENTS = [content(OLD), content(NEW)]


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return tmp_path_factory.mktemp("damaged") / "t.json"


def is_read_or_refused(path, damaged, block_bytes):
    path.write_bytes(damaged)
    with warnings.catch_warnings(), patch.object(event_stream, "BLOCK_BYTES", block_bytes):
        warnings.simplefilter("ignore")
        try:
            return isinstance(read_kineto(path), Trace)
        except StepsimError as error:
            return "\n" not in str(error)


CHANGES = st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), min_size=1, max_size=8)
BLOCKS_BYTES = st.sampled_from([64, 1000, 2**18])


@given(which=st.sampled_from(CONTENTS), changes=CHANGES, zipped=st.booleans(), block_bytes=BLOCKS_BYTES)
def test_bytes_are_changed(path, which, changes, zipped, block_bytes):
    damaged = bytearray(gzip.compress(which, mtime=0) if zipped else which)
    for place, byte in changes:
        damaged[place % len(damaged)] = byte

    assert is_read_or_refused(path, bytes(damaged), block_bytes)


@given(which=st.sampled_from(CONTENTS), changes=CHANGES, block_bytes=BLOCKS_BYTES)
def test_digits_are_changed(path, which, changes, block_bytes):
    digits = [place for place, byte in enumerate(which) if chr(byte).isdigit()]
    damaged = bytearray(which)
    for place, byte in changes:
        damaged[digits[place % len(digits)]] = ord("-0123456789.e"[byte % 13])

    assert is_read_or_refused(path, bytes(damaged), block_bytes)


@given(which=st.sampled_from(CONTENTS), first=st.integers(0, 10**6), length=st.integers(1, 2000))
def test_a_piece_is_lost(path, which, first, length):
    first %= len(which)

    assert is_read_or_refused(path, which[:first] + which[first + length :], 64)


@given(which=st.sampled_from(CONTENTS), first=st.integers(0, 10**6), length=st.integers(1, 2000))
def test_a_piece_stands_there_twice(path, which, first, length):
    first %= len(which)

    assert is_read_or_refused(path, which[: first + length] + which[first:], 64)


@given(which=st.sampled_from(CONTENTS), length=st.integers(0, 10**6), zipped=st.booleans())
def test_a_trace_cut_short_is_refused(path, which, length, zipped):
    whole = gzip.compress(which, mtime=0) if zipped else which
    path.write_bytes(whole[: length % len(whole)])

    with pytest.raises(StepsimError), patch.object(event_stream, "BLOCK_BYTES", 64):
        read_kineto(path)
