"""The command line: the verbs of the data flow. Results on stdout, progress on stderr.

A user's mistake is one line on stderr and exit code 2. With ``--json`` the last line on stdout is one JSON object.
"""

import sys
import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Annotated, Any

import typer

from stepsim import __version__
from stepsim.commands import GROUPS, VERBS
from stepsim.errors import StepsimError
from stepsim.text_table import plain

UsageError: Any = typer.BadParameter.__base__
"""What typer raises for a wrong command line. Where it is defined differs between versions; its subclass is public."""


def _app_of(verbs: Iterable[Callable[..., None]], about: str | None = None) -> typer.Typer:
    app = typer.Typer(
        help=about,
        add_completion=False,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["--help", "-h"]},
    )
    for verb in verbs:
        app.command(verb.__name__.removesuffix("_"))(verb)
    return app


app = _app_of(VERBS)
for group in GROUPS:
    app.add_typer(_app_of(group.verbs, group.help), name=group.noun)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; the exit code."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    with warnings.catch_warnings():
        warnings.showwarning = _warn
        return _run(given)


def _run(given: list[str]) -> int:
    try:
        code = app(args=given or ["--help"], prog_name="stepsim", standalone_mode=False)
    except StepsimError as error:
        return _refuse(str(error))
    except UsageError as error:
        command = error.ctx.command_path if error.ctx else "stepsim"
        return _refuse(f"{error.format_message().rstrip('.')}; see {command} --help")
    except (KeyboardInterrupt, typer.Abort):
        return 130
    return code if isinstance(code, int) else 0


def _refuse(problem: str) -> int:
    print("stepsim:", plain(" ".join(problem.splitlines())), file=sys.stderr)
    return 2


def _warn(message: Warning | str, category: type[Warning], *_: object, **__: object) -> None:
    """One line, as for a refusal; what warns developers of other packages is not for users."""
    if issubclass(category, UserWarning):
        print("stepsim: warning:", plain(" ".join(str(message).splitlines())), file=sys.stderr)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"stepsim {__version__}")
        raise typer.Exit


@app.callback()
def top(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """How long will one training step take, and how much memory, run this way on that machine?"""
