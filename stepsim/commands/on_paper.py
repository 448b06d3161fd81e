"""Verbs that need neither torch nor the machine in question: files in, files out."""

import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stepsim.commands.options import (
    STDOUT,
    AccountingName,
    AsJson,
    CalibrationFile,
    EngineName,
    MachineName,
    Output,
    PlanFile,
    SharingName,
    TimelineOutput,
    machine_and_costs,
    print_json,
    print_result,
)
from stepsim.commands.outputs import check_outputs, check_picture
from stepsim.errors import StoppedError
from stepsim.units import format_bytes, format_seconds

if TYPE_CHECKING:
    from stepsim.machines import Machine
    from stepsim.plan import Costs, Plan
    from stepsim.timeline import Timeline

LONG_ROWS = 100_000
"""From so many rows on a run takes long enough to show its progress."""
MOST_DEVICES = 8
"""Of more than these a line for a person names only the first."""


def fit(
    traces: Annotated[list[Path], typer.Argument(metavar="TRACE", help="Files that stepsim record wrote.")],
    output: Output = Path("calibration.json"),
    as_json: AsJson = False,
) -> None:
    """Fit cost models to recorded traces; tells their held-out errors."""
    from stepsim.costmodels import Calibration
    from stepsim.traces.trace import Trace

    check_outputs([output], traces)
    calibration = Calibration.fit([Trace.load(path) for path in traces])
    calibration.save(output)
    errors = calibration.errors()
    told = ", ".join(f"{name} {error:.1%}" for name, error in errors.items())
    facts = {"calibration": str(output), "machine": calibration.machine, "errors": errors}
    print_result(f"calibration of {calibration.machine}: {told} -> {output}", facts, as_json)


def simulate(
    plan: PlanFile,
    machine: MachineName,
    calibration: CalibrationFile = None,
    perfetto: Annotated[Path | None, typer.Option(help="Write a trace for ui.perfetto.dev to this file.")] = None,
    plot: Annotated[Path | None, typer.Option(help="Write a picture to this file (.png, .svg, .pdf).")] = None,
    engine: Annotated[EngineName, typer.Option(help="Which engine runs: they agree to the last bit.")] = "auto",
    sharing: Annotated[SharingName, typer.Option(help="How the kernels of a device share it.")] = "leftover",
    accounting: Annotated[
        AccountingName, typer.Option(help="Count bytes, or what PyTorch's caching allocator would reserve.")
    ] = "exact",
    repeat: Annotated[int, typer.Option(min=1, help="Run this many steps, one behind the other.")] = 1,
    runs: Annotated[int, typer.Option(min=0, help="Also so many runs with noise, for quantiles.")] = 0,
    seed: Annotated[int, typer.Option(min=0, help="Of the noise.")] = 0,
    output: TimelineOutput = None,
    as_json: AsJson = False,
) -> None:
    """Run a plan on a simulated machine."""
    from stepsim.plan import Plan
    from stepsim.report import report, trust
    from stepsim.simulator import choose_engine

    check_outputs([plot, perfetto, output], [plan, machine, calibration])
    check_picture(plot)
    described, costs, worth = machine_and_costs(machine, calibration)
    loaded = Plan.load(plan)
    if repeat > 1:
        loaded = loaded.repeat(repeat)
    chosen = choose_engine(len(loaded)) if engine == "auto" else engine
    began_s = time.monotonic()
    timeline = _timeline(loaded, described, costs, engine=chosen, sharing=sharing, accounting=accounting)
    seconds = time.monotonic() - began_s
    _write_timeline(timeline, loaded, plot=plot, perfetto=perfetto, output=output)
    found = report(timeline, loaded)
    facts = {
        "makespan_s": found.makespan_s,
        "peak_bytes": dict(found.peak_bytes),
        "busy": dict(found.busy),
        "tasks": len(loaded),
        "engine": chosen,
        "seconds": seconds,
        "trust": trust(loaded, costs.task_costs(loaded, described), timeline),
    }
    told = [f"{format_seconds(found.makespan_s if found.period_s is None else found.period_s)} a step"]
    if found.period_s is not None:
        facts["period_s"] = found.period_s
    if runs:
        facts["quantiles_s"] = quantiles = _quantiles(loaded, described, costs, runs, seed, sharing)
        low, middle, high = (format_seconds(seconds) for seconds in quantiles.values())
        told.append(f"with noise {middle} ({low} to {high} in 90 % of {runs} runs)")
    told.append(f"peak {_by_device(found.peak_bytes)}")
    if accounting == "caching":
        facts["peak_reserved_bytes"] = reserved = _reserved_bytes(loaded)
        told.append(f"reserved {_by_device(reserved)}")
    print_result(f"{', '.join(told)}, {len(loaded)} tasks ({worth})", facts, as_json)


def _timeline(plan: "Plan", machine: "Machine", costs: "Costs", **options: Any) -> "Timeline":
    """Of a run that shows its progress when it is long."""
    from stepsim.progress import progress
    from stepsim.simulator import simulate

    with _stoppable(), progress("simulating") if len(plan) >= LONG_ROWS else nullcontext() as tick:
        return simulate(plan, machine, costs, progress=tick, **options)


@contextmanager
def _stoppable() -> Iterator[None]:
    """On Ctrl-C say how far it was: typer would end without a word."""
    try:
        yield
    except StoppedError as stop:
        print("stepsim:", stop, file=sys.stderr)
        raise typer.Exit(130) from stop


def _write_timeline(
    timeline: "Timeline", plan: "Plan", *, plot: Path | None, perfetto: Path | None, output: Path | None
) -> None:
    if plot is not None:
        from stepsim.plotting import plot_timelines, save_figure

        save_figure(plot_timelines({"predicted": timeline}), plot)
    if perfetto is not None:
        from stepsim.chrome_trace import write_chrome_trace

        write_chrome_trace(perfetto, {"predicted": timeline}, plans={"predicted": plan})
    if output is not None:
        timeline.save(output)


def _quantiles(
    plan: "Plan", machine: "Machine", costs: "Costs", num_runs: int, seed: int, sharing: SharingName
) -> dict[float, float]:
    import numpy as np

    from stepsim.progress import progress
    from stepsim.simulator import step_times

    generator = np.random.default_rng(seed)
    with _stoppable(), progress("with noise") if num_runs * len(plan) >= LONG_ROWS else nullcontext() as tick:
        times = step_times(plan, machine, costs, num_runs=num_runs, generator=generator, sharing=sharing, progress=tick)
    return times.quantiles()


def _reserved_bytes(plan: "Plan") -> dict[str, int]:
    from stepsim.memory import memory_profile

    profile = memory_profile(plan, "caching")
    return {device: profile.peak_reserved_bytes(device) for device in plan.devices.name}


def _by_device(sizes: Mapping[str, int]) -> str:
    shown = [f"{device} {format_bytes(size)}" for device, size in list(sizes.items())[:MOST_DEVICES]]
    more = f" and {len(sizes) - MOST_DEVICES} more devices" if len(sizes) > MOST_DEVICES else ""
    return ", ".join(shown) + more


def replay(
    trace: Annotated[Path, typer.Argument(metavar="TRACE", help="JSON that torch.profiler exported, or its gzip.")],
    as_json: AsJson = False,
) -> None:
    """Simulate a recorded step and compare it with what was recorded."""
    from stepsim.replay import replay as replaying
    from stepsim.show import print_replay

    replayed = replaying(trace)
    print_replay(replayed, STDOUT)
    print_json(replayed.as_json(), as_json)


def show(
    file: Annotated[
        Path,
        typer.Argument(metavar="FILE", help="Any of them: its content says which. Or a name of stepsim workloads."),
    ],
) -> None:
    """Print a machine, workload, trace, calibration, plan, timeline or comparison."""
    from stepsim.show import show as showing

    showing(file, STDOUT)
