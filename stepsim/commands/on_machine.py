"""Verbs that run torch: capture, and all that measures this machine."""

import shlex
import shutil
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stepsim.commands.options import (
    A_FACTORY,
    STDOUT,
    AsJson,
    Batch,
    FactoryPath,
    MachineName,
    Output,
    PlanFile,
    Threads,
    TimelineOutput,
    print_result,
)
from stepsim.commands.outputs import check_outputs, source_of
from stepsim.errors import FileError, StepsimError
from stepsim.units import format_bytes, format_seconds

DeviceName = Annotated[str, typer.Option("--device", help="cpu, or a GPU: cuda:0.")]

if TYPE_CHECKING:
    from stepsim.costmodels import Calibration
    from stepsim.executor import BoundProgram
    from stepsim.plan import Plan
    from stepsim.validation import Comparison
    from stepsim.workloads import Workload


def demo(
    quick: Annotated[bool, typer.Option("--quick", help="Smaller batches, fewer repeats: half a minute.")] = False,
    output: Annotated[Path, typer.Option("--output", "-o", help="The folder to write to.")] = Path("demo-output"),
    as_json: AsJson = False,
) -> None:
    """The whole loop on this machine: a few minutes, no GPU needed."""
    from stepsim.demo import FULL, QUICK, run_demo

    done = run_demo(output, QUICK if quick else FULL)
    _print_comparisons(done.comparisons, done.next_steps(output, _program()), as_json)


def capture(
    factory: FactoryPath,
    batch: Batch = 32,
    device: DeviceName = "cpu",
    output: Output = Path("workload.json"),
    as_json: AsJson = False,
) -> None:
    """Turn a torch module into a workload, without memory for its tensors; for a GPU on that GPU, for real.

    A second capture, at twice the batch, makes it serve other batches too.
    """
    check_outputs([output], [source_of(factory)])
    workload, only = _with_other_batches(_captured(factory, batch, device), partial(_captured, factory, device=device))
    workload.save(output)
    facts = {
        "workload": workload.name,
        "ops": len(workload.ops),
        "flop": workload.flop,
        "batch_step": workload.growth.step if workload.growth else None,
        "file": str(output),
    }
    text = f"{workload.name}, batch {batch}{only}: {len(workload.ops)} ops, {workload.flop:.4g} FLOP -> {output}"
    print_result(text, facts, as_json)


def _captured(factory: str, batch: int, device: str) -> "Workload":
    from stepsim.workloads.capture import capture as capturing
    from stepsim.workloads.factory import load_factory

    if device == "cpu":
        return capturing(load_factory(factory), batch, _name(factory)).workload
    return _bind(factory, batch, device).workload


def _with_other_batches(workload: "Workload", capture_at: Callable[[int], "Workload"]) -> "tuple[Workload, str]":
    """``workload`` as it serves other batches; where it cannot, as it is, and why."""
    from stepsim.workloads.two_captures import at_any_batch

    try:
        return at_any_batch(workload, capture_at), ""
    except StepsimError as error:
        return workload, f" only ({error})"


def record(
    factories: Annotated[list[str], typer.Argument(metavar="FACTORY", help=A_FACTORY)],
    batch: Batch = 32,
    repeats: Annotated[int, typer.Option(min=2, help="Timed passes over all work.")] = 25,
    device: DeviceName = "cpu",
    threads: Threads = None,
    output: Output = Path("trace.parquet"),
    as_json: AsJson = False,
) -> None:
    """Time the distinct work of steps, and copies, on this machine."""
    from stepsim.executor import record as recording
    from stepsim.executor import use_threads
    from stepsim.progress import progress

    check_outputs([output], map(source_of, factories))
    use_threads(threads)
    programs = [_bind(factory, batch, device) for factory in factories]
    with progress("recording") as tick:
        trace = recording(programs, repeats=repeats, progress=tick)
    trace.save(output)
    works = trace.of("kernel")["work"].nunique()
    facts = {"trace": str(output), "events": len(trace.events), "works": works}
    print_result(f"{works} pieces of work, and copies: {len(trace.events)} events -> {output}", facts, as_json)


def execute(
    plan: PlanFile,
    factory: FactoryPath,
    device: DeviceName = "cpu",
    threads: Threads = None,
    output: TimelineOutput = None,
    as_json: AsJson = False,
) -> None:
    """Run a plan for real on this machine, beside a plain step of PyTorch."""
    from stepsim.executor import use_threads
    from stepsim.executor.measure import measure
    from stepsim.plan import Plan

    check_outputs([output], [plan, source_of(factory)])
    use_threads(threads)
    loaded = Plan.load(plan)
    (measured,) = measure(_bind(factory, _batch_of(loaded, plan), device), [loaded], runs=1)
    timeline, difference = measured.median_run, measured.max_abs_difference
    if output is not None:
        timeline.save(output)
    peak_bytes = max(measured.memory.peaks().values())
    facts = {
        "measured_s": timeline.makespan_s,
        "measured_peak_bytes": peak_bytes,
        "allocated_peak_bytes": measured.allocated_peak_bytes,
        "gradient_max_abs_difference": difference,
    }
    step = f"{format_seconds(timeline.makespan_s)} a step, peak {format_bytes(peak_bytes)}"
    print_result(f"{step}, off plain PyTorch by {difference:g}", facts, as_json)


def validate(
    plan: PlanFile,
    factory: FactoryPath,
    calibration: Annotated[Path, typer.Option(help="A file that stepsim fit wrote.")],
    device: DeviceName = "cpu",
    machine: MachineName = "this_cpu",
    strategy: Annotated[str, typer.Option(help="What the comparison calls the plan.")] = "plan",
    runs: Annotated[int, typer.Option(min=1, help="Timed runs; the median counts.")] = 5,
    output: Output = Path("comparison.json"),
    as_json: AsJson = False,
) -> None:
    """Simulate a plan, run it for real, on a CPU with as many threads as the calibration tells, and compare."""
    from stepsim.costmodels import Calibration
    from stepsim.demo import compare_measured
    from stepsim.executor import find_device, use_threads
    from stepsim.executor.measure import measure
    from stepsim.machines import load_machine
    from stepsim.plan import Plan
    from stepsim.progress import progress
    from stepsim.simulator import simulate as simulating
    from stepsim.validation import save_comparisons

    check_outputs([output], [plan, source_of(factory), calibration, machine])
    there = find_device(device)
    described, costs, loaded = load_machine(machine), Calibration.load(calibration), Plan.load(plan)
    predicted = simulating(loaded, described, costs)
    if there.type == "cpu":
        use_threads(_threads_of(costs, calibration))
    bound = _bind(factory, _batch_of(loaded, plan), device)
    with progress("executing") as tick:
        (measured,) = measure(bound, [loaded], runs=runs, progress=tick)
    comparison = compare_measured(
        predicted,
        measured,
        described,
        workload=_name(factory),
        strategy=strategy,
        plan=loaded,
        limit_bytes=None,
        provenance=costs.provenance,
    )
    save_comparisons([comparison], output)
    _print_comparisons([comparison], f"-> {output}", as_json)


def _bind(factory: str, batch: int, device: str) -> "BoundProgram":
    from stepsim.executor import BoundProgram
    from stepsim.workloads.factory import load_factory

    return BoundProgram.of(load_factory(factory), batch, _name(factory), device)


def _program() -> str:
    """How this program is called: by its path where the shell would not find it."""
    is_ours = Path(sys.argv[0]).name == "stepsim"
    return shlex.quote(sys.argv[0]) if is_ours and not shutil.which("stepsim") else "stepsim"


def _name(factory: str) -> str:
    return factory.rpartition(":")[2]


def _batch_of(plan: "Plan", path: Path) -> int:
    """The batch size that ``plan`` was made for."""
    batch = int(plan.work.batch.max(initial=0))
    if not batch:
        raise StepsimError(f"{path}: work: names no captured step, so nothing can run it")
    return batch


def _threads_of(calibration: "Calibration", path: Path) -> int:
    """On how many threads each op ran when ``calibration`` was recorded."""
    threads = calibration.provenance.get("threads", "")
    if not threads.isdecimal() or not int(threads):
        raise FileError(path, "provenance.threads", threads or None, "must be a whole number > 0")
    return int(threads)


def _print_comparisons(comparisons: Sequence["Comparison"], ending: str, as_json: bool) -> None:
    from stepsim.show import print_comparisons

    print_comparisons(comparisons, STDOUT)
    print_result(ending, {"comparisons": [comparison.as_json() for comparison in comparisons]}, as_json)
