"""The verbs of the command line, one function each. Heavy packages load when a verb runs, not before."""

from stepsim.commands.imports import import_
from stepsim.commands.machines import machines
from stepsim.commands.on_machine import capture, demo, execute, record, validate
from stepsim.commands.on_paper import fit, plan, replay, show, simulate

VERBS = (demo, capture, record, import_, fit, plan, simulate, execute, validate, replay, machines, show)
"""In the order of the data flow."""

__all__ = ["VERBS"]
