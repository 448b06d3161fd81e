"""CSV tables of measurements, checked for the columns that a reader needs."""

from collections.abc import Iterable
from pathlib import Path

import pandas as pd

from stepsim.errors import FileError


def read_table(path: Path, columns: Iterable[str]) -> pd.DataFrame:
    """Raises `FileError` for what is no CSV, has no rows, or lacks one of ``columns``."""
    try:
        table = pd.read_csv(path)
    except (OSError, EOFError, ValueError) as error:
        raise FileError(path, "table", None, f"must be a readable CSV: {error}") from error
    need_columns(path, table, columns)
    if table.empty:
        raise FileError(path, "rows", 0, "must be > 0")
    return table


def need_columns(path: Path, table: pd.DataFrame, columns: Iterable[str]) -> None:
    """Raises `FileError` for the first of ``columns`` that is not there."""
    for column in columns:
        if column not in table:
            raise FileError(path, "column", column, "must be there")
