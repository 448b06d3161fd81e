"""CSV tables of measurements, plain or gzipped, checked for the columns that a reader needs."""

import io
from collections.abc import Iterable
from pathlib import Path

import pandas as pd

from stepsim.errors import FileError
from stepsim.traces.whole_files import read_whole

LARGEST_FILE_BYTES = 2**26
"""Unzipped: a million rows. The largest public table has 4 MB; a cell of one letter takes 30 times that in memory."""


def read_table(path: Path, columns: Iterable[str]) -> pd.DataFrame:
    """Raises `FileError` for what is no CSV, has no rows, or lacks one of ``columns``."""
    table = read_csv(path)
    need_columns(path, table, columns)
    if table.empty:
        raise FileError(path, "rows", 0, "must be > 0")
    return table


def read_csv(path: str | Path) -> pd.DataFrame:
    """Raises `FileError` for what is no CSV or holds more than `LARGEST_FILE_BYTES`."""
    content = read_whole(path, LARGEST_FILE_BYTES)
    try:
        return pd.read_csv(io.BytesIO(content))
    except ValueError as error:
        raise FileError(path, "table", None, f"must be a readable CSV: {error}") from error


def need_columns(path: str | Path, table: pd.DataFrame, columns: Iterable[str]) -> None:
    """Raises `FileError` for the first of ``columns`` that is not there."""
    for column in columns:
        if column not in table:
            raise FileError(path, "column", column, "must be there")
