"""``python -m experiments list | run NAME [--quick] [--json] [-o FOLDER]``: each file here answers one question.

Exit code 0: all claims hold and are as expected; 1: one is not; 2: a user's mistake, told in one line.
"""

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from experiments.experiment import EXPECTED, Claim, differences, load, names, question
from stepsim.commands.one_line import refuse, warnings_in_one_line
from stepsim.commands.outputs import no_empty_folder
from stepsim.errors import StepsimError


def main(arguments: Sequence[str] | None = None) -> int:
    given = _parser().parse_args(arguments)
    with warnings_in_one_line("experiments"):
        try:
            return _list() if given.verb == "list" else _run(given.name, given.output, given.quick, given.json)
        except StepsimError as error:
            problem = str(error)
        except OSError as error:
            problem = f"{error.filename}: {error.strerror}"
    return refuse("experiments", problem)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m experiments", description="Each file here answers one question.")
    verbs = parser.add_subparsers(dest="verb", required=True)
    verbs.add_parser("list", help="names and questions")
    run = verbs.add_parser("run", help="answer one")
    run.add_argument("name", metavar="NAME")
    run.add_argument("--quick", action="store_true", help="the smallest run that goes through every part")
    run.add_argument("--json", action="store_true", help="end with one line of JSON")
    run.add_argument("-o", "--output", type=Path, metavar="FOLDER", help="where to write; experiments-output/NAME")
    return parser


def _list() -> int:
    width = max(map(len, names()), default=0)
    for name in names():
        print(f"{name:{width}}  {question(name)}")
    return 0


def _run(name: str, output: Path | None, quick: bool, as_json: bool) -> int:
    experiment = load(name)
    folder = Path("experiments-output") / name if output is None else output
    began_s = time.perf_counter()
    with no_empty_folder(folder):
        _make(folder)
        claims = list(experiment.run(folder, quick=quick))
    seconds = time.perf_counter() - began_s
    # A quick run is smaller, so its numbers are others; only its claims must hold.
    unexpected = [] if quick else differences(claims, EXPECTED / f"{name}.json")
    for claim in claims:
        print(_line(claim))
    for line in unexpected:
        print("not as expected:", line)
    if as_json:
        facts = {"experiment": name, "seconds": seconds, "claims": [claim.as_json() for claim in claims]}
        print(json.dumps(facts | {"unexpected": unexpected}, allow_nan=False))
    return 0 if all(claim.holds for claim in claims) and not unexpected else 1


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StepsimError(f"{folder}: cannot be a folder: {error.strerror}") from error


def _line(claim: Claim) -> str:
    paper = "" if claim.paper is None else f" (paper: {_shown(claim.paper)})"
    return f"{'holds' if claim.holds else 'FAILS'}  {claim.claim}: {_shown(claim.ours)}{paper}"


def _shown(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    sys.exit(main())
