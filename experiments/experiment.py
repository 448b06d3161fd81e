"""What an experiment is: a module with a question, a run, and claims that can fail.

A module of this folder is an experiment if it has a docstring, whose first line is its question, and

    def run(folder: Path, *, quick: bool) -> list[Claim]

which writes its tables and pictures to ``folder`` and gives one `Claim` for each thing that it set out to show.
``quick`` asks for the smallest run that still goes through every part.
"""

import importlib
import math
import pkgutil
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol, cast

import orjson

from stepsim.errors import FileError, StepsimError

HERE = Path(__file__).parent
EXPECTED = HERE / "expected"
"""A NAME.json for each experiment whose results can be expected: ``rel_tolerance``, and ``claims`` as in ``--json``."""

Value = float | str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """One statement, with what a paper (or a bound) says of it, what we found, and whether it holds.

    ``paper`` is None where nothing was published. Numbers are finite: JSON has no other.
    """

    claim: str
    ours: Value
    holds: bool
    paper: Value = None

    def __post_init__(self) -> None:
        for name, value in (("paper", self.paper), ("ours", self.ours)):
            if isinstance(value, float) and not math.isfinite(value):
                raise StepsimError(f"claim {self.claim!r}: {name}: must be finite, got {value}")

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


class Experiment(Protocol):
    """A module of this folder."""

    __name__: str
    __doc__: str | None

    def run(self, folder: Path, *, quick: bool) -> Sequence[Claim]:
        """Write tables and pictures to ``folder``, and say what was found."""


def names() -> list[str]:
    """The modules of this folder that have a `run`, in order of their names."""
    found = (module.name for module in pkgutil.iter_modules([str(HERE)]) if not module.name.startswith("_"))
    return sorted(name for name in found if "\ndef run(" in (HERE / f"{name}.py").read_text(encoding="utf-8"))


def load(name: str) -> Experiment:
    """Raises `StepsimError` for a name that is no experiment."""
    if name not in names():
        raise StepsimError(f"unknown experiment {name!r}; there are {', '.join(names()) or 'none'}")
    return cast(Experiment, importlib.import_module(f"experiments.{name}"))


def question(name: str) -> str:
    """The first line of the module's docstring."""
    return (load(name).__doc__ or "").strip().partition("\n")[0]


def differences(claims: Iterable[Claim], path: Path) -> list[str]:
    """One line for each claim that is not as the file ``path`` expects; none if there is no such file.

    Numbers may differ by ``rel_tolerance`` of the expected one. Raises `FileError` for a file of another form.
    """
    if not path.exists():
        return []
    try:
        document = orjson.loads(path.read_bytes())
        tolerance = float(document["rel_tolerance"])
        expected = {entry["claim"]: entry for entry in document["claims"]}
        wanted = {text: (entry["ours"], entry["holds"]) for text, entry in expected.items()}
    except (ValueError, KeyError, TypeError) as error:
        raise FileError(path, "file", None, f"must hold rel_tolerance and claims: {error}") from error
    found = {claim.claim: claim for claim in claims}
    lines = [f"{text!r} was expected and is not claimed" for text in wanted if text not in found]
    for text, claim in found.items():
        if text not in wanted:
            lines.append(f"{text!r} was not expected")
        elif (claim.holds is not wanted[text][1]) or not _close(claim.ours, wanted[text][0], tolerance):
            lines.append(f"{text!r}: expected {wanted[text][0]}, got {claim.ours}")
    return lines


def _close(ours: Value, expected: Value, tolerance: float) -> bool:
    if isinstance(ours, int | float) and isinstance(expected, int | float):
        return math.isclose(ours, expected, rel_tol=tolerance, abs_tol=1e-12)
    return ours == expected
