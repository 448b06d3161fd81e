import gzip

import pytest

from stepsim.errors import FileError
from stepsim.traces import whole_files
from stepsim.traces.whole_files import read_whole

LOG = b"size time\n8 1.5\n" * 100


def refused(path, largest_bytes=10_000):
    with pytest.raises(FileError) as caught:
        read_whole(path, largest_bytes)
    return str(caught.value).removeprefix(f"{path}: ")


@pytest.mark.parametrize(
    "content", [LOG, gzip.compress(LOG, mtime=0), gzip.compress(LOG[:99], mtime=0) + gzip.compress(LOG[99:], mtime=0)]
)
def test_a_file_is_unzipped_if_it_is_gzip_whatever_it_is_called(tmp_path, content):
    (tmp_path / "log").write_bytes(content)

    assert read_whole(tmp_path / "log", len(LOG)) == LOG


@pytest.mark.parametrize("content", [LOG, gzip.compress(LOG, mtime=0)])
def test_one_byte_too_many_is_refused(tmp_path, content):
    (tmp_path / "log").write_bytes(content)

    assert refused(tmp_path / "log", len(LOG) - 1) == "file: must hold at most 1599 bytes, unzipped"


def test_an_empty_file_holds_nothing(tmp_path):
    (tmp_path / "log").touch()

    assert read_whole(tmp_path / "log", 10) == b""


def test_a_bomb_is_refused_before_it_is_unzipped(tmp_path, monkeypatch):
    """10 MB of zeros, which gzip makes a thousand times smaller."""
    monkeypatch.setattr(whole_files, "HARMLESS_BYTES", 1000)
    (tmp_path / "log").write_bytes(gzip.compress(bytes(10**7)))

    assert refused(tmp_path / "log", 10**9) == (
        "gzip: unpacks to more than 200 times its size, as no recorded trace does"
    )


def test_a_small_file_may_unpack_to_many_times_its_size(tmp_path):
    (tmp_path / "log").write_bytes(gzip.compress(bytes(10**6)))

    assert read_whole(tmp_path / "log", 10**6) == bytes(10**6)


@pytest.mark.parametrize(
    "content",
    [gzip.compress(LOG)[:-9], gzip.compress(LOG)[:3], b"\x1f\x8bno gzip", gzip.compress(LOG)[:-8] + bytes(8)],
    ids=["cut", "cut in its head", "no gzip", "another checksum"],
)
def test_a_damaged_gzip_is_refused(tmp_path, content):
    (tmp_path / "log").write_bytes(content)

    assert refused(tmp_path / "log").startswith("gzip: is truncated or damaged: ")


def test_what_cannot_be_read_is_refused(tmp_path):
    assert refused(tmp_path).startswith("file: cannot be read: ")
    assert refused(tmp_path / "none") == "file: cannot be read: No such file or directory"
