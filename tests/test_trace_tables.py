import io
import json

import pandas as pd
import pytest
from rich.console import Console

from stepsim.text_table import plain
from stepsim.trace_tables import LONGEST_TEXT, print_tables, tables_as_json


def printed(**columns):
    console = Console(file=io.StringIO(), width=200)
    print_tables({"a_title": pd.DataFrame(columns)}, console)
    title, _, heads, _, *rows = console.file.getvalue().splitlines()
    return title.strip(), heads.split(), [row.strip() for row in rows if row.strip()]


@pytest.mark.parametrize(
    ("column", "value", "head", "cell"),
    [
        ("median_s", 12.5e-6, "median", "12.5 us"),
        ("largest_bytes", 3 * 2**20, "largest", "3.00 MiB"),
        ("memory_bytes", 0, "memory", "-"),
        ("bytes_per_s", 25.6e9, "rate", "25.60 GB/s"),
        ("bytes_per_s", 0.0, "rate", "-"),
        ("busy_share", 0.256, "busy", "25.6%"),
        ("share", 1, "share", "100.0%"),
        ("count", 12, "count", "12"),
    ],
)
def test_the_end_of_a_column_s_name_tells_its_unit(column, value, head, cell):
    assert printed(**{column: [value]}) == ("a title", [head], [cell])


def test_long_names_are_cut_and_nothing_in_them_is_markup_or_steers_the_terminal():
    _, _, rows = printed(name=["k" * 500, "[red]k[/red]", "\x1b[31mk\n"])

    assert rows == ["k" * (LONGEST_TEXT - 1) + "…", "[red]k[/red]", "?[31mk?"]


def test_letters_of_any_script_are_plain():
    assert plain("Größe 大小 a b") == "Größe 大小 a b"


def test_as_json_tables_have_all_of_a_name_and_si_units():
    tables = {"a": pd.DataFrame({"name": ["k" * 500], "total_s": [0.5], "count": [2]}), "b": pd.DataFrame({"x": [1]})}

    facts = json.loads(json.dumps(tables_as_json(tables), allow_nan=False))

    assert facts == {"a": [{"name": "k" * 500, "total_s": 0.5, "count": 2}], "b": [{"x": 1}]}
