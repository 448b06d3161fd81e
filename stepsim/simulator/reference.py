"""The reference engine: the contract of the simulator, written to be read. Each mechanism is a SimPy process.

At an instant all ends come first, with zero-duration work, to a fixed point; then starts, by ready time and plan order.
"""

from collections import defaultdict

import numpy as np

from stepsim.machines import Machine
from stepsim.memory import check_memory, memory_steps
from stepsim.plan import NONE, Costs, Plan
from stepsim.simulator.deadlock import check_all_ran
from stepsim.simulator.queues import run_stream, run_thread
from stepsim.simulator.run import prepare
from stepsim.timeline import Timeline


def simulate(plan: Plan, machine: Machine, costs: Costs) -> Timeline:
    """Run ``plan`` on a simulated ``machine``, each task at its price in ``costs``.

    Raises `DeadlockError` for tasks that can never start, `OutOfMemoryError` for a plan that needs more than a device
    has, `MachineError` for a device or route that the machine lacks, `CalibrationError` for a senseless cost.
    """
    limits = {name: machine.device(name).memory_bytes for name in plan.devices.name}
    profile = check_memory(plan, limits)
    run = prepare(plan, machine, costs)
    for rows in _rows_by(plan.tasks.stream.tolist()).values():
        run.env.process(run_stream(run, rows))
    for rows in _rows_by(plan.tasks.thread.tolist()).values():
        run.env.process(run_thread(run, rows))
    run.env.run()
    check_all_ran(run)
    start_s, end_s = np.array(run.start_s), np.array(run.end_s)
    return Timeline.of(plan, start_s, end_s, "simulated", memory_steps(profile, start_s, end_s))


def _rows_by(column: list[int]) -> dict[int, list[int]]:
    """Rows in plan order for each entry of a column, but NONE."""
    found: dict[int, list[int]] = defaultdict(list)
    for row, entry in enumerate(column):
        if entry != NONE:
            found[entry].append(row)
    return found
