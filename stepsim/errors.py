"""What can go wrong, one class for each kind of mistake.

Every class derives from `StepsimError`: the command line prints its message as one line and exits with code 2.
"""


class StepsimError(Exception):
    """A mistake of the user, or a result that has a name. The message fits on one line."""


class FileError(StepsimError, ValueError):
    """A file that cannot be read: names the file, the field and the value.

    >>> raise FileError("t.json", "dur", -3, "must be >= 0")
    Traceback (most recent call last):
    ...
    stepsim.errors.FileError: t.json: dur: must be >= 0, got -3
    """

    def __init__(self, path: object, field: str, value: object, problem: str) -> None:
        shown = "" if value is None else f", got {_short(value)}"
        one_line = " ".join(problem.split())
        super().__init__(f"{path}: {field}: {one_line}{shown}")


class MachineError(StepsimError, ValueError):
    """An unknown or contradictory machine."""


class WorkloadError(StepsimError, ValueError):
    """A workload whose ops and tensors contradict each other."""


class CaptureError(StepsimError, ValueError):
    """A module that cannot be turned into a workload."""


class PlanError(StepsimError, ValueError):
    """A plan that fails its self-check: names the row and what it needs."""


class DeadlockError(StepsimError):
    """Tasks that can never start, with what each waits for."""


class OutOfMemoryError(StepsimError):
    """A plan that needs more than a device has: names task, buffer and resident bytes by role."""


class InfeasibleError(StepsimError):
    """No plan of the strategy meets the limit that was asked for."""


class CalibrationError(StepsimError, ValueError):
    """Measurements from which no cost model can be fitted."""


class NotFittedError(CalibrationError):
    """A cost model that was asked to predict before it was fitted."""


class StoppedError(KeyboardInterrupt):
    """Ctrl-C during a simulation: says how far it was."""


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
