"""Columns and their files: what survives, and how a file that is something else is refused."""

import json
import os
import zipfile
from dataclasses import dataclass

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from stepsim.costmodels import Calibration
from stepsim.errors import FileError
from stepsim.plan import Plan
from stepsim.plan.builder import PlanBuilder
from stepsim.tables import (
    VERSION,
    Columns,
    Ragged,
    check_place,
    column_types,
    read_json,
    read_meta,
    read_zip,
    write_bytes,
    write_chunks,
    write_zip,
)
from stepsim.timeline import Timeline
from stepsim.traces.trace import COLUMNS, Trace
from stepsim.workloads import Workload

FORM = "stepsim-test"


@dataclass(frozen=True, eq=False)
class Pets(Columns):
    name: tuple[str, ...]
    legs: NDArray[np.int32]
    weight_kg: NDArray[np.float64]
    is_furry: NDArray[np.bool_]
    friends: Ragged


def pets(legs=(4, 2, 0)):
    return Pets(
        ("cat", "ärä", ""),
        np.array(legs, np.int32),
        np.array([4.0, -0.0, np.inf]),
        np.array([True, False, False]),
        Ragged.from_lists([[1, 2], [], [0]]),
    )


# --- columns --------------------------------------------------------------------------------------------------------


@given(st.lists(st.lists(st.integers(-(2**62), 2**62), max_size=4), max_size=6))
def test_ragged_lists_come_back_as_they_went_in(lists):
    ragged = Ragged.from_lists(lists)

    assert ragged.to_lists() == lists
    assert [ragged[index].tolist() for index in range(len(ragged))] == lists
    assert ragged.owners().tolist() == [index for index, entry in enumerate(lists) for _ in entry]
    assert ragged.is_whole


pair = st.tuples(st.integers(0, 4), st.integers(0, 9))


@given(st.lists(pair))
def test_lists_made_of_pairs_have_each_value_once_and_in_order(pairs):
    owners, values = np.array(pairs, np.int64).reshape(-1, 2).T

    found = Ragged.from_pairs(owners, values, 5)

    assert found.is_whole
    assert found.to_lists() == [sorted({value for owner, value in pairs if owner == place}) for place in range(5)]


@given(st.lists(st.lists(st.lists(st.integers(0, 9))), min_size=1))
def test_chained_lists_follow_each_other(parts):
    chained = Ragged.chained([Ragged.from_lists(lists) for lists in parts])

    assert chained.is_whole
    assert chained.to_lists() == [entry for lists in parts for entry in lists]


@pytest.mark.parametrize(
    "starts", [[], [0, 2], [1, 3], [0, 4], [0, 2, 1, 3]], ids=["no starts", "short", "late", "long", "backward"]
)
def test_starts_that_do_not_divide_the_values_are_not_whole(starts):
    assert not Ragged(np.array(starts, np.int64), np.array([7, 8, 9])).is_whole


def test_tables_are_equal_when_their_content_is():
    assert pets() == pets()
    assert pets() != pets(legs=(4, 2, 1))
    assert pets() != "pets"


def test_the_same_numbers_of_another_type_are_another_content():
    narrow, wide = pets(), pets()
    wide = Pets(wide.name, wide.legs.astype(np.int64), wide.weight_kg, wide.is_furry, wide.friends)

    assert narrow.digest() != wide.digest()


@given(st.lists(st.lists(st.integers(0, 3), max_size=3), min_size=1, max_size=4))
def test_the_same_values_cut_at_other_places_are_another_content(lists):
    moved = [*lists, []]

    assert digest_of(lists) != digest_of(moved)


def digest_of(lists):
    @dataclass(frozen=True, eq=False)
    class Lists(Columns):
        lists: Ragged

    return Lists(Ragged.from_lists(lists)).digest()


def test_a_table_declares_what_its_columns_hold():
    assert column_types(Pets) == {
        "name": str,
        "legs": np.int32,
        "weight_kg": np.float64,
        "is_furry": np.bool_,
        "friends": Ragged,
    }


# --- files of tables ------------------------------------------------------------------------------------------------


def test_a_table_survives_its_file_bit_for_bit(tmp_path):
    write_zip(tmp_path / "pets", {"format": FORM, "colour": "grey"}, {"pets": pets()})

    meta, tables = read_zip(tmp_path / "pets", FORM, {"pets": Pets})

    assert meta == {"format": FORM, "version": VERSION, "colour": "grey"}
    assert tables["pets"] == pets()


def test_an_empty_table_survives_its_file(tmp_path):
    none = Pets((), np.zeros(0, np.int32), np.zeros(0), np.zeros(0, bool), Ragged.from_lists([]))
    write_zip(tmp_path / "pets", {"format": FORM}, {"pets": none})

    assert read_zip(tmp_path / "pets", FORM, {"pets": Pets})[1]["pets"] == none


def test_meta_is_none_for_what_is_no_such_file(tmp_path):
    (tmp_path / "text").write_text("pets")
    with zipfile.ZipFile(tmp_path / "list", "w") as archive:
        archive.writestr("meta.json", "[1]")

    assert [read_meta(tmp_path / name) for name in ("text", "list", "nowhere", ".")] == [None] * 4


def rewritten(path, change):
    """A file of pets whose Parquet table was changed."""
    write_zip(path, {"format": FORM}, {"pets": pets()})
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    sink = pa.BufferOutputStream()
    pq.write_table(change(pq.read_table(pa.BufferReader(members["pets.parquet"]))), sink)
    members["pets.parquet"] = sink.getvalue().to_pybytes()
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)


def replaced(column, values):
    return lambda table: table.set_column(table.column_names.index(column), column, pa.array(values))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda table: table.drop_columns("legs"),
            "table pets: cannot be read: 'Field \"legs\" does not exist in schema'",
        ),
        (replaced("legs", ["four", "two", "none"]), "table pets: column legs must hold int32, got 'string'"),
        (replaced("legs", [4.0, 2.0, 0.0]), "table pets: column legs must hold int32, got 'double'"),
        (replaced("legs", [4, 2, None]), "table pets: column legs must hold int32, got 'int64'"),
        (replaced("name", [1, 2, 3]), "table pets: column name must hold str, got 'int64'"),
        (replaced("name", ["cat", None, "dog"]), "table pets: column name must hold str, got 'string'"),
        (replaced("friends", [1, 2, 3]), "table pets: column friends must hold Ragged, got 'int64'"),
    ],
    ids=["missing", "text for numbers", "fractions", "a hole", "numbers for text", "a nameless one", "no lists"],
)
def test_a_column_that_is_not_what_it_should_be_is_named(tmp_path, change, message):
    path = tmp_path / "pets"
    rewritten(path, change)

    with pytest.raises(FileError) as caught:
        read_zip(path, FORM, {"pets": Pets})

    assert str(caught.value) == f"{path}: {message}"


def test_a_file_without_a_table_is_refused(tmp_path):
    path = tmp_path / "pets"
    write_zip(path, {"format": FORM}, {})

    with pytest.raises(FileError, match=r"pets: table pets: cannot be read: .*no item named 'pets.parquet'"):
        read_zip(path, FORM, {"pets": Pets})


def test_a_file_of_another_format_is_refused_with_both_formats(tmp_path):
    path = tmp_path / "pets"
    write_zip(path, {"format": "stepsim-birds"}, {"pets": pets()})

    with pytest.raises(FileError) as caught:
        read_zip(path, FORM, {"pets": Pets})

    assert str(caught.value) == f"{path}: format: must be stepsim-test, got 'stepsim-birds'"


# --- every format of the package ------------------------------------------------------------------------------------


def save_plan(path):
    builder = PlanBuilder()
    gpu = builder.device("gpu0")
    stream = builder.stream("compute", gpu)
    x = builder.buffer(8, gpu, owner=stream)
    builder.compute(builder.work("F"), stream, writes=[x], allocates=[x])
    builder.compute(builder.work("B"), stream, reads=[x], releases=[x])
    builder.build().save(path)


def save_timeline(path):
    save_plan(path)
    Timeline.of(Plan.load(path), np.array([0.0, 1.0]), np.array([1.0, 2.0]), "measured").save(path)


def trace(num_events=3):
    columns = {
        name: pd.Series(["x"] * num_events, dtype="str") if dtype == "str" else np.arange(num_events).astype(dtype)
        for name, dtype in COLUMNS.items()
    }
    return Trace(events=pd.DataFrame(columns), provenance={"gpu": "none", "date": "2021-06-08"})


ZIPS = {"plan": (save_plan, Plan.load), "timeline": (save_timeline, Timeline.load)}
LOADERS = {
    **{name: load for name, (_, load) in ZIPS.items()},
    "workload": Workload.load,
    "trace": Trace.load,
}


def refusal(load, path):
    with pytest.raises(FileError) as caught:
        load(path)
    message = str(caught.value)
    assert message.startswith(f"{path}: ")
    assert "\n" not in message
    return message.removeprefix(f"{path}: ")


@pytest.mark.parametrize("kind", LOADERS)
@pytest.mark.parametrize(
    "content", [b"", b"not a file of ours", b"{", b"[1, 2]", b"null", b"\xff\xfe\x00", b"PK\x03\x04", b"PAR1PAR1"]
)
def test_a_file_of_something_else_is_refused_in_one_line(tmp_path, kind, content):
    path = tmp_path / kind
    path.write_bytes(content)

    refusal(LOADERS[kind], path)


@pytest.mark.parametrize("kind", LOADERS)
def test_a_file_that_is_not_there_is_refused_in_one_line(tmp_path, kind):
    assert "file: " in refusal(LOADERS[kind], tmp_path / "nowhere")


@pytest.mark.parametrize("kind", LOADERS)
def test_a_folder_is_refused_in_one_line(tmp_path, kind):
    assert "file: " in refusal(LOADERS[kind], tmp_path)


@pytest.mark.parametrize("kind", LOADERS)
def test_a_file_of_another_kind_is_refused_in_one_line(tmp_path, kind):
    path = tmp_path / "other"
    ZIPS["plan" if kind == "timeline" else "timeline"][0](path)

    refusal(LOADERS[kind], path)


@pytest.mark.parametrize("kind", ZIPS)
@pytest.mark.parametrize("share", [0.1, 0.5, 0.9, 0.999])
def test_a_truncated_file_is_refused_in_one_line(tmp_path, kind, share):
    save, load = ZIPS[kind]
    path = tmp_path / kind
    save(path)
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * share)])

    assert refusal(load, path) == f"format: must be stepsim-{kind}: the zip is damaged or cut off"


def zip_of(path, **members):
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(f"{name}.json", content)


@pytest.mark.parametrize("kind", ZIPS)
@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda path: path.write_bytes(b""), ": the file is empty"),
        (lambda path: path.write_bytes(b"\x7fELF" * 9), rf": the file is no zip, it begins with {b'ELF' * 5}"),
        (lambda path: zip_of(path, other="{}"), ": the zip has no meta.json"),
        (lambda path: zip_of(path, meta="["), ": the zip is damaged"),
        (lambda path: zip_of(path, meta="{}"), ", got none"),
        (lambda path: zip_of(path, meta='{"format": null}'), ", got null"),
    ],
    ids=["empty", "a program", "no meta", "torn meta", "no format", "null"],
)
def test_what_was_found_in_place_of_a_zip_of_tables_is_told(tmp_path, kind, make, problem):
    make(tmp_path / kind)

    assert refusal(LOADERS[kind], tmp_path / kind) == f"format: must be stepsim-{kind}{problem}"


@pytest.mark.parametrize(
    ("version", "told"), [({}, "none"), ({"version": None}, "null"), ({"version": 1}, "1"), ({"version": "2"}, "'2'")]
)
def test_another_version_is_refused_and_shown(tmp_path, version, told):
    zip_of(tmp_path / "plan", meta=json.dumps({"format": "stepsim-plan", **version}))
    (tmp_path / "workload").write_text(json.dumps({"format": "stepsim-workload", **version}))

    for kind in ("plan", "workload"):
        message = refusal(LOADERS[kind], tmp_path / kind)
        assert message == f"version: must be {VERSION}: another stepsim wrote it, got {told}"


@pytest.mark.parametrize("load", [Workload.load, Calibration.load])
def test_a_zip_of_tables_in_place_of_json_is_named_as_what_it_is(tmp_path, load):
    save_plan(tmp_path / "step.plan")

    message = refusal(load, tmp_path / "step.plan")

    assert message == f"format: must be stepsim-{load.__self__.__name__.lower()}, got 'stepsim-plan'"


@pytest.mark.parametrize("share", [0.1, 0.5, 0.99])
def test_a_truncated_trace_is_refused_in_one_line(tmp_path, share):
    path = tmp_path / "trace"
    trace().save(path)
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * share)])

    assert refusal(Trace.load, path).startswith("file: is not a trace")


@pytest.mark.parametrize("kind", ZIPS)
@settings(max_examples=60)
@given(place=st.floats(0, 1, exclude_max=True), byte=st.integers(0, 255))
def test_a_file_with_one_wrong_byte_is_refused_in_one_line_or_harmless(tmp_path_factory, kind, place, byte):
    save, load = ZIPS[kind]
    path = tmp_path_factory.getbasetemp() / kind
    save(path)
    original, content = load(path), bytearray(path.read_bytes())
    content[int(len(content) * place)] = byte
    path.write_bytes(content)

    try:
        loaded = load(path)
    except FileError as error:
        lines = str(error).splitlines()
    else:
        lines = ["as it was"] if loaded == original else []

    assert len(lines) == 1


def test_a_trace_survives_its_file(tmp_path):
    trace().save(tmp_path / "trace")

    loaded = Trace.load(tmp_path / "trace")

    pd.testing.assert_frame_equal(loaded.events, trace().events)
    assert loaded.provenance == trace().provenance


def test_a_trace_without_events_survives_its_file(tmp_path):
    trace(num_events=0).save(tmp_path / "trace")

    assert len(Trace.load(tmp_path / "trace").events) == 0


def foreign_trace(path, change, metadata):
    table = change(pa.Table.from_pandas(trace().events, preserve_index=False)).replace_schema_metadata(metadata)
    pq.write_table(table, path)


OURS = {"format": "stepsim-trace", "provenance": "{}"}


@pytest.mark.parametrize(
    ("change", "metadata", "message"),
    [
        (lambda table: table, {}, "format: must be stepsim-trace"),
        (lambda table: table, {"format": "birds"}, "format: must be stepsim-trace, got b'birds'"),
        (lambda table: table, {**OURS, "provenance": "{"}, "provenance: is not JSON: Expecting property name"),
        (lambda table: table.drop_columns("kind"), OURS, "columns: are missing, got ['kind']"),
        (replaced("kind", [1, 2, 3]), OURS, "kind: must hold str, got 'int64'"),
        (replaced("start_s", ["a", "b", "c"]), OURS, "start_s: must hold float64, got "),
    ],
    ids=["no format", "another format", "torn provenance", "no kind", "numbers for text", "text for numbers"],
)
def test_parquet_that_is_no_trace_is_refused(tmp_path, change, metadata, message):
    path = tmp_path / "trace"
    foreign_trace(path, change, metadata)

    assert refusal(Trace.load, path).startswith(message)


def test_json_of_another_format_is_refused(tmp_path):
    path = tmp_path / "pets.json"
    path.write_text(json.dumps({"format": "stepsim-birds"}))

    with pytest.raises(FileError, match=r"format: must be stepsim-test, got 'stepsim-birds'$"):
        read_json(path, FORM)


# --- nothing half written -------------------------------------------------------------------------------------------


def test_writing_makes_the_folders_on_its_way(tmp_path):
    write_bytes(tmp_path / "a" / "b" / "file", b"content")

    assert (tmp_path / "a" / "b" / "file").read_bytes() == b"content"


def test_a_file_where_a_folder_should_be_is_told(tmp_path):
    (tmp_path / "file").write_bytes(b"old")
    path = tmp_path / "file" / "plan"

    with pytest.raises(FileError) as caught:
        write_bytes(path, b"new")

    assert str(caught.value).startswith(f"{path}: output: cannot be written: ")
    assert (tmp_path / "file").read_bytes() == b"old"


def test_a_folder_where_the_file_should_be_is_told_and_nothing_is_left(tmp_path):
    (tmp_path / "plan").mkdir()

    with pytest.raises(FileError, match="plan: output: cannot be written"):
        write_bytes(tmp_path / "plan", b"new")

    assert [entry.name for entry in tmp_path.iterdir()] == ["plan"]


@pytest.mark.parametrize(
    ("problem", "raised", "message"),
    [
        (OSError(28, os.strerror(28)), FileError, "plan: output: cannot be written: No space left on device"),
        (KeyboardInterrupt(), KeyboardInterrupt, ""),
    ],
    ids=["disk full", "stopped"],
)
def test_a_write_that_fails_leaves_the_old_file_and_no_other(problem, raised, message, tmp_path):
    path = tmp_path / "plan"
    path.write_bytes(b"old")

    def chunks():
        yield b"n"
        raise problem

    with pytest.raises(raised, match=message):
        write_chunks(path, chunks())

    assert path.read_bytes() == b"old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["plan"]


def test_a_pipe_or_a_device_is_not_replaced_by_a_file(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)

    with pytest.raises(FileError, match="is no file, and would be replaced by a file"):
        write_bytes(pipe, b"new")

    assert pipe.is_fifo()


# --- asked before anything is written -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["new", "deep/er/new", "old", "away/../new", "linked"])
def test_a_place_where_a_file_can_come_to_is_fine_and_stays_as_it_is(tmp_path, name):
    (tmp_path / "old").write_bytes(b"old")
    (tmp_path / "linked").symlink_to("nowhere")

    check_place(tmp_path / name)

    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["linked", "old"]
    write_bytes(tmp_path / name, b"new")
    assert (tmp_path / name).read_bytes() == b"new"


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("folder", "cannot be written: Is a directory"),
        ("file/new", "cannot be written: Not a directory"),
        ("file/deep/er/new", "cannot be written: Not a directory"),
        ("x" * 300, "cannot be written: File name too long"),
        ("/dev/null", "is no file, and would be replaced by a file"),
    ],
)
def test_a_place_where_none_can_is_refused(tmp_path, name, problem):
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()

    with pytest.raises(FileError) as caught:
        check_place(tmp_path / name)

    assert str(caught.value) == f"{tmp_path / name}: output: {problem}"


@pytest.mark.parametrize("name", ["old", "new", "deep/er/new"])
def test_the_nearest_folder_must_let_files_be_made_in_it(tmp_path, monkeypatch, name):
    """Asked of the system, which lets an administrator do everything: so it is told here what to answer."""
    (tmp_path / "old").touch()
    asked = []
    monkeypatch.setattr(os, "access", lambda *question: bool(asked.append(question)))

    with pytest.raises(FileError, match=f"output: cannot be written: nothing can be made in {tmp_path}$"):
        check_place(tmp_path / name)

    assert asked == [(tmp_path, os.W_OK | os.X_OK)]
