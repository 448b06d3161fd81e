"""What a program tells its user besides results: one line on stderr for a mistake, and one for each warning."""

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from stepsim.text_table import plain


def refuse(program: str, problem: str) -> int:
    """Print why nothing came of it; gives the exit code of a user's mistake."""
    _print(program, problem)
    return 2


@contextmanager
def warnings_in_one_line(program: str) -> Iterator[None]:
    """Within, a warning is told as a refusal is; what warns developers of other packages is not for users."""

    def tell(message: Warning | str, category: type[Warning], *_: object, **__: object) -> None:
        if issubclass(category, UserWarning):
            _print(f"{program}: warning", str(message))

    with warnings.catch_warnings():
        warnings.showwarning = tell
        yield


def _print(speaker: str, text: str) -> None:
    print(f"{speaker}:", plain(" ".join(text.splitlines())), file=sys.stderr)
