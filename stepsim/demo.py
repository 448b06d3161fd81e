"""The whole loop on this machine: capture, measure, calibrate, plan, simulate, execute, compare."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from stepsim.chrome_trace import write_chrome_trace
from stepsim.costmodels import Calibration
from stepsim.errors import OutOfMemoryError
from stepsim.executor import BoundProgram, record
from stepsim.executor.measure import Measured, measure
from stepsim.machines import Machine, save_machine, this_cpu
from stepsim.memory import check_memory
from stepsim.plan import Plan
from stepsim.plotting import plot_timelines, save_figure
from stepsim.progress import progress, say
from stepsim.report import report
from stepsim.simulator import simulate
from stepsim.strategies import STRATEGIES, Proposal
from stepsim.strategies.memory.lowering import computing_device
from stepsim.timeline import Timeline
from stepsim.units import format_bytes
from stepsim.validation import Comparison, compare, save_comparisons
from stepsim.workloads import Workload
from stepsim.workloads.models import small_resnet, small_transformer

MODELS = {"small_resnet": (small_resnet, 32), "small_transformer": (small_transformer, 8)}
"""Factory and batch of each workload of the demo."""

LIMIT_SHARE = 0.7
"""The demo's memory limit, as a share of what keeping everything needs."""

NEXT_STEPS = """
In {folder}: comparison.json, calibration.json, trace.parquet, this_cpu.toml, and for each model its workload and plans,
a picture (.png) and both timelines (.perfetto.json, which ui.perfetto.dev or chrome://tracing opens). Next, try:
  stepsim show {folder}/small_resnet.greedy.plan
  stepsim plan {folder}/small_resnet.workload.json --machine this_cpu --calibration {folder}/calibration.json \\
      --memory 40MiB -o tight.plan
  stepsim validate tight.plan stepsim.workloads.models:small_resnet --calibration {folder}/calibration.json
"""

RUNS = 5
SEARCH_LIMIT_S = 20.0


@dataclass(frozen=True, eq=False, kw_only=True)
class Candidate:
    """One plan of the demo, with the limit that it was made for."""

    proposal: Proposal
    limit_bytes: int | None
    predicted: Timeline


def run_demo(folder: Path) -> list[Comparison]:
    """Walk the loop and write everything it makes to ``folder``."""
    machine = this_cpu()
    save_machine(machine, folder / "this_cpu.toml")
    say("[bold]1. Capture[/bold]: one training step of each model, as a graph of ops")
    programs = [BoundProgram.of(factory, batch, name) for name, (factory, batch) in MODELS.items()]
    for bound in programs:
        bound.workload.save(folder / f"{bound.workload.name}.workload.json")
        say(f"   {bound.workload.name}: {len(bound.workload.ops)} ops, {bound.workload.flop:.3g} FLOP")
    calibration = _calibrate(programs, folder)
    comparisons: list[Comparison] = []
    for bound in programs:
        comparisons += _one_workload(bound, machine, calibration, folder)
    save_comparisons(comparisons, folder / "comparison.json")
    return comparisons


def _calibrate(programs: Sequence[BoundProgram], folder: Path) -> Calibration:
    say("[bold]2. Record and fit[/bold]: every distinct op and copies of all sizes, timed apart from any step")
    with progress("   recording") as tick:
        trace = record(programs, progress=tick)
    trace.save(folder / "trace.parquet")
    calibration = Calibration.fit([trace])
    calibration.save(folder / "calibration.json")
    return calibration


def _one_workload(
    bound: BoundProgram, machine: Machine, calibration: Calibration, folder: Path
) -> list[Comparison]:
    name = bound.workload.name
    say(f"[bold]3. Plan and simulate {name}[/bold]")
    candidates = plan_candidates(bound.workload, machine, calibration)
    for candidate in candidates:
        candidate.proposal.plan.save(folder / f"{name}.{candidate.proposal.strategy}.plan")
    say(f"[bold]4. Execute {name}[/bold]: {len(candidates)} plans, {RUNS} timed runs each")
    with progress("   executing") as tick:
        measured = measure(bound, [c.proposal.plan for c in candidates], runs=RUNS, progress=tick)
    _draw(candidates[-1], measured[-1], machine, folder / name)
    return [
        compare_measured(
            candidate.predicted,
            found,
            machine,
            workload=name,
            strategy=candidate.proposal.strategy,
            plan=candidate.proposal.plan,
            limit_bytes=candidate.limit_bytes,
            provenance=calibration.provenance,
        )
        for candidate, found in zip(candidates, measured, strict=True)
    ]


def plan_candidates(workload: Workload, machine: Machine, calibration: Calibration) -> list[Candidate]:
    """Keep everything; then, at a limit that this cannot meet, the greedy mix of swap and recompute."""
    device = computing_device(machine)
    kept = _propose("keep-all", workload, machine, calibration, None)
    limit_bytes = round(LIMIT_SHARE * kept.proposal.predicted_peak_bytes)
    say(f"   limit {format_bytes(limit_bytes)}; keep-all refused: {_refusal(kept.proposal.plan, device, limit_bytes)}")
    greedy = _propose("greedy", workload, machine, calibration, limit_bytes)
    return [kept, greedy]


def _propose(
    strategy: str, workload: Workload, machine: Machine, calibration: Calibration, limit_bytes: int | None
) -> Candidate:
    has_bytes = machine.device(computing_device(machine)).memory_bytes
    proposal = STRATEGIES[strategy].plan(
        workload,
        machine,
        calibration,
        memory_bytes=has_bytes if limit_bytes is None else limit_bytes,
        evaluate=lambda plan: report(simulate(plan, machine, calibration), plan),
        time_limit_s=SEARCH_LIMIT_S,
    )
    say(f"   {strategy}: peak {format_bytes(proposal.predicted_peak_bytes)}, {proposal.predicted_s * 1e3:.1f} ms a step")
    predicted = simulate(proposal.plan, machine, calibration)
    return Candidate(proposal=proposal, limit_bytes=limit_bytes, predicted=predicted)


def _refusal(plan: Plan, device: str, limit_bytes: int) -> str:
    """What the memory pass says of a plan that does not fit."""
    try:
        check_memory(plan, {device: limit_bytes})
    except OutOfMemoryError as error:
        return str(error)
    raise AssertionError("the demo's limit is below what keep-all needs")


def compare_measured(
    predicted: Timeline,
    measured: Measured,
    machine: Machine,
    *,
    workload: str,
    strategy: str,
    plan: Plan,
    limit_bytes: int | None,
    provenance: Mapping[str, str],
) -> Comparison:
    """The comparison of ``plan`` as simulated and as measured on the computing device of ``machine``."""
    device = computing_device(machine)
    return compare(
        predicted,
        measured.runs,
        workload=workload,
        strategy=strategy,
        predicted_peak_bytes=check_memory(plan, {}).peak_bytes(device),
        measured_peak_bytes=measured.memory.peak_bytes(device),
        gradient_max_abs_difference=measured.max_abs_difference,
        limit_bytes=limit_bytes,
        provenance=provenance,
    )


def _draw(candidate: Candidate, measured: Measured, machine: Machine, stem: Path) -> None:
    """Both timelines of one plan: as a Chrome trace and as a picture."""
    timelines = {"predicted": candidate.predicted, "measured": measured.median_run}
    plan = candidate.proposal.plan
    write_chrome_trace(stem.with_suffix(".perfetto.json"), timelines, plans=dict.fromkeys(timelines, plan))
    device = computing_device(machine)
    save_figure(plot_timelines(timelines, device=device, limit_bytes=candidate.limit_bytes), stem.with_suffix(".png"))
