"""The verbs of the command line, one function each. Heavy packages load when a verb runs, not before."""

from collections.abc import Callable
from dataclasses import dataclass

from stepsim.commands import data, traces
from stepsim.commands.calibrations import calibrations
from stepsim.commands.imports import import_
from stepsim.commands.machines import machines
from stepsim.commands.on_machine import capture, demo, execute, record, validate
from stepsim.commands.on_paper import fit, replay, show, simulate
from stepsim.commands.planning import plan
from stepsim.commands.workloads import workloads


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Verbs about one noun, which stands before them: ``stepsim data fetch``."""

    noun: str
    help: str
    verbs: tuple[Callable[..., None], ...]


VERBS = (
    demo,
    capture,
    record,
    import_,
    fit,
    plan,
    simulate,
    execute,
    validate,
    replay,
    machines,
    calibrations,
    workloads,
    show,
)
"""In the order of the data flow."""

GROUPS = (
    Group(noun="traces", help="Look into traces and logs of any known tool.", verbs=(traces.show,)),
    Group(
        noun="data",
        help="Public measurements that calibrations and tests use.",
        verbs=(data.fetch, data.list_, data.path),
    ),
)

__all__ = ["GROUPS", "VERBS", "Group"]
