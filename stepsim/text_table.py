"""Tables of text, as the command line prints them."""

from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text


def plain(text: str) -> str:
    """``text`` with a question mark for each letter that would steer a terminal."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def plain_lines(text: str) -> str:
    """The same for ``text`` of several lines."""
    return "\n".join(plain(line) for line in text.split("\n"))


def print_table(console: Console, title: str, heads: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """A table under its title, columns of numbers to the right. Nothing is read as markup, nor steers the terminal."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    for place, head in enumerate(heads):
        numbers = all(str(row[place])[:1] in "+-0123456789" for row in rows)
        table.add_column(head, justify="right" if numbers else "left", overflow="fold")
    for row in rows:
        table.add_row(*[Text(plain_lines(str(cell))) for cell in row])
    console.print(Text(plain(title), style="bold"), soft_wrap=True)
    console.print(table)
