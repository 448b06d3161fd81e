"""Options that several verbs share, and how a verb prints what it found."""

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.console import Console

from stepsim.text_table import plain_lines

if TYPE_CHECKING:
    from stepsim.machines import Machine
    from stepsim.plan import Costs

PIPED_WIDTH = 160
"""Columns of a table that goes to no terminal: enough for each of them, where rich would take 80."""

STDOUT = Console(width=None if sys.stdout.isatty() or "COLUMNS" in os.environ else PIPED_WIDTH)

A_FACTORY = "package.module:factory, where factory(batch) gives (module, inputs, optimizer or None)."

AsJson = Annotated[bool, typer.Option("--json", help="End with one line of JSON.")]
Output = Annotated[Path, typer.Option("--output", "-o", help="Where to write.")]
TimelineOutput = Annotated[Path | None, typer.Option("--output", "-o", help="Write the timeline to this file.")]
Batch = Annotated[int, typer.Option(min=1, help="Batch size that the factory is given.")]
Threads = Annotated[int | None, typer.Option(min=1, help="Threads of each op; all cores but one by default.")]
FactoryPath = Annotated[str, typer.Argument(metavar="FACTORY", help=A_FACTORY)]
WorkloadFile = Annotated[
    Path,
    typer.Argument(metavar="WORKLOAD", help="A file that stepsim capture wrote, or a name of stepsim workloads."),
]
PlanFile = Annotated[Path, typer.Argument(metavar="PLAN", help="A file that stepsim plan wrote.")]
EngineName = Literal["auto", "reference", "compiled"]
SharingName = Literal["leftover", "fair"]
AccountingName = Literal["exact", "caching"]
MachineName = Annotated[str, typer.Option(help="A shipped machine, a .toml file, or this_cpu.")]
CalibrationFile = Annotated[
    Path | None,
    typer.Option(
        help="A file that stepsim fit wrote, or a name that stepsim calibrations lists; by default the one that ships "
        "for the GPU of the machine, else a bound from the data sheet."
    ),
]


def machine_and_costs(name: str, calibration: Path | None) -> "tuple[Machine, Costs, str]":
    """The machine called ``name``, what prices its tasks, and what a reader must know of the predicted time."""
    from stepsim.costmodels import Calibration, DataSheetCosts
    from stepsim.costmodels.shipped import calibration_of, shipped_calibration, shipped_calibrations
    from stepsim.machines import load_machine

    machine = load_machine(name)
    if calibration is not None and str(calibration) not in shipped_calibrations():
        return machine, Calibration.load(calibration), "calibrated"
    shipped = calibration_of(machine) if calibration is None else shipped_calibration(str(calibration))
    if shipped is None:
        return machine, DataSheetCosts(), "uncalibrated: a bound from the data sheet"
    return machine, shipped, shipped.worth


def print_result(text: str, facts: Mapping[str, Any], as_json: bool) -> None:
    """``text`` for a person, on a line that nothing wraps; then ``facts`` for a program, if asked for."""
    STDOUT.print(plain_lines(text), highlight=False, markup=False, soft_wrap=True)
    print_json(facts, as_json)


def print_json(facts: Mapping[str, Any], as_json: bool) -> None:
    if as_json:
        print(json.dumps(facts, allow_nan=False))
