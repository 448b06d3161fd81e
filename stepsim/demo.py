"""The whole loop on this machine: capture, measure, calibrate, plan, simulate, execute, compare."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from stepsim.chrome_trace import write_chrome_trace
from stepsim.costmodels import Calibration
from stepsim.errors import OutOfMemoryError
from stepsim.executor import BoundProgram, Recorder, record, use_threads
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


FULL = Settings(batches={"small_resnet": 32, "small_transformer": 8}, limit_share=0.7, repeats=12, runs=5)

QUICK = Settings(batches={"small_resnet": 8, "small_transformer": 4}, limit_share=0.8, repeats=4, runs=3)
"""Parameters, which nobody can swap out, are more of the memory of a small batch: hence the wider limit."""

NEXT_STEPS = """{refusals}

In {folder}: comparison.json, this_cpu.toml; for each model its workload.json, trace.parquet and calibration.json; for
each plan its file (.plan), a picture (.png) and both timelines (.perfetto.json, for ui.perfetto.dev). Next, try:
  {commands}"""

TIGHTER = 0.9
"""The limit of the plan to try next, as a share of the demo's."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Candidate:
    """One plan of the demo, with the limit that it was made for."""

    proposal: Proposal
    limit_bytes: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Demo:
    """What the demo came to.

    ``refusals`` says, for each model, why keeping everything does not fit the limit.
    """

    comparisons: tuple[Comparison, ...]
    refusals: Mapping[str, str]

    def next_steps(self, folder: Path, program: str = "stepsim") -> str:
        """What lies in ``folder``, and commands to go on with; ``program`` is what the command line is called."""
        name, limit_bytes = next((c.workload, c.limit_bytes) for c in self.comparisons if c.limit_bytes is not None)
        lines = [f"{model}: keep-all refused: {refusal}" for model, refusal in self.refusals.items()]
        return NEXT_STEPS.format(
            refusals="\n".join(lines),
            folder=folder,
            commands="\n  ".join(f"{program} {command}" for command in _commands(folder, name, limit_bytes)),
        )


def _commands(folder: Path, name: str, limit_bytes: int) -> list[str]:
    plan, tight, workload, calibration = (
        shlex.quote(str(folder / file))
        for file in (f"{name}.greedy.plan", "tight.plan", f"{name}.workload.json", f"{name}.calibration.json")
    )
    priced = f"--calibration {calibration}"
    memory = f"{TIGHTER * limit_bytes / MIB:.1f}MiB"
    return [
        f"show {plan}",
        f"plan {workload} --machine this_cpu {priced} --memory {memory} -o {tight}",
        f"validate {tight} stepsim.workloads.models:{name} {priced}",
    ]


def run_demo(folder: Path, settings: Settings = FULL) -> Demo:
    """Walk the loop and write everything it makes to ``folder``."""
    threads, machine = use_threads(), this_cpu()
    save_machine(machine, folder / "this_cpu.toml")
    comparisons: list[Comparison] = []
    refusals: dict[str, str] = {}
    for name, batch in settings.batches.items():
        say(f": batch {batch}, {threads} thread(s) for each op", title=name)
        bound = BoundProgram.of(MODELS[name], batch, name)
        bound.workload.save(folder / f"{name}.workload.json")
        say(f": one training step as a graph of {len(bound.workload.ops)} ops", title="1. Capture")
        calibration = _calibrate(bound, settings.repeats)
        say("", title="3. Plan and simulate")
        candidates, refusals[name] = plan_candidates(bound.workload, machine, calibration, settings.limit_share)
        comparisons += _execute(bound, candidates, machine, folder, settings.runs)
    save_comparisons(comparisons, folder / "comparison.json")
    return Demo(comparisons=tuple(comparisons), refusals=refusals)


def _calibrate(bound: BoundProgram, repeats: int) -> Calibration:
    say(": every distinct op, and copies of all sizes, timed apart from any step", title="2. Record and fit")
    with progress("   recording") as tick:
        return Calibration.fit([record([bound], repeats=repeats, progress=tick)])


def _execute(
    bound: BoundProgram,
    candidates: Sequence[Candidate],
    machine: Machine,
    folder: Path,
    runs: int,
) -> list[Comparison]:
    """Run the plans, and compare them with what is predicted from ops that were timed in the same minute.

    The machine is recorded once more, between the runs: one that others use is not as fast now as it was when the plans
    were made, and no prediction could tell. The recorder times single ops, never a step.
    """
    recorder = Recorder([bound])
    stem = folder / bound.workload.name
    say(
        f": {len(candidates)} plans, {runs} timed runs each; between them the ops are recorded once more",
        title="4. Execute",
    )
    with progress("   executing") as tick:
        plans = [candidate.proposal.plan for candidate in candidates]
        measured = measure(bound, plans, runs=runs, after_run=recorder.run_pass, progress=tick)
    trace = recorder.trace()
    trace.save(f"{stem}.trace.parquet")
    calibration = Calibration.fit([trace])
    calibration.save(f"{stem}.calibration.json")
    return [
        _compare(candidate, found, machine, calibration, stem)
        for candidate, found in zip(candidates, measured, strict=True)
    ]


def _compare(
    candidate: Candidate, measured: Measured, machine: Machine, calibration: Calibration, stem: Path
) -> Comparison:
    """One plan as predicted and as measured: its file, its picture, its Chrome trace, its comparison."""
    proposal = candidate.proposal
    predicted = simulate(proposal.plan, machine, calibration)
    own = f"{stem}.{proposal.strategy}"
    proposal.plan.save(f"{own}.plan")
    timelines = {"predicted": predicted, "measured": measured.median_run}
    write_chrome_trace(f"{own}.perfetto.json", timelines, plans=dict.fromkeys(timelines, proposal.plan))
    figure = plot_timelines(timelines, device=computing_device(machine), limit_bytes=candidate.limit_bytes)
    save_figure(figure, f"{own}.png")
    return compare_measured(
        predicted,
        measured,
        machine,
        workload=stem.name,
        strategy=proposal.strategy,
        plan=proposal.plan,
        limit_bytes=candidate.limit_bytes,
        provenance=calibration.provenance,
    )


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
    return Candidate(proposal=proposal, limit_bytes=limit_bytes)


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
