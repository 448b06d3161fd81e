"""Run the command line in this process, as a test sees it."""

import contextlib
import io
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer

from stepsim.cli import app, main

ROOT = Path(__file__).parents[1]


@dataclass(frozen=True)
class Ran:
    """What one command gave."""

    code: int
    out: str
    err: str

    @property
    def facts(self) -> Mapping[str, Any]:
        """The JSON object on the last line; ``NaN`` and ``Infinity`` are no JSON."""
        return json.loads(self.out.splitlines()[-1], parse_constant=refuse_constant)


def refuse_constant(name: str) -> None:
    raise AssertionError(f"{name} is no JSON")


def stepsim(*arguments: object) -> Ran:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main([str(argument) for argument in arguments])
    return Ran(code, out.getvalue(), err.getvalue())


def in_a_new_process(*arguments: object, **environment: str) -> "subprocess.CompletedProcess[str]":
    """The same in a process of its own, as a shell starts it."""
    program = "import sys; from stepsim.cli import main; sys.exit(main(sys.argv[1:]))"
    return subprocess.run(
        [sys.executable, "-c", program, *map(str, arguments)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
    )


def done(*arguments: object) -> Ran:
    """A command that must succeed."""
    ran = stepsim(*arguments)
    assert ran.code == 0, ran.err
    return ran


def refused(*arguments: object) -> str:
    """The message of a command that must fail as users' mistakes do: one line, exit code 2, and nothing written.

    Warnings may stand before it.
    """
    before = listing()
    ran = stepsim(*arguments)
    lines = [line for line in ran.err.splitlines() if not line.startswith("stepsim: warning: ")]
    assert ran.code == 2, (ran.out, ran.err)
    assert len(lines) == 1, ran.err
    assert lines[0].startswith("stepsim: ")
    assert ran.out == ""
    assert listing() == before
    return lines[0].removeprefix("stepsim: ")


def commands() -> dict[str, Any]:
    """Every command by the words that name it, those of a group with the group's noun before."""
    found = {}
    for name, command in typer.main.get_command(app).commands.items():
        below = getattr(command, "commands", None)
        found |= {name: command} if below is None else {f"{name} {verb}": under for verb, under in below.items()}
    return found


def listing() -> dict[str, bytes]:
    """Every file in the working directory, hidden ones too; what Python compiles aside."""
    folder = Path.cwd()
    found = (Path(where) / name for where, _, names in os.walk(folder) for name in names)
    return {str(path.relative_to(folder)): path.read_bytes() for path in found if "__pycache__" not in path.parts}
