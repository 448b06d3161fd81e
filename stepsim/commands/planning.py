"""The verb that searches for a plan."""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stepsim.commands.options import (
    AsJson,
    CalibrationFile,
    MachineName,
    Output,
    WorkloadFile,
    machine_and_costs,
    print_result,
)
from stepsim.commands.outputs import check_outputs
from stepsim.errors import InfeasibleError, StepsimError
from stepsim.units import format_bytes, format_seconds, parse_bytes

if TYPE_CHECKING:
    from stepsim.machines import Device, Machine
    from stepsim.plan import Costs
    from stepsim.strategies import Evaluate, LeastMemory, Proposal

SEARCH_LIMIT_S = 60.0


def plan(
    workload: WorkloadFile,
    machine: MachineName,
    strategy: Annotated[
        str,
        typer.Option(
            help="keep-all, greedy, greedy-swap, greedy-recompute, home, home-extended, vdnn-all, "
            "vdnn-conv, vdnn-dynamic, vdnn-every, vdnn-single-conv, superneurons, superneurons-no-cache, "
            "superneurons-in-time, superneurons-no-reuse, capuchin, capuchin-5, capuchin-best, chen-sqrt, "
            "chen-greedy, checkmate, checkmate-rounded, swapadvisor or refined."
        ),
    ] = "greedy",
    memory: Annotated[
        str | None,
        typer.Option(metavar="SIZE", help="Limit, such as 8GiB; by default, and at most, all of the device's."),
    ] = None,
    batch: Annotated[
        int | None, typer.Option(min=1, help="Batch size to plan for; by default that of the workload.")
    ] = None,
    time_limit: Annotated[
        float, typer.Option(metavar="SECONDS", help="Of the search, which then gives the best so far.")
    ] = SEARCH_LIMIT_S,
    calibration: CalibrationFile = None,
    output: Output = Path("step.plan"),
    as_json: AsJson = False,
) -> None:
    """Search for a plan of one step within a memory limit. One that misses the limit is not written.

    What is told instead is what lacks memory, and the smallest limit that works; to find it takes the time limit once
    more.
    """
    from stepsim.strategies import STRATEGIES, least_memory
    from stepsim.strategies.memory.lowering import computing_device
    from stepsim.workloads.shipped import load_workload

    check_outputs([output], [workload, machine, calibration])
    if strategy not in STRATEGIES:
        raise StepsimError(f"unknown strategy {strategy!r}; known: {', '.join(STRATEGIES)}")
    described, costs, worth = machine_and_costs(machine, calibration)
    device = described.device(computing_device(described))
    limit_bytes = device.memory_bytes if memory is None else min(device.memory_bytes, parse_bytes(memory, "--memory"))
    step = load_workload(workload)
    step = step if batch is None else step.at_batch(batch)
    search = partial(STRATEGIES[strategy].plan, step, described, costs, evaluate=_evaluate(described, costs))
    proposal = search(memory_bytes=limit_bytes, time_limit_s=time_limit)
    took_s = f"{min(time_limit, proposal.search_seconds):.3g} s"
    if not proposal.feasible:
        least = least_memory(search, proposal, limit_bytes, time_limit, most_bytes=device.memory_bytes)
        in_time = "" if proposal.complete else f" in {took_s}"
        missed = _missed(proposal, described, limit_bytes, in_time)
        raise InfeasibleError(f"{workload}: {missed}: {_told(least, device)}")
    proposal.plan.save(output)
    facts = {
        "strategy": proposal.strategy,
        "feasible": proposal.feasible,
        "complete": proposal.complete,
        "predicted_s": proposal.predicted_s,
        "predicted_peak_bytes": proposal.predicted_peak_bytes,
        "search_seconds": proposal.search_seconds,
        "plan": str(output),
    }
    if proposal.lower_bound_s is not None:
        facts["lower_bound_s"] = proposal.lower_bound_s
    told = f"{format_seconds(proposal.predicted_s)} a step ({worth})"
    told += "" if proposal.complete else f", not searched to the end ({took_s})"
    peak, limit = format_bytes(proposal.predicted_peak_bytes), format_bytes(limit_bytes)
    print_result(f"{strategy}: {told}, peak {peak} of {limit} -> {output}", facts, as_json)


def _evaluate(machine: "Machine", costs: "Costs") -> "Evaluate":
    """Scores plans that exceed the memory of a device, too: a search compares them on its way."""
    from stepsim.report import report
    from stepsim.simulator import simulate
    from stepsim.strategies.memory.propose import MOST_BYTES

    devices = (replace(each, memory_bytes=MOST_BYTES) if each.memory_bytes else each for each in machine.devices)
    roomy = replace(machine, devices=tuple(devices))  # all but networks, which have no memory
    return lambda plan: report(simulate(plan, roomy, costs), plan)


def _missed(proposal: "Proposal", machine: "Machine", limit_bytes: int, in_time: str) -> str:
    """What lacks memory: the host, if it does, since no limit counts there."""
    from stepsim.memory import memory_profile
    from stepsim.strategies.memory.lowering import computing_device
    from stepsim.strategies.memory.propose import lacking

    limit, who = f"memory limit {format_bytes(limit_bytes)}", proposal.strategy
    for name, (needs, has) in lacking(memory_profile(proposal.plan).peaks(), machine, limit_bytes).items():
        if name != computing_device(machine):
            lacks = f"needs {_exactly(needs)} on {name}, which has {_exactly(has)}"
            return f"what {who} finds{in_time} within {limit} {lacks}"
    return f"{limit} is below what {who} reaches{in_time}"


def _told(least: "LeastMemory | None", device: "Device") -> str:
    if least is None:
        return "no limit that works was found"
    shown = _exactly(least.memory_bytes)
    told = f"the smallest limit that works is {shown}" if least.exact else f"{shown} works, less may in more time"
    if least.memory_bytes > device.memory_bytes:
        told += f"; {device.name} has {format_bytes(device.memory_bytes)}"
    return told


def _exactly(size_bytes: int) -> str:
    """In bytes, so that they can be given as they are, and rounded."""
    return f"{size_bytes} ({format_bytes(size_bytes)})"
