"""Does this machine do what was predicted: the peak bytes, the gradients and the time of a step, under many plans?

Claim:   VGG16 (batch 32, 3 x 224 x 224; Simonyan & Zisserman 2015) and a GPT of the size of GPT-2 small (batch 8, 512
         tokens; Radford et al. 2019, table 2) run with everything kept, and under the plan of each memory strategy
         within `SHARES` of what that takes: swaps, recomputation and both. Each plan needs the predicted bytes exactly,
         and is no further from plain PyTorch than that is from itself. How far the predicted times are off, and how
         many pairs of plans they put in the right order, is told, and no claim yet.
Needs:   one GPU and a host with 16 GB each, about five minutes, and no network: torch, numpy, numba, scipy, pandas,
         pyarrow and rich; what else it imports can be carried along as wheels (simpy, orjson, pydantic, pydantic-core,
         annotated-types, typing-inspection, tomli-w). On a CPU there are tiny models: a minute.
Writes:  the files of `experiments.validated`, whose `load_validation` reads them again.

    python -m experiments.validate_gpu --device cuda:0 -o FOLDER
    python -m experiments.validate_gpu --device cpu --tiny -o FOLDER

On a CPU the link that swaps go over is emulated: `experiments.places`.
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median

import torch

from experiments.experiment import Claim
from experiments.memory_plans import Candidate, candidates
from experiments.places import Place
from experiments.validated import ValidatedModel, ValidatedPlan, Validation, save_validation
from stepsim.costmodels import Calibration
from stepsim.errors import StepsimError
from stepsim.executor import BoundProgram, record
from stepsim.executor.eager import eager_step, max_abs_difference
from stepsim.executor.lanes import Lanes
from stepsim.executor.measure import Measured, measure
from stepsim.memory import memory_profile
from stepsim.progress import progress, say
from stepsim.simulator import simulate
from stepsim.strategies.memory.lowering import computing_device
from stepsim.traces.trace import Trace
from stepsim.units import format_bytes, format_seconds
from stepsim.validation import compare, rank_agreement
from stepsim.workloads.factory import Factory
from stepsim.workloads.families.vgg import vgg16
from stepsim.workloads.models import small_transformer

SHARES = (0.9, 0.75)
"""Limits, as shares of keep-all's predicted peak. Not lower: 0.73 of VGG16's is what no plan can do without."""

EAGER_STEPS = 6
"""Steps of plain PyTorch that are held against each other."""

TIMES_EAGER = 2.0
"""How much further from plain PyTorch than that is from itself a plan may be: another draw of the same noise.

Where plain PyTorch repeats itself to the bit, as on a CPU, so must the plan.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """``more``: strategies for which few models are small enough."""

    factory: Factory
    batch: int
    more: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How often work (``repeats``) and each plan (``runs``) are timed; how long a strategy may search for a plan."""

    models: Mapping[str, Model]
    shares: tuple[float, ...]
    repeats: int
    runs: int
    search_s: float


FULL = Settings(
    models={
        "vgg16": Model(factory=vgg16, batch=32),
        "gpt": Model(
            factory=partial(small_transformer, width=768, blocks=12, heads=12, length=512, vocabulary=50257), batch=8
        ),
    },
    shares=SHARES,
    repeats=20,
    runs=7,
    search_s=8.0,
)
"""Searches take two minutes at most, recording and running the rest. Checkmate's programs grow with the square of the
ops, of which VGG16 has 208 and the GPT 821: it needs longer."""

TINY = Settings(
    models={
        "vgg16": Model(factory=partial(vgg16, image=32, shrink=16, hidden=32, classes=10), batch=16),
        "gpt": Model(
            factory=partial(small_transformer, width=16, blocks=1, heads=2, length=8, vocabulary=20),
            batch=8,
            more=("checkmate",),
        ),
    },
    shares=(0.9,),
    repeats=2,
    runs=2,
    search_s=2.0,
)


@dataclass(frozen=True, eq=False, kw_only=True)
class Ran:
    """One model as it ran, before its times were predicted from all traces."""

    trace: Trace
    plans: list[tuple[Candidate, Measured]]
    eager_max_abs_difference: float


def run(folder: Path, *, quick: bool) -> list[Claim]:
    """On the first GPU; quick is tiny, and runs on a CPU too. Raises `StepsimError` for a full run without a GPU."""
    if not torch.cuda.is_available() and not quick:
        raise StepsimError("validate_gpu: torch sees no CUDA device, and a CPU runs only what --quick asks for")
    device = "cuda:0" if torch.cuda.is_available() else "cpu"
    return claims_of(validate(device, TINY if quick else FULL, folder))


def validate(device: str, settings: Settings, folder: Path) -> Validation:
    """Record, plan, run, fit, simulate and compare on ``device``; write all of it to ``folder``."""
    place = Place.of(device)
    ran = {
        name: _run_model(BoundProgram.of(model.factory, model.batch, name, device), place, settings, model.more, folder)
        for name, model in settings.models.items()
    }
    calibration = Calibration.fit([one.trace for one in ran.values()])
    models = {name: _compared(name, one, place, calibration) for name, one in ran.items()}
    validation = Validation(device=device, machine=place.machine, calibration=calibration, models=models)
    save_validation(validation, folder)
    for name in ran:
        _unfinished(folder, name).unlink()
    return validation


def _unfinished(folder: Path, name: str) -> Path:
    """Where the samples of a model lie until all is done, so that a run that ends before does not lose them."""
    return folder / f"{name}.unfinished.trace.parquet"


def _run_model(bound: BoundProgram, place: Place, settings: Settings, more: Sequence[str], folder: Path) -> Ran:
    """Nothing of the model is on the device any more when the next one comes."""
    workload = bound.workload
    say(f": batch {workload.batch}, {len(workload.ops)} ops, {workload.flop:.4g} FLOP a step", title=workload.name)
    with progress("   recording") as tick:
        trace = record([bound], repeats=settings.repeats, progress=tick)
    folder.mkdir(parents=True, exist_ok=True)
    trace.save(_unfinished(folder, workload.name))
    spread = _eager_spread(bound)
    chosen = candidates(
        workload,
        place.machine,
        place.costs(Calibration.fit([trace])),
        shares=settings.shares,
        more=more,
        time_limit_s=settings.search_s,
    )
    measured = _measured(bound, chosen, place.lanes, settings.runs)
    return Ran(trace=trace, plans=list(zip(chosen, measured, strict=True)), eager_max_abs_difference=spread)


def _eager_spread(bound: BoundProgram) -> float:
    """The largest difference between steps of plain PyTorch that should be equal."""
    first, *others = (eager_step(bound) for _ in range(EAGER_STEPS))
    return max(max_abs_difference(other, first) for other in others)


def _measured(bound: BoundProgram, chosen: Sequence[Candidate], lanes: Lanes, runs: int) -> list[Measured]:
    """Plan by plan, so that host memory is pinned for one of them at a time, and each from the same parameters.

    After hundreds of steps gradients, and how far plain PyTorch is from itself, would be others.
    """
    # What recording and plain PyTorch took lies in pools of other streams, out of reach of the lanes.
    torch.cuda.empty_cache()
    start = {name: value.to("cpu", copy=True) for name, value in bound.step.module.state_dict().items()}
    found = []
    with progress("   executing") as tick:
        for number, candidate in enumerate(chosen, 1):
            bound.step.module.load_state_dict(start)
            found += measure(bound, [candidate.plan], runs=runs, lanes=lanes)
            say(f"   {candidate.name}: {format_seconds(found[-1].median_run.makespan_s)}")
            tick(number, len(chosen))
    return found


def _compared(name: str, ran: Ran, place: Place, calibration: Calibration) -> ValidatedModel:
    return ValidatedModel(
        trace=ran.trace,
        plans={one.name: _compared_plan(name, one, measured, place, calibration) for one, measured in ran.plans},
        eager_max_abs_difference=ran.eager_max_abs_difference,
    )


def _compared_plan(
    workload: str, candidate: Candidate, measured: Measured, place: Place, calibration: Calibration
) -> ValidatedPlan:
    device = computing_device(place.machine)
    comparison = compare(
        simulate(candidate.plan, place.machine, place.costs(calibration)),
        measured.runs,
        workload=workload,
        strategy=candidate.name,
        predicted_peak_bytes=memory_profile(candidate.plan).peak_bytes(device),
        measured_peak_bytes=measured.memory.peak_bytes(device),
        gradient_max_abs_difference=measured.max_abs_difference,
        limit_bytes=candidate.limit_bytes,
        provenance=calibration.provenance,
    )
    return ValidatedPlan(
        plan=candidate.plan,
        measured=measured.median_run,
        comparison=comparison,
        allocated_peak_bytes=measured.allocated_peak_bytes,
    )


def claims_of(validation: Validation) -> list[Claim]:
    """Two for each model: the bytes and the gradients of the plan that is furthest off."""
    claims = []
    for name, model in validation.models.items():
        off_bytes = max(abs(one.measured_peak_bytes - one.predicted_peak_bytes) for one in model.comparisons)
        difference = max(one.gradient_max_abs_difference for one in model.comparisons)
        most = TIMES_EAGER * model.eager_max_abs_difference
        claims += [
            Claim(
                claim=f"{name}: no plan's measured peak bytes differ from those predicted",
                ours=off_bytes,
                holds=off_bytes == 0,
            ),
            Claim(
                claim=f"{name}: no plan is off plain PyTorch by over {TIMES_EAGER:g} times what that is off itself",
                ours=difference,
                holds=difference <= most,
            ),
        ]
    return claims


def main(arguments: Sequence[str] | None = None) -> int:
    question = (__doc__ or "").partition("\n")[0]
    parser = argparse.ArgumentParser(prog="python -m experiments.validate_gpu", description=question)
    parser.add_argument("--device", default="cuda:0", help="cuda:0, or cpu")
    parser.add_argument("--tiny", action="store_true", help="tiny models, few repeats: a minute even on a CPU")
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="FOLDER", help="where to write")
    given = parser.parse_args(arguments)
    try:
        validation = validate(given.device, TINY if given.tiny else FULL, given.output)
    except StepsimError as error:
        print("validate_gpu:", " ".join(str(error).splitlines()), file=sys.stderr)
        return 2
    for name, model in validation.models.items():
        for plan, found in model.plans.items():
            print(f"{name}, {plan}: {_told(found)}")
        print(f"{name}: {_told_of_all(name, model)}")
    claims = claims_of(validation)
    for claim in claims:
        print("holds" if claim.holds else "FAILS", f" {claim.claim}: {claim.ours:g}")
    return 0 if all(claim.holds for claim in claims) else 1


def _told(plan: ValidatedPlan) -> str:
    comparison, allocated = plan.comparison, plan.allocated_peak_bytes
    step = f"{format_seconds(comparison.predicted_s)} predicted, {format_seconds(comparison.measured_s)} measured"
    peak = f"peak {format_bytes(comparison.measured_peak_bytes)}"
    beside = "" if allocated is None else f", {format_bytes(allocated)} allocated"
    return f"{step} ({comparison.step_error:+.1%}), {peak}{beside}"


def _told_of_all(name: str, model: ValidatedModel) -> str:
    error = median(abs(one.step_error) for one in model.comparisons)
    agreement = rank_agreement(model.comparisons, name)
    in_order = "" if agreement is None else f", {agreement:.0%} of pairs in the order predicted"
    return f"{len(model.plans)} plans, median error of a step {error:.1%}{in_order}"


if __name__ == "__main__":
    sys.exit(main())
