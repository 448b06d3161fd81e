"""The command line: the verbs of the data flow. Results on stdout, progress on stderr.

A user's mistake is one line on stderr and exit code 2. With ``--json`` the last line on stdout is one JSON object.
"""

import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from stepsim.errors import InfeasibleError, StepsimError
from stepsim.machines import Machine, load_machine
from stepsim.plan import Costs, Plan
from stepsim.units import format_bytes, format_seconds, parse_bytes

if TYPE_CHECKING:
    from stepsim.executor import BoundProgram
    from stepsim.validation import Comparison

app = typer.Typer(
    help="How long will one training step take, and how much memory, run this way on that machine?",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
STDOUT = Console()

Json = Annotated[bool, typer.Option("--json", help="End with one line of JSON.")]
Output = Annotated[Path, typer.Option("--output", "-o", help="Where to write.")]
Batch = Annotated[int, typer.Option(min=1, help="Batch size given to the factory.")]
FactoryPath = Annotated[str, typer.Argument(help="package.module:factory; factory(batch) -> (module, inputs, optimizer)")]
MachineName = Annotated[str, typer.Option("--machine", help="A shipped machine, a .toml file, or this_cpu.")]
CalibrationPath = Annotated[Path | None, typer.Option("--calibration", help="A file that stepsim fit wrote.")]

SEARCH_LIMIT_S = 60.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; the exit code."""
    try:
        code = app(args=arguments, prog_name="stepsim", standalone_mode=False)
    except StepsimError as error:
        print(f"stepsim: {error}", file=sys.stderr)
        return 2
    except typer._click.ClickException as error:
        error.show()
        return 2
    except (KeyboardInterrupt, typer.Abort):
        print("stepsim: interrupted", file=sys.stderr)
        return 130
    return code if isinstance(code, int) else 0


@app.command()
def demo(output: Output = Path("demo-output"), as_json: Json = False) -> None:
    """The whole loop on this machine: a few minutes, no GPU needed."""
    from stepsim.demo import NEXT_STEPS, run_demo

    comparisons = run_demo(output)
    _print_comparisons(comparisons, as_json, NEXT_STEPS.format(folder=output))


@app.command()
def capture(
    factory: FactoryPath, batch: Batch = 32, output: Output = Path("workload.json"), as_json: Json = False
) -> None:
    """A torch module becomes a workload, without a GPU and without memory for its tensors."""
    from stepsim.workloads import capture as capturing

    program = capturing.capture(capturing.load_factory(factory), batch, _name(factory))
    workload = program.workload
    workload.save(output)
    facts = {"workload": workload.name, "ops": len(workload.ops), "flop": workload.flop, "file": str(output)}
    _result(f"{workload.name}: {len(workload.ops)} ops, {workload.flop:.4g} FLOP -> {output}", facts, as_json)


@app.command()
def record(
    factories: Annotated[list[str], typer.Argument(help="package.module:factory, one or more")],
    batch: Batch = 32,
    repeats: Annotated[int, typer.Option(min=2, help="Timed passes over all work.")] = 25,
    output: Output = Path("trace.parquet"),
    as_json: Json = False,
) -> None:
    """Time the distinct work of workloads, and copies, on this machine."""
    from stepsim.executor import record as recording
    from stepsim.progress import progress

    programs = [_bind(factory, batch) for factory in factories]
    with progress("recording") as tick:
        trace = recording(programs, repeats=repeats, progress=tick)
    trace.save(output)
    works = trace.events["work"].nunique() - 1
    facts = {"trace": str(output), "events": len(trace.events), "works": works}
    _result(f"{works} pieces of work and copies, {len(trace.events)} samples -> {output}", facts, as_json)


@app.command()
def fit(traces: list[Path], output: Output = Path("calibration.json"), as_json: Json = False) -> None:
    """Cost models from recorded traces, with their held-out errors."""
    from stepsim.costmodels import Calibration
    from stepsim.traces.trace import Trace

    calibration = Calibration.fit([Trace.load(path) for path in traces])
    calibration.save(output)
    errors = ", ".join(f"{name} {error:.1%}" for name, error in calibration.errors().items())
    facts = {"calibration": str(output), "machine": calibration.machine, "errors": calibration.errors()}
    _result(f"calibration of {calibration.machine}: {errors} -> {output}", facts, as_json)


@app.command()
def replay(trace: Path, as_json: Json = False) -> None:
    """Simulate a recorded step and compare it with what was recorded."""
    from stepsim.replay import replay as replaying
    from stepsim.show import print_replay

    replayed = replaying(trace)
    print_replay(replayed, STDOUT)
    _result("", replayed.as_json(), as_json)


@app.command()
def plan(
    workload: Path,
    machine: MachineName,
    strategy: Annotated[str, typer.Option(help="keep-all or greedy")] = "greedy",
    memory: Annotated[str | None, typer.Option(help="Limit, such as 8GiB; the device's memory by default.")] = None,
    calibration: CalibrationPath = None,
    output: Output = Path("step.plan"),
    as_json: Json = False,
) -> None:
    """Search for a plan of one step within a memory limit. An infeasible one is not written."""
    from stepsim.report import report
    from stepsim.simulator import simulate as simulating
    from stepsim.strategies import STRATEGIES
    from stepsim.strategies.memory.lowering import computing_device
    from stepsim.workloads import Workload

    if strategy not in STRATEGIES:
        raise StepsimError(f"unknown strategy {strategy!r}; known: {', '.join(STRATEGIES)}")
    described, costs = _machine_and_costs(machine, calibration)
    device = described.device(computing_device(described))
    limit_bytes = device.memory_bytes if memory is None else parse_bytes(memory)
    proposal = STRATEGIES[strategy].plan(
        Workload.load(workload),
        described,
        costs,
        memory_bytes=limit_bytes,
        evaluate=lambda candidate: report(simulating(candidate, described, costs), candidate),
        time_limit_s=SEARCH_LIMIT_S,
    )
    peak = format_bytes(proposal.predicted_peak_bytes)
    if not proposal.feasible:
        raise InfeasibleError(
            f"{workload}: memory limit {format_bytes(limit_bytes)} is below what {strategy} reaches: {peak}"
        )
    proposal.plan.save(output)
    facts = {
        "strategy": proposal.strategy,
        "feasible": proposal.feasible,
        "predicted_s": proposal.predicted_s,
        "predicted_peak_bytes": proposal.predicted_peak_bytes,
        "search_seconds": proposal.search_seconds,
        "plan": str(output),
    }
    time_s = format_seconds(proposal.predicted_s)
    _result(f"{strategy}: {time_s} a step, peak {peak} of {format_bytes(limit_bytes)} -> {output}", facts, as_json)


@app.command()
def simulate(
    plan: Path,
    machine: MachineName,
    calibration: CalibrationPath = None,
    perfetto: Annotated[Path | None, typer.Option(help="Write a Chrome trace.")] = None,
    plot: Annotated[Path | None, typer.Option(help="Write a picture.")] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Write the timeline.")] = None,
    as_json: Json = False,
) -> None:
    """Run a plan on a simulated machine."""
    from stepsim.report import report
    from stepsim.simulator import simulate as simulating

    described, costs = _machine_and_costs(machine, calibration)
    loaded = Plan.load(plan)
    began_s = time.monotonic()
    timeline = simulating(loaded, described, costs)
    seconds = time.monotonic() - began_s
    if output is not None:
        timeline.save(output)
    if perfetto is not None:
        from stepsim.chrome_trace import write_chrome_trace

        write_chrome_trace(perfetto, {"predicted": timeline}, plans={"predicted": loaded})
    if plot is not None:
        from stepsim.plotting import plot_timelines, save_figure

        save_figure(plot_timelines({"predicted": timeline}), plot)
    found = report(timeline, loaded)
    facts = {
        "makespan_s": found.makespan_s,
        "peak_bytes": dict(found.peak_bytes),
        "busy": dict(found.busy),
        "tasks": len(loaded),
        "engine": "reference",
        "seconds": seconds,
    }
    peaks = ", ".join(f"{device} {format_bytes(peak)}" for device, peak in found.peak_bytes.items())
    _result(f"{format_seconds(found.makespan_s)} a step, peak {peaks}, {len(loaded)} tasks", facts, as_json)


@app.command()
def execute(
    plan: Path,
    factory: FactoryPath,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Write the measured timeline.")] = None,
    as_json: Json = False,
) -> None:
    """Run a plan for real on this machine."""
    from stepsim.executor.measure import measure

    loaded = Plan.load(plan)
    (measured,) = measure(_bind(factory, _batch_of(loaded)), [loaded], runs=1)
    if output is not None:
        measured.median_run.save(output)
    peaks = measured.memory.peaks()
    peak_bytes = max(peaks.values())
    facts = {
        "measured_s": measured.median_run.makespan_s,
        "measured_peak_bytes": peak_bytes,
        "gradient_max_abs_difference": measured.max_abs_difference,
    }
    time_s = format_seconds(measured.median_run.makespan_s)
    text = f"{time_s} a step, peak {format_bytes(peak_bytes)}, off eager PyTorch by {measured.max_abs_difference:g}"
    _result(text, facts, as_json)


@app.command()
def validate(
    plan: Path,
    factory: FactoryPath,
    calibration: Annotated[Path, typer.Option(help="A file that stepsim fit wrote.")],
    machine: MachineName = "this_cpu",
    strategy: Annotated[str, typer.Option(help="Name of the plan in the comparison.")] = "plan",
    runs: Annotated[int, typer.Option(min=1)] = 5,
    output: Output = Path("comparison.json"),
    as_json: Json = False,
) -> None:
    """Simulate a plan, run it for real, and compare."""
    from stepsim.costmodels import Calibration
    from stepsim.demo import compare_measured
    from stepsim.executor.measure import measure
    from stepsim.simulator import simulate as simulating
    from stepsim.validation import save_comparisons

    described, costs = _machine_and_costs(machine, calibration)
    assert isinstance(costs, Calibration)
    loaded = Plan.load(plan)
    predicted = simulating(loaded, described, costs)
    (measured,) = measure(_bind(factory, _batch_of(loaded)), [loaded], runs=runs)
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
    _print_comparisons([comparison], as_json, f"-> {output}")


@app.command()
def show(file: Path) -> None:
    """Print a machine, workload, plan, timeline, trace, calibration or comparison."""
    from stepsim.show import show as showing

    showing(file, STDOUT)


def _machine_and_costs(name: str, calibration: Path | None) -> tuple[Machine, Costs]:
    from stepsim.costmodels import Calibration, DataSheetCosts
    from stepsim.progress import say

    machine = load_machine(name)
    if calibration is not None:
        return machine, Calibration.load(calibration)
    say(f"no calibration given: prices are a roofline over the data sheet of {machine.name}, uncalibrated")
    return machine, DataSheetCosts()


def _bind(factory: str, batch: int) -> "BoundProgram":
    from stepsim.executor import BoundProgram
    from stepsim.workloads.capture import load_factory

    return BoundProgram.of(load_factory(factory), batch, _name(factory))


def _name(factory: str) -> str:
    return factory.rpartition(":")[2]


def _batch_of(plan: Plan) -> int:
    return int(plan.work.batch.max(initial=0))


def _print_comparisons(comparisons: Sequence["Comparison"], as_json: bool, ending: str) -> None:
    from stepsim.show import print_comparisons

    print_comparisons(comparisons, STDOUT)
    STDOUT.print(ending, highlight=False)
    if as_json:
        print(json.dumps({"comparisons": [comparison.as_json() for comparison in comparisons]}))


def _result(text: str, facts: dict[str, Any], as_json: bool) -> None:
    if text:
        STDOUT.print(text, highlight=False, markup=False)
    if as_json:
        print(json.dumps(facts))
