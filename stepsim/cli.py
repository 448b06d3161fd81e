"""The command line: the verbs of the data flow. Results on stdout, progress on stderr.

A user's mistake is one line on stderr and exit code 2. With ``--json`` the last line on stdout is one JSON object.
"""

import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Annotated, Any

import typer

from stepsim import __version__
from stepsim.commands import GROUPS, VERBS
from stepsim.commands.one_line import refuse, warnings_in_one_line
from stepsim.errors import StepsimError

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
    with warnings_in_one_line("stepsim"):
        return _run(given)


def _run(given: list[str]) -> int:
    try:
        _refuse_empty(given)
        code = app(args=given or ["--help"], prog_name="stepsim", standalone_mode=False)
    except StepsimError as error:
        return refuse("stepsim", str(error))
    except UsageError as error:
        command = error.ctx.command_path if error.ctx else "stepsim"
        problem = error.format_message().rstrip(".") + _value_behind(error)
        return refuse("stepsim", f"{problem}; see {command} --help")
    except (KeyboardInterrupt, typer.Abort):
        return 130
    return code if isinstance(code, int) else 0


def _refuse_empty(given: list[str]) -> None:
    """As a file, an empty name would be the working directory; mostly it is a variable of the shell that is not set."""
    if "" in given:
        before = ["stepsim", *given][given.index("")]
        raise StepsimError(f"what follows {before} is empty")


def _value_behind(error: Any) -> str:
    """The value that was given, of which some versions of typer tell only what it should be."""
    errors = getattr(error.__cause__, "errors", None)
    told = repr(str(errors()[0]["input"])) if errors else ""
    return f", got {told}" if told and told not in error.format_message() else ""


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
