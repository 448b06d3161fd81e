"""JSON files that are zipped: told by their content, and refused in one line."""

import gzip

import pytest

from stepsim import tables
from stepsim.errors import FileError
from stepsim.tables import read_json, write_json


def test_a_file_that_ends_in_gz_is_zipped_the_same_each_time_and_read_under_any_name(tmp_path):
    for name in ("a.gz", "b.gz", "plain"):
        write_json(tmp_path / name, {"format": "test", "numbers": [1] * 1000})

    zipped = (tmp_path / "a.gz").read_bytes()
    assert zipped == (tmp_path / "b.gz").read_bytes()
    assert gzip.decompress(zipped) == (tmp_path / "plain").read_bytes()
    (tmp_path / "a.gz").rename(tmp_path / "renamed")
    assert read_json(tmp_path / "renamed", "test") == read_json(tmp_path / "plain", "test")


def test_a_torn_gzip_is_refused(tmp_path):
    write_json(tmp_path / "torn.gz", {"format": "test"})
    (tmp_path / "torn.gz").write_bytes((tmp_path / "torn.gz").read_bytes()[:-9])

    with pytest.raises(FileError, match=r"torn\.gz: gzip: is truncated or damaged: "):
        read_json(tmp_path / "torn.gz", "test")


def test_what_unpacks_to_too_much_is_refused_before_it_is_unpacked(tmp_path, monkeypatch):
    monkeypatch.setattr(tables, "LARGEST_JSON_BYTES", 1000)
    (tmp_path / "bomb").write_bytes(gzip.compress(bytes(10**7)))

    with pytest.raises(FileError, match="bomb: file: must hold at most 1000 bytes, unzipped"):
        read_json(tmp_path / "bomb", "test")
