"""Tables of an Nsight Systems export, read without trusting the file.

The file is opened read-only and treated as bytes of numbers and names: nothing in it is executed. What is read must be
plain tables, since the view or the generated column of a stranger is code; and SQLite may do nothing but read.
"""

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pandas as pd

from stepsim.errors import FileError

ROWS_AT_ONCE = 2**16

LONGEST_TEXT = 2**20
"""Bytes of one name; templates of kernels reach some tens of kilobytes."""

_MAGIC = b"SQLite format 3\0"
_ALLOWED = {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_PRAGMA, sqlite3.SQLITE_TRANSACTION}


@dataclass(frozen=True, slots=True)
class Export:
    """An open export. ``tables`` are its plain tables, each with its columns."""

    path: str | Path
    connection: sqlite3.Connection
    tables: Mapping[str, frozenset[str]]
    file_bytes: int

    def integers(
        self,
        table: str,
        columns: Sequence[str],
        optional: Mapping[str, int] | None = None,
        texts: Sequence[str] = (),
    ) -> pd.DataFrame:
        """Columns of integers; no row where the export lacks the table, since tables are written lazily.

        ``optional`` columns may be missing or NULL, and then hold the given value. ``texts`` are columns of text, empty
        where they are missing or NULL. Raises `FileError` for a missing column and for a value of another type.
        """
        defaults: dict[str, int | str] = {**(optional or {}), **dict.fromkeys(texts, "")}
        there = [*columns, *(column for column in defaults if column in self.tables.get(table, ()))]
        read = pd.DataFrame(self._rows(table, there) if there else [], columns=there, dtype=object)
        frame = read.assign(**{column: default for column, default in defaults.items() if column not in read})
        for column in frame:
            values = frame[column].where(frame[column].notna(), defaults.get(str(column)))
            frame[column] = self._typed(table, str(column), values, str if column in texts else int)
        return frame

    def names(self) -> dict[int, str]:
        """What the numbers stand for that other tables have in the place of text."""
        rows = self.integers("StringIds", ["id"], texts=["value"])
        return dict(zip(rows["id"], rows["value"], strict=True))

    def named(self, field: str, numbers: "pd.Series[int]", names: Mapping[int, str]) -> "pd.Series[str]":
        """The text of each number of ``field``. Raises `FileError` for one that ``names`` lacks."""
        unknown = numbers[~numbers.isin(list(names))]
        if not unknown.empty:
            raise FileError(self.path, field, int(unknown.iloc[0]), "must be an id of StringIds")
        return numbers.map(names).astype("str")

    def _typed(self, table: str, column: str, values: "pd.Series[Any]", kind: type) -> "pd.Series[Any]":
        for value in values:
            if not isinstance(value, kind):
                wanted = "text" if kind is str else "an integer"
                raise FileError(self.path, f"{table}.{column}", value, f"must be {wanted}, not {type(value).__name__}")
        return values.astype("str" if kind is str else "int64")

    def _rows(self, table: str, columns: Sequence[str]) -> list[tuple[Any, ...]]:
        if table not in self.tables:
            return []
        missing = [column for column in columns if column not in self.tables[table]]
        if missing:
            raise FileError(self.path, f"{table}.{missing[0]}", None, "is missing: this column is needed")
        names = ", ".join(f'"{column}"' for column in columns)
        rows: list[tuple[Any, ...]] = []
        try:
            cursor = self.connection.execute(f'SELECT {names} FROM "{table}"')
            while some := cursor.fetchmany(ROWS_AT_ONCE):
                rows += some
                if len(rows) > self.file_bytes:
                    raise FileError(self.path, table, len(rows), "has more rows than the file has bytes: is damaged")
        except (sqlite3.Error, OverflowError, UnicodeDecodeError) as error:
            raise FileError(self.path, table, None, f"is damaged: {error}") from error
        return rows


@contextmanager
def opened(path: str | Path) -> Iterator[Export]:
    """The export ``path``. Raises `FileError` for a file that cannot be read or is no SQLite database."""
    file_bytes = _checked_bytes(path)
    address = f"file:{quote(str(Path(path).absolute()))}?mode=ro&immutable=1"
    try:
        connection = sqlite3.connect(address, uri=True)
    except sqlite3.Error as error:
        raise FileError(path, "file", None, f"cannot be read: {error}") from error
    try:
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LONGEST_TEXT)
        connection.execute("PRAGMA trusted_schema = OFF")
        connection.execute("PRAGMA cell_size_check = ON")
        connection.set_authorizer(_only_reading)
        yield Export(path, connection, _tables(path, connection), file_bytes)
    finally:
        connection.close()


def _checked_bytes(path: str | Path) -> int:
    try:
        with Path(path).open("rb") as file:
            head = file.read(len(_MAGIC))
        file_bytes = Path(path).stat().st_size
    except OSError as error:
        raise FileError(path, "file", None, f"cannot be read: {error.strerror}") from error
    if head != _MAGIC:
        raise FileError(path, "file", head, "is no SQLite database")
    return file_bytes


def _only_reading(action: int, *_: str | None) -> int:
    return sqlite3.SQLITE_OK if action in _ALLOWED else sqlite3.SQLITE_DENY


def _tables(path: str | Path, connection: sqlite3.Connection) -> dict[str, frozenset[str]]:
    """Plain tables and their plain columns. A virtual table has no page of its own."""
    try:
        listed = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table' AND rootpage > 0").fetchall()
        return {name: _columns(connection, name) for (name,) in listed if isinstance(name, str) and name.isidentifier()}
    except (sqlite3.Error, OverflowError, UnicodeDecodeError) as error:
        raise FileError(path, "file", None, f"is a damaged SQLite database: {error}") from error


def _columns(connection: sqlite3.Connection, table: str) -> frozenset[str]:
    """Generated columns are hidden ones."""
    rows = connection.execute(f'PRAGMA table_xinfo("{table}")').fetchall()
    return frozenset(name for _, name, *_, hidden in rows if hidden == 0)
