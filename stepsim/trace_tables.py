"""Tables of a trace for a person: the end of a column's name tells its unit, and no text of a trace is markup."""

from collections.abc import Mapping
from typing import Any

import pandas as pd
from rich.console import Console

from stepsim.text_table import plain, print_table
from stepsim.units import format_bytes, format_seconds

LONGEST_TEXT = 60
"""Kernels have names of hundreds of letters."""

UNKNOWN = "-"


def print_tables(tables: Mapping[str, pd.DataFrame], console: Console) -> None:
    """One under the other, each under its title."""
    for title, table in tables.items():
        heads = [_head(column) for column in table.columns]
        cells = [[_cell(column, value) for value in table[column]] for column in table.columns]
        print_table(console, _words(title), heads, list(zip(*cells, strict=True)))


def tables_as_json(tables: Mapping[str, pd.DataFrame]) -> dict[str, list[dict[Any, Any]]]:
    """For each table its rows, in SI units."""
    return {title: table.to_dict(orient="records") for title, table in tables.items()}


def _cell(column: str, value: Any) -> str:
    if column.endswith("bytes_per_s"):
        return f"{value / 1e9:.2f} GB/s" if value else UNKNOWN
    if column.endswith("_bytes"):
        return format_bytes(value) if value else UNKNOWN
    if column.endswith("_s"):
        return format_seconds(value)
    if column.endswith("share"):
        return f"{value:.1%}"
    text = plain(str(value))
    return text if len(text) <= LONGEST_TEXT else f"{text[: LONGEST_TEXT - 1]}…"


def _head(column: str) -> str:
    """Cells show units, so heads need not; a share is told from a time of the same name by its cells."""
    named = column.removesuffix("_per_s").removesuffix("_bytes").removesuffix("_s").removesuffix("_share")
    return "rate" if column.endswith("_per_s") else _words(named)


def _words(name: str) -> str:
    return name.replace("_", " ")
