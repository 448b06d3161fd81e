"""Whatever a file is damaged to, its reader gives a trace that is whole, or says in one line what is wrong.

Kineto traces have a test of their own.
"""

import copy
import gzip
import sqlite3
import warnings
from contextlib import closing, suppress
from functools import reduce

import pytest
from each_format import DOCUMENTS, TEXTS, encoded, write_beside, write_export
from hypothesis import given, settings
from hypothesis import strategies as st

from stepsim import StepsimError, Trace
from stepsim.traces.log_lines import LARGEST_BYTES
from stepsim.traces.nsys import read_nsys

LONGEST_MESSAGE = 600
"""Paths of tests take up to 200 of it."""

# Numbers at their borders, numbers of other scripts, what ends lines, and what opens or parts values.
TOKENS = ["nan", "inf", "-1", "0", "-0", "1.5", "1e999", "1e-320", "9" * 25, "9" * 5000, "9223372036854775808", "1_0"]
TOKENS += ["\u0663", "\u00b2", "\0", "\n", "\r", "\x0b", "\u2028", "\u0085", "\\ud800", "\t", " "]
TOKENS += ['"', ",", ";", ":", "[", "]", "{", "}", "N/A", "true", "null", ""]
PUT = st.sampled_from([token.encode() for token in TOKENS]) | st.binary(max_size=3)

VALUES = [None, True, 0, -1, 1.5, 1e300, float("nan"), float("inf"), 2**50 + 1, 2**63 - 1, 2**63, 10**30]
VALUES += ["", "5", "x", "9" * 30, "\u0663", "\ud800", "a\nb", "\0", [], [[]], [None], [1, 2, 3], {}, {"a": 1}]
VALUES += ["Tensor(float)", "GenericList[Tensor(float)]"]

CELLS = [
    None,
    -1,
    0,
    2**31,
    2**32,
    2**50 + 1,
    2**62,
    2**63 - 1,
    -(2**63),
    1.5,
    1e300,
    "",
    "x",
    "5",
    "step 9",
    "a\nb",
    b"\xff",
]


def check(read, path):
    """Reads ``path``: a whole trace, or one line."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            warnings.simplefilter("ignore", UserWarning)
            found = read(path)
    except StepsimError as error:
        message = str(error)
        assert message.startswith(f"{path.parent}")
        assert len(message.splitlines()) == 1, message
        assert len(message) < LONGEST_MESSAGE, message
    else:
        if isinstance(found, Trace):
            check_whole(found, path.with_name("again"))


def check_whole(trace, path):
    """It has events, with times and sizes that can be, and its file gives it back."""
    events = trace.events
    assert len(events) > 0
    assert (events[["start_s", "duration_s", "size_bytes", "flop"]] >= 0).all(axis=None)
    assert (events["size_bytes"] <= LARGEST_BYTES).all()
    trace.save(path)
    again = Trace.load(path)
    assert again.events.equals(events)
    assert again.provenance == trace.provenance


@st.composite
def damaged(draw, content):
    """``content`` with pieces replaced, moved or left out; now and then zipped, before or after."""
    zipped = draw(st.sampled_from(["no", "no", "no", "whole", "damaged"]))
    content = gzip.compress(content, mtime=0) if zipped == "damaged" else content
    for _ in range(draw(st.integers(0 if zipped == "whole" else 1, 4))):
        begin, length = draw(st.integers(0, len(content))), draw(st.integers(0, 30))
        piece = draw(PUT | st.just(content[begin : begin + length] * 2) | st.just(content[begin + length :]))
        content = content[:begin] + piece + content[begin + length :]
    return gzip.compress(content, mtime=0) if zipped == "whole" else content


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("damaged")
    write_beside(folder)
    return folder


EVERY_FORMAT = {**TEXTS, **{name: (read, encoded(name, whole)) for name, (read, whole) in DOCUMENTS.items()}}


@pytest.mark.parametrize("name", EVERY_FORMAT)
@given(data=st.data())
@settings(max_examples=150)
def test_damaged_bytes_give_a_whole_trace_or_one_line(folder, name, data):
    read, whole = EVERY_FORMAT[name]
    path = folder / "all_reduce.log"
    path.write_bytes(data.draw(damaged(whole.encode() if isinstance(whole, str) else whole)))

    check(read, path)


def places(value):
    """The keys that lead to each value within ``value``."""
    match value:
        case dict():
            inside = value.items()
        case list() | tuple():
            inside = enumerate(value)
        case _:
            return
    for key, below in inside:
        yield (key,)
        yield from ((key, *rest) for rest in places(below))


def change(document, place, value):
    """Puts ``value`` at ``place``; a tuple becomes a list, as for any other writer."""
    *way, last = place
    owner = reduce(lambda within, key: within[key], way, document)
    if isinstance(owner, dict | list):
        owner[last] = value


@pytest.mark.parametrize("name", DOCUMENTS)
@given(data=st.data())
@settings(max_examples=150)
def test_any_value_in_any_place_gives_a_whole_trace_or_one_line(folder, name, data):
    read, whole = DOCUMENTS[name]
    document = copy.deepcopy(whole)
    for _ in range(data.draw(st.integers(1, 3))):
        found = list(places(document))
        change(document, data.draw(st.sampled_from(found)), copy.deepcopy(data.draw(st.sampled_from(VALUES))))
    path = folder / "document.json"
    path.write_bytes(encoded(name, document))

    check(read, path)


@pytest.fixture(scope="module")
def export(folder):
    return write_export(folder / "whole.sqlite").read_bytes()


def columns_of(connection):
    """Each table with each of its columns."""
    tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    return [(table, row[1]) for table in tables for row in connection.execute(f"PRAGMA table_info({table})")]


@given(data=st.data())
@settings(max_examples=150)
def test_any_cell_or_table_of_an_export_may_be_wrong(folder, export, data):
    path = folder / "damaged.sqlite"
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.deserialize(export)
        columns = columns_of(connection)
        for _ in range(data.draw(st.integers(1, 3))):
            table, column = data.draw(st.sampled_from(columns))
            how = data.draw(st.sampled_from(["cell", "cell", "cell", "column", "table", "twice"]))
            statement, values = {
                "cell": (f"UPDATE {table} SET {column} = ?", [data.draw(st.sampled_from(CELLS))]),
                "column": (f"ALTER TABLE {table} DROP COLUMN {column}", []),
                "table": (f"DROP TABLE {table}", []),
                "twice": (f"INSERT INTO {table} SELECT * FROM {table}", []),
            }[how]
            with suppress(sqlite3.Error):  # not every table takes every value, and some are gone already
                connection.execute(statement, values)
        connection.commit()
        path.write_bytes(connection.serialize())

    check(read_nsys, path)
