"""Simulate a plan on a machine: the memory pass first, then one of the engines."""

from typing import Literal

from stepsim.errors import StepsimError
from stepsim.machines import Machine
from stepsim.memory import Accounting, MemoryProfile, check_memory, memory_steps
from stepsim.plan import Costs, Plan
from stepsim.simulator.deadlock import check_all_ran
from stepsim.simulator.outcome import Outcome, Progress, Sharing, check_sharing
from stepsim.simulator.problem import Problem, devices_of, problem_of
from stepsim.timeline import Timeline

Engine = Literal["auto", "reference", "compiled"]

PATIENCE = 50_000
"""Rows that `auto` gives to the reference engine before it changes to the compiled one.

They take it about as long as loading the compiled engine takes, so that neither one small plan nor a search waits.
"""

_rows_run = 0


def simulate(
    plan: Plan,
    machine: Machine,
    costs: Costs,
    *,
    engine: Engine = "auto",
    sharing: Sharing = "leftover",
    accounting: Accounting = "exact",
    progress: Progress | None = None,
) -> Timeline:
    """Run ``plan`` on a simulated ``machine``, each task at its price in ``costs``: ``docs/reference/simulator.md``.

    ``engine`` changes how long that takes and nothing else. ``sharing`` says how kernels share a device, and
    ``accounting`` what counts against its memory: bytes, or what PyTorch's caching allocator reserves for them.
    ``progress`` is called with how many tasks have ended, of how many.

    Raises `DeadlockError` for tasks that can never start, `OutOfMemoryError` for a plan that needs more than a device
    has, `MachineError` for a device or route that the machine lacks, `CalibrationError` for a senseless cost,
    `StoppedError` on Ctrl-C, `TypeError` for a name or path in the place of a plan or machine.
    """
    check_nouns(plan, machine, costs)
    profile = check_memory_on(plan, machine, accounting)
    problem = problem_of(plan, machine, costs)
    outcome = run(problem, engine=engine, sharing=sharing, progress=progress)
    check_all_ran(problem, outcome)
    steps = memory_steps(profile, outcome.start_s, outcome.end_s)
    return Timeline.of(plan, outcome.start_s, outcome.end_s, "simulated", steps, outcome.ready_s)


def check_nouns(plan: Plan, machine: Machine, costs: Costs) -> None:
    """Raises `TypeError` by name: a path or the name of a machine is easily given where the noun itself is needed."""
    for name, noun, kind in (("plan", plan, Plan), ("machine", machine, Machine)):
        if not isinstance(noun, kind):
            raise TypeError(f"{name} must be a {kind.__name__}, got {noun!r:.40}")
    if not hasattr(costs, "task_costs"):
        raise TypeError(f"costs must have task_costs, as DataSheetCosts and Calibration have, got {costs!r:.40}")


def check_memory_on(plan: Plan, machine: Machine, accounting: Accounting) -> MemoryProfile:
    """The memory of ``plan`` within what the devices of ``machine`` have. Raises `OutOfMemoryError`."""
    limits = {device.name: device.memory_bytes for device in devices_of(plan, machine)}
    return check_memory(plan, limits, accounting)


def run(problem: Problem, *, engine: Engine, sharing: Sharing, progress: Progress | None = None) -> Outcome:
    """The outcome of ``problem``, by one of the engines: they agree bit for bit."""
    check_sharing(sharing)
    match engine:
        case "auto":
            return run(problem, engine=choose_engine(len(problem.plan)), sharing=sharing, progress=progress)
        case "reference":
            from stepsim.simulator.reference import run_reference

            return run_reference(problem, sharing, progress)
        case "compiled":
            from stepsim.simulator.compiled import run_compiled

            return run_compiled(problem, sharing, progress)
    raise StepsimError(f"unknown engine {engine!r}; known: auto, reference, compiled")


def choose_engine(num_rows: int) -> Engine:
    """The engine that `auto` takes for a plan of ``num_rows`` after those it has run so far."""
    global _rows_run
    _rows_run += num_rows
    return "compiled" if _rows_run > PATIENCE else "reference"
