"""What every reader does with what is no file of its own, with half of one, and with one of a newer version.

Fields that make no sense are in the tests of each reader; random damage is in `test_damaged_files`.
"""

import copy
import gzip
import json
import sqlite3
import warnings
from contextlib import closing

import numpy as np
import pyarrow.parquet as pq
import pytest
from each_format import DOCUMENTS, TEXTS, encoded, write_beside, write_export
from kineto_files import KinetoFile
from small_traces import kernel, trace_of
from test_allocations import recorded as write_allocations

from stepsim import Trace
from stepsim.errors import FileError
from stepsim.traces import csv_tables, log_lines, read_kineto
from stepsim.traces.allocations import read_allocations
from stepsim.traces.nsys import read_nsys

KINETO = KinetoFile()
KINETO.step(1, 0, 100)
KINETO.launched(2, 3, 10, 20, 1)

WHOLE = {
    "stepsim trace": Trace.load,
    "Kineto": read_kineto,
    "Nsight Systems": read_nsys,
    **{name: read for name, (read, _) in (DOCUMENTS | TEXTS).items()},
}
"""By format, what reads it."""

EVERY_READER = pytest.mark.parametrize("name", WHOLE)


def write(folder, name):
    """A whole file of the format, under a name that says nothing but what older logs of nccl-tests do not."""
    path = folder / "all_reduce.log"
    if name == "stepsim trace":
        trace_of(kernel(0, 1), kernel(1, 1)).save(path)
    elif name == "Kineto":
        KINETO.write(path)
    elif name == "Nsight Systems":
        write_export(path)
    elif name in DOCUMENTS:
        path.write_bytes(encoded(name, DOCUMENTS[name][1]))
    else:
        path.write_text(TEXTS[name][1])
        write_beside(folder)
    return path


def refused(read, path):
    """The message, without the path: one line."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        with pytest.raises(FileError) as caught:
            read(path)
    message = str(caught.value)
    assert message.startswith(str(path.parent))
    assert len(message.splitlines()) == 1
    return message


@EVERY_READER
@pytest.mark.parametrize("content", [b"", b"\n", b"hello\n", b"{}", b"[]", b"null", b"\0" * 100, gzip.compress(b"")])
def test_what_holds_nothing_is_refused(tmp_path, name, content):
    (tmp_path / "all_reduce.log").write_bytes(content)

    refused(WHOLE[name], tmp_path / "all_reduce.log")


@EVERY_READER
def test_a_missing_file_and_a_folder_are_refused(tmp_path, name):
    assert "cannot be read" in refused(WHOLE[name], tmp_path / "none") or name == "stepsim trace"
    refused(WHOLE[name], tmp_path)


@EVERY_READER
def test_a_file_of_every_other_format_is_refused(tmp_path, name):
    for other, read in WHOLE.items():
        if read is not WHOLE[name]:
            (tmp_path / other.replace(" ", "_")).mkdir(exist_ok=True)
            refused(WHOLE[name], write(tmp_path / other.replace(" ", "_"), other))


@pytest.mark.parametrize("end", ["\n", "\r", "\r\n"])
def test_a_text_of_more_lines_than_a_log_has_is_not_read(tmp_path, monkeypatch, end):
    """An empty one takes a byte in the file and 170 in memory."""
    monkeypatch.setattr(log_lines, "MOST_LINES", 100)
    (tmp_path / "log").write_bytes(b"x" + end.encode() * 101)

    assert "lines: must be at most 100" in refused(log_lines.read_lines, tmp_path / "log")


def test_a_table_of_more_bytes_than_public_ones_have_is_not_read(tmp_path, monkeypatch):
    monkeypatch.setattr(csv_tables, "LARGEST_FILE_BYTES", 100)
    (tmp_path / "t.csv.gz").write_bytes(gzip.compress(b"a,b\n" + b"1,2\n" * 30))

    assert "must hold at most 100 bytes, unzipped" in refused(csv_tables.read_csv, tmp_path / "t.csv.gz")


def test_a_trace_of_more_rows_than_its_bytes_can_hold_is_not_read(tmp_path, monkeypatch):
    """Parquet writes a column of equal values as one of them."""
    monkeypatch.setattr("stepsim.traces.trace.HARMLESS_ROWS", 1000)
    trace = trace_of(kernel(0, 1))
    many = Trace(events=trace.events.loc[np.zeros(100_000, int)], provenance=trace.provenance)
    many.save(tmp_path / "t.trace")

    assert f"rows: must be at most {(tmp_path / 't.trace').stat().st_size} in" in refused(
        Trace.load, tmp_path / "t.trace"
    )


@pytest.mark.parametrize("column", ["addr", "size", "stream"])
@pytest.mark.parametrize("value", ["", "x", "-1", "1.5", "inf", "9" * 30])
def test_a_number_that_is_none_in_an_allocators_table_is_named(tmp_path, column, value):
    events, segments = write_allocations(tmp_path, [("alloc", 0, 100)], [(512, True)])
    row = {"action": "alloc", "addr": 1 << 30, "size": 100, "stream": 0, column: value}
    events.write_text(f"{','.join(row)}\n{','.join(map(str, row.values()))}\n")

    assert f"events.csv: row 0, {column}: must be a whole number >= 0" in refused(
        lambda path: read_allocations(path, segments), events
    )


CUT_ANYWHERE_STILL_WHOLE = {
    "PipeDream": "a line is a layer or an edge: nothing says how many there are",
    "TrioSim": "a line is an operator: nothing says how many there are",
    "gpu_copy": "a line is a measurement: nothing says how many there are",
}


@pytest.mark.parametrize("name", [name for name in WHOLE if name not in CUT_ANYWHERE_STILL_WHOLE])
@pytest.mark.parametrize("share", [0.3, 0.6, 0.9])
def test_a_file_that_is_cut_off_is_refused(tmp_path, name, share):
    path = write(tmp_path, name)
    content = path.read_bytes()
    path.write_bytes(content[: int(share * len(content))])

    refused(WHOLE[name], path)


# --- a newer version, with fields that are not known ------------------------------------------------------------------


def newer_trace(path):
    table = pq.read_table(path)
    pq.write_table(table.append_column("colour", [["red"] * len(table)]), path)


def newer_kineto(path):
    document = KINETO.document() | {"schemaVersion": 9, "colour": "red"}
    path.write_text(json.dumps(document | {"traceEvents": [event | {"colour": "red"} for event in KINETO.events]}))


def newer_export(path):
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE META_DATA_EXPORT SET value = '9.1' WHERE name = 'EXPORT_SCHEMA_VERSION'")
        connection.execute("ALTER TABLE CUPTI_ACTIVITY_KIND_KERNEL ADD COLUMN colour TEXT DEFAULT 'red'")


def newer_document(name, change):
    def write_newer(path):
        document = copy.deepcopy(DOCUMENTS[name][1])
        change(document)
        path.write_bytes(encoded(name, document))

    return write_newer


def newer_lines(mark, field):
    """Puts ``field`` behind each line that has the ``mark``."""

    def write_newer(path):
        lines = path.read_text().splitlines()
        path.write_text("\n".join(f"{line}{field}" if mark in line else line for line in lines))

    return write_newer


def paint(*lists):
    """Gives every entry of ``lists`` of a document a field that no version has."""

    def change(document):
        for key in lists:
            for entry in document[key]:
                entry["colour"] = "red"

    return change


def newer_execution(document):
    document["schema"] = "9.0.0"
    paint("nodes")(document)


def newer_snapshot(document):
    document["colour"] = "red"
    paint("segments")(document)
    for entry in (*document["segments"][0]["blocks"], *document["device_traces"][0]):
        entry["colour"] = "red"


NEWER = {
    "stepsim trace": newer_trace,
    "Kineto": newer_kineto,
    "Nsight Systems": newer_export,
    "chakra": newer_document("chakra", paint("workload_graph")),
    "chakra of protobuf": newer_document("chakra of protobuf", paint("nodes")),
    "execution trace": newer_document("execution trace", newer_execution),
    "execution trace of 1.1": newer_document("execution trace of 1.1", newer_execution),
    "memory timeline": newer_document("memory timeline", lambda entries: [entry.append(7) for entry in entries]),
    "memory snapshot": newer_document("memory snapshot", newer_snapshot),
    "PipeDream": newer_lines("parameter_size=", " -- colour=red"),
    "csv": newer_lines("NumDevsUsed", ", Colour = red"),
}


def like(found):
    """What can be compared of what a reader gives."""
    if isinstance(found, Trace):
        return found.events.to_dict()
    return {name: str(getattr(found, name)) for name in found.__dataclass_fields__ if name != "provenance"}


@pytest.mark.parametrize("name", NEWER)
def test_fields_of_a_newer_version_are_left_out_with_one_warning(tmp_path, name):
    path, read = write(tmp_path, name), WHOLE[name]
    before = like(read(path))
    NEWER[name](path)

    with pytest.warns(UserWarning, match=rf"^{path}: ") as told:
        after = like(read(path))

    assert after == before
    assert len(told) == 1


def test_columns_of_an_allocators_tables_that_are_not_known_are_told_once_a_table(tmp_path):
    events, segments = write_allocations(tmp_path, [("alloc", 0, 100)], [(512, True)])
    for path in (events, segments):
        first, *rows = path.read_text().splitlines()
        path.write_text("\n".join([f"{first},colour", *(f"{row},red" for row in rows), ""]))

    with pytest.warns(UserWarning, match="columns that are not known are left out: 'colour'") as told:
        read_allocations(events, segments)

    assert len(told) == 2
