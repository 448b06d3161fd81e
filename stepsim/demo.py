"""The whole loop on this machine: capture, measure, calibrate, plan, simulate, execute, compare."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from stepsim.chrome_trace import write_chrome_trace
from stepsim.costmodels import Calibration
from stepsim.errors import OutOfMemoryError
from stepsim.executor import BoundProgram, record, use_threads
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
from stepsim.traces.trace import Trace
from stepsim.units import MIB, format_bytes, format_seconds
from stepsim.validation import Comparison, compare, save_comparisons
from stepsim.workloads import Workload
from stepsim.workloads.factory import Factory
from stepsim.workloads.models import small_resnet, small_transformer

MODELS: dict[str, Factory] = {"small_resnet": small_resnet, "small_transformer": small_transformer}

UNDER_THE_LIMIT = ("greedy", "greedy-recompute")
"""Strategies that must do with the demo's limit. On a CPU a copy is cheap, and the first of them mostly swaps."""

SEARCH_LIMIT_S = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How much the demo does.

    ``batches`` has the batch size of each of `MODELS` that takes part; ``limit_share`` is the memory limit as a share
    of what keeping everything needs; ``repeats`` and ``runs`` say how often work and steps are timed.
    """

    batches: Mapping[str, int]
    limit_share: float
    repeats: int
    runs: int


FULL = Settings(batches={"small_resnet": 32, "small_transformer": 8}, limit_share=0.7, repeats=25, runs=5)

QUICK = Settings(batches={"small_resnet": 8, "small_transformer": 4}, limit_share=0.8, repeats=5, runs=3)
"""Parameters, which nobody can swap out, are more of the memory of a small batch: hence the wider limit."""

STEADY = 0.05
"""The demo measures again when single ops have become this much slower or faster since they were recorded."""

ATTEMPTS = 4
CHECKING_REPEATS = 8

NEXT_STEPS = """{refusals}
Single ops took {drift:+.1%} of their recorded time more after the steps: how steady this machine was.

In {folder}: comparison.json, calibration.json, trace.parquet, this_cpu.toml, and for each model its workload and plans;
for each plan under the limit a picture (.png) and both timelines (.perfetto.json, for ui.perfetto.dev or
chrome://tracing). Next, try:
  {commands}"""

TIGHTER = 0.9
"""The limit of the plan to try next, as a share of the demo's."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Candidate:
    """One plan of the demo, with the limit that it was made for."""

    proposal: Proposal
    limit_bytes: int | None
    predicted: Timeline


@dataclass(frozen=True, slots=True, kw_only=True)
class Demo:
    """What the demo came to.

    ``refusals`` says, for each model, why keeping everything does not fit the limit. ``drift`` is by how much single
    ops took longer (as a share) after the steps than when the machine was recorded: errors below it mean nothing.
    """

    comparisons: tuple[Comparison, ...]
    refusals: Mapping[str, str]
    drift: float

    def next_steps(self, folder: Path) -> str:
        """What lies in ``folder``, and commands to go on with."""
        name, limit_bytes = next((c.workload, c.limit_bytes) for c in self.comparisons if c.limit_bytes is not None)
        lines = [f"{model}: keep-all refused: {refusal}" for model, refusal in self.refusals.items()]
        return NEXT_STEPS.format(
            refusals="\n".join(lines),
            drift=self.drift,
            folder=folder,
            commands="\n  ".join(_commands(folder, name, limit_bytes)),
        )


def _commands(folder: Path, name: str, limit_bytes: int) -> list[str]:
    plan, tight, workload, calibration = (
        shlex.quote(str(folder / file))
        for file in (f"{name}.greedy.plan", "tight.plan", f"{name}.workload.json", "calibration.json")
    )
    priced = f"--calibration {calibration}"
    memory = f"{TIGHTER * limit_bytes / MIB:.1f}MiB"
    return [
        f"stepsim show {plan}",
        f"stepsim plan {workload} --machine this_cpu {priced} --memory {memory} -o {tight}",
        f"stepsim validate {tight} stepsim.workloads.models:{name} {priced}",
    ]


def run_demo(folder: Path, settings: Settings = FULL) -> Demo:
    """Walk the loop and write everything it makes to ``folder``."""
    threads = use_threads()
    machine = this_cpu()
    save_machine(machine, folder / "this_cpu.toml")
    say(f": one training step of each model, as a graph of ops; each op runs on {threads} threads", title="1. Capture")
    programs = [BoundProgram.of(MODELS[name], batch, name) for name, batch in settings.batches.items()]
    for bound in programs:
        bound.workload.save(folder / f"{bound.workload.name}.workload.json")
        say(f"   {bound.workload.name}: {len(bound.workload.ops)} ops, {bound.workload.flop:.3g} FLOP")
    for attempt in range(1, ATTEMPTS + 1):
        done = _measure_and_compare(programs, machine, folder, settings)
        if abs(done.drift) <= STEADY:
            break
        say(
            f"The machine was {done.drift:+.0%} slower while the steps ran than when it was recorded.",
            title="Unsteady. ",
        )
        if attempt < ATTEMPTS:
            say("   Once more from step 2.")
    save_comparisons(done.comparisons, folder / "comparison.json")
    return done


def _measure_and_compare(programs: Sequence[BoundProgram], machine: Machine, folder: Path, settings: Settings) -> Demo:
    """The loop from recording on; how fast the machine is, is looked at again after the steps of each model."""
    calibration = _calibrate(programs, folder, settings.repeats)
    comparisons: list[Comparison] = []
    refusals: dict[str, str] = {}
    drifts: list[float] = []
    for bound in programs:
        name = bound.workload.name
        say("", title=f"3. Plan and simulate {name}")
        candidates, refusals[name] = plan_candidates(bound.workload, machine, calibration, settings.limit_share)
        for candidate in candidates:
            candidate.proposal.plan.save(folder / f"{name}.{candidate.proposal.strategy}.plan")
        comparisons += _execute(bound, candidates, machine, calibration, folder, settings.runs)
        drifts.append(drift(calibration, record([bound], repeats=CHECKING_REPEATS)))
    return Demo(comparisons=tuple(comparisons), refusals=refusals, drift=max(drifts, key=abs))


def drift(calibration: Calibration, later: Trace) -> float:
    """How much longer the same work takes in ``later`` than in ``calibration``, as a share. Knows nothing of steps."""
    medians = later.of("kernel").groupby("work")["duration_s"].median()
    before_s = calibration.work.predict(tuple(medians.index))
    return float(medians.sum() / before_s.sum() - 1)


def _calibrate(programs: Sequence[BoundProgram], folder: Path, repeats: int) -> Calibration:
    say(": every distinct op and copies of all sizes, timed apart from any step", title="2. Record and fit")
    with progress("   recording") as tick:
        trace = record(programs, repeats=repeats, progress=tick)
    trace.save(folder / "trace.parquet")
    calibration = Calibration.fit([trace])
    calibration.save(folder / "calibration.json")
    return calibration


def _execute(
    bound: BoundProgram,
    candidates: Sequence[Candidate],
    machine: Machine,
    calibration: Calibration,
    folder: Path,
    runs: int,
) -> list[Comparison]:
    name = bound.workload.name
    say(f": {len(candidates)} plans, {runs} timed runs each", title=f"4. Execute {name}")
    with progress("   executing") as tick:
        measured = measure(bound, [c.proposal.plan for c in candidates], runs=runs, progress=tick)
    for candidate, found in list(zip(candidates, measured, strict=True))[1:]:
        _draw(candidate, found, machine, folder / f"{name}.{candidate.proposal.strategy}")
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


def plan_candidates(
    workload: Workload, machine: Machine, calibration: Calibration, limit_share: float
) -> tuple[list[Candidate], str]:
    """Keep everything; then, at a limit that this cannot meet, greedy plans. And how the memory pass refuses it."""
    kept = _propose("keep-all", workload, machine, calibration, None)
    limit_bytes = round(limit_share * kept.proposal.predicted_peak_bytes)
    refusal = _refusal(kept.proposal.plan, computing_device(machine), limit_bytes)
    say(f"   limit {format_bytes(limit_bytes)}: keep-all refused: {refusal}")
    limited = [_propose(name, workload, machine, calibration, limit_bytes) for name in UNDER_THE_LIMIT]
    return [kept, *limited], refusal


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
    assert proposal.feasible, "the demo's limits can be met"
    peak, step = format_bytes(proposal.predicted_peak_bytes), format_seconds(proposal.predicted_s)
    say(f"   {strategy}: peak {peak}, {step} a step")
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
    """Both timelines of one plan: as a Chrome trace and as a picture, beside ``stem``."""
    timelines = {"predicted": candidate.predicted, "measured": measured.median_run}
    plan = candidate.proposal.plan
    write_chrome_trace(f"{stem}.perfetto.json", timelines, plans=dict.fromkeys(timelines, plan))
    device = computing_device(machine)
    save_figure(plot_timelines(timelines, device=device, limit_bytes=candidate.limit_bytes), f"{stem}.png")
