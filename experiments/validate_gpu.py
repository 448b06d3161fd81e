"""Does this machine do what was predicted: the peak bytes, the gradients and the time of a step?

Claim:   keep-all of VGG16 (batch 32, 3 x 224 x 224; Simonyan & Zisserman 2015) and of a GPT of the size of GPT-2 small
         (batch 8, 512 tokens; Radford et al. 2019, table 2) needs the predicted bytes exactly, and is no further from
         plain PyTorch than that is from itself. How far the predicted time is off is told, and no claim yet.
Needs:   one GPU with 16 GB, a few minutes, and no network: torch, numpy, pandas, pyarrow and rich; what else it imports
         can be carried along as wheels (simpy, orjson, pydantic, pydantic-core, annotated-types, typing-inspection,
         tomli-w). On a CPU there are tiny models: seconds.
Writes:  the files of `experiments.validated`, whose `load_validation` reads them again.

    python -m experiments.validate_gpu --device cuda:0 -o FOLDER
    python -m experiments.validate_gpu --device cpu --tiny -o FOLDER
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch

from experiments.experiment import Claim
from experiments.validated import ValidatedModel, Validation, save_validation
from stepsim.costmodels import Calibration
from stepsim.errors import StepsimError
from stepsim.executor import BoundProgram, find_device, machine_of, record, use_threads
from stepsim.executor.eager import eager_step, max_abs_difference
from stepsim.executor.measure import Measured, measure
from stepsim.machines import Machine
from stepsim.memory import memory_profile
from stepsim.plan import Plan
from stepsim.progress import progress, say
from stepsim.simulator import simulate
from stepsim.strategies.memory.lowering import computing_device, plan_for_policy
from stepsim.traces.trace import Trace
from stepsim.units import format_bytes, format_seconds
from stepsim.validation import compare
from stepsim.workloads.factory import Factory
from stepsim.workloads.families.vgg import vgg16
from stepsim.workloads.models import small_transformer

EAGER_STEPS = 3
"""Steps of plain PyTorch that are held against each other."""

TIMES_EAGER = 2.0
"""How much further from plain PyTorch than that is from itself a plan may be: another draw of the same noise.

Where plain PyTorch repeats itself to the bit, as on a CPU, so must the plan.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """``models`` by name, each with its batch; how often work (``repeats``) and steps (``runs``) are timed."""

    models: Mapping[str, tuple[Factory, int]]
    repeats: int
    runs: int


FULL = Settings(
    models={
        "vgg16": (vgg16, 32),
        "gpt": (partial(small_transformer, width=768, blocks=12, heads=12, length=512, vocabulary=50257), 8),
    },
    repeats=25,
    runs=20,
)

TINY = Settings(
    models={
        "vgg16": (partial(vgg16, image=32, shrink=16, hidden=32, classes=10), 2),
        "gpt": (partial(small_transformer, width=16, blocks=1, heads=2, length=8, vocabulary=20), 2),
    },
    repeats=2,
    runs=2,
)


@dataclass(frozen=True, eq=False, kw_only=True)
class Ran:
    """One model as it ran, before anything was predicted."""

    trace: Trace
    plan: Plan
    measured: Measured
    eager_max_abs_difference: float


def run(folder: Path, *, quick: bool) -> list[Claim]:
    """On the first GPU; quick is tiny, and runs on a CPU too. Raises `StepsimError` for a full run without a GPU."""
    if not torch.cuda.is_available() and not quick:
        raise StepsimError("validate_gpu: torch sees no CUDA device, and a CPU runs only what --quick asks for")
    device = "cuda:0" if torch.cuda.is_available() else "cpu"
    return claims_of(validate(device, TINY if quick else FULL, folder))


def validate(device: str, settings: Settings, folder: Path) -> Validation:
    """Record, run, fit, simulate and compare on ``device``; write all of it to ``folder``."""
    there = find_device(device)
    if there.type == "cpu":
        use_threads()
    machine = machine_of(there)
    ran = {
        name: _run_model(BoundProgram.of(factory, batch, name, device), machine, settings)
        for name, (factory, batch) in settings.models.items()
    }
    calibration = Calibration.fit([one.trace for one in ran.values()])
    models = {name: _compared(name, one, machine, calibration) for name, one in ran.items()}
    validation = Validation(device=device, machine=machine, calibration=calibration, models=models)
    save_validation(validation, folder)
    return validation


def _run_model(bound: BoundProgram, machine: Machine, settings: Settings) -> Ran:
    """Nothing of the model is on the device any more when the next one comes."""
    workload = bound.workload
    say(f": batch {workload.batch}, {len(workload.ops)} ops, {workload.flop:.4g} FLOP a step", title=workload.name)
    with progress("   recording") as tick:
        trace = record([bound], repeats=settings.repeats, progress=tick)
    spread = _eager_spread(bound)
    plan = plan_for_policy(workload, machine, {}, machine.device(computing_device(machine)).memory_bytes)
    with progress("   executing") as tick:
        (measured,) = measure(bound, [plan], runs=settings.runs, progress=tick)
    return Ran(trace=trace, plan=plan, measured=measured, eager_max_abs_difference=spread)


def _eager_spread(bound: BoundProgram) -> float:
    """The largest difference between steps of plain PyTorch that should be equal."""
    first, *others = (eager_step(bound) for _ in range(EAGER_STEPS))
    return max(max_abs_difference(other, first) for other in others)


def _compared(name: str, ran: Ran, machine: Machine, calibration: Calibration) -> ValidatedModel:
    device = computing_device(machine)
    comparison = compare(
        simulate(ran.plan, machine, calibration),
        ran.measured.runs,
        workload=name,
        strategy="keep-all",
        predicted_peak_bytes=memory_profile(ran.plan).peak_bytes(device),
        measured_peak_bytes=ran.measured.memory.peak_bytes(device),
        gradient_max_abs_difference=ran.measured.max_abs_difference,
        provenance=calibration.provenance,
    )
    return ValidatedModel(
        trace=ran.trace,
        plan=ran.plan,
        measured=ran.measured.median_run,
        comparison=comparison,
        allocated_peak_bytes=ran.measured.allocated_peak_bytes,
        eager_max_abs_difference=ran.eager_max_abs_difference,
    )


def claims_of(validation: Validation) -> list[Claim]:
    """Two for each model: its bytes, and its gradients."""
    claims = []
    for name, model in validation.models.items():
        comparison, most = model.comparison, TIMES_EAGER * model.eager_max_abs_difference
        beyond_bytes = comparison.measured_peak_bytes - comparison.predicted_peak_bytes
        difference = comparison.gradient_max_abs_difference
        claims += [
            Claim(claim=f"{name}: measured less predicted peak bytes is 0", ours=beyond_bytes, holds=beyond_bytes == 0),
            Claim(
                claim=f"{name}: off plain PyTorch by at most {TIMES_EAGER:g} times what that is off itself",
                ours=difference,
                holds=difference <= most,
            ),
        ]
    return claims


def main(arguments: Sequence[str] | None = None) -> int:
    question = (__doc__ or "").partition("\n")[0]
    parser = argparse.ArgumentParser(prog="python -m experiments.validate_gpu", description=question)
    parser.add_argument("--device", default="cuda:0", help="cuda:0, or cpu")
    parser.add_argument("--tiny", action="store_true", help="tiny models, few repeats: seconds even on a CPU")
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="FOLDER", help="where to write")
    given = parser.parse_args(arguments)
    try:
        validation = validate(given.device, TINY if given.tiny else FULL, given.output)
    except StepsimError as error:
        print("validate_gpu:", " ".join(str(error).splitlines()), file=sys.stderr)
        return 2
    for name, model in validation.models.items():
        print(f"{name}: {_told(model)}")
    claims = claims_of(validation)
    for claim in claims:
        print("holds" if claim.holds else "FAILS", f" {claim.claim}: {claim.ours:g}")
    return 0 if all(claim.holds for claim in claims) else 1


def _told(model: ValidatedModel) -> str:
    comparison, allocated = model.comparison, model.allocated_peak_bytes
    step = f"{format_seconds(comparison.predicted_s)} predicted, {format_seconds(comparison.measured_s)} measured"
    peak = f"peak {format_bytes(comparison.measured_peak_bytes)}"
    beside = "" if allocated is None else f", {format_bytes(allocated)} allocated"
    return f"{step} ({comparison.step_error:+.1%}), {peak}{beside}"


if __name__ == "__main__":
    sys.exit(main())
