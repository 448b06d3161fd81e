"""Progress on stderr, so that stdout holds results only."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

STDERR = Console(stderr=True)


@contextmanager
def progress(title: str) -> Iterator[Callable[[int, int], None]]:
    """A bar while the block runs; the block calls ``tick(done, all)``. Without a terminal it is one line at the end."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=STDERR) as bar:
        task = bar.add_task(title, total=None)
        try:
            yield lambda done, number: bar.update(task, completed=done, total=number)
        except BaseException:
            bar.live.transient = True  # What ended the block has a line of its own: nothing is left of the bar.
            bar.live.stop()
            bar.disable = True
            raise


def say(text: str, *, title: str = "") -> None:
    """Print ``text`` behind a bold ``title``; what looks like markup in either is text."""
    STDERR.print(Text.assemble((title, "bold"), text), soft_wrap=True)
