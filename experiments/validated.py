"""What `experiments.validate_gpu` found on one device: a folder that is written whole, read again, and compared later.

validation.json           the device, and for each model what stands in no other file; written last
machine.toml              the device and its host
calibration.json          fitted to the traces of all models
comparisons.json, .csv    predicted beside measured, one row a plan
MODEL.trace.parquet       ops, copies and launches as recorded
MODEL.PLAN.plan           the plan that ran
MODEL.PLAN.timeline       the median of its runs
"""

import os
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from stepsim.costmodels import Calibration
from stepsim.errors import FileError
from stepsim.machines import Machine, load_machine, save_machine
from stepsim.plan import Plan
from stepsim.tables import read_json, write_bytes, write_json
from stepsim.timeline import Timeline
from stepsim.traces.trace import Trace
from stepsim.validation import Comparison, load_comparisons, save_comparisons

FORMAT = "stepsim-validation"
MANIFEST = "validation.json"


@dataclass(frozen=True, eq=False, kw_only=True)
class ValidatedPlan:
    """One plan on the device: what ran, and how it compares.

    ``allocated_peak_bytes`` is the peak of PyTorch's allocator, with workspaces, rounding and whatever else was there;
    None on a CPU.
    """

    plan: Plan
    measured: Timeline
    comparison: Comparison
    allocated_peak_bytes: int | None


@dataclass(frozen=True, eq=False, kw_only=True)
class ValidatedModel:
    """One model on the device: what was recorded, and its plans by name.

    ``eager_max_abs_difference`` is how far plain PyTorch is from itself when it repeats the step.
    """

    trace: Trace
    plans: Mapping[str, ValidatedPlan]
    eager_max_abs_difference: float

    @property
    def comparisons(self) -> list[Comparison]:
        return [plan.comparison for plan in self.plans.values()]


@dataclass(frozen=True, eq=False, kw_only=True)
class Validation:
    """All that was found on ``device``, models by name."""

    device: str
    machine: Machine
    calibration: Calibration
    models: Mapping[str, ValidatedModel]

    @property
    def comparisons(self) -> list[Comparison]:
        """Of all plans, model by model."""
        return [comparison for model in self.models.values() for comparison in model.comparisons]

    def table(self) -> pd.DataFrame:
        """One row a plan: predicted beside measured, in seconds and bytes."""
        step = ("workload", "strategy", "limit_bytes", "predicted_s", "measured_s", "step_error")
        peak = ("predicted_peak_bytes", "measured_peak_bytes")
        rows = []
        for model in self.models.values():
            for plan in model.plans.values():
                facts = plan.comparison.as_json()
                row = {key: facts[key] for key in (*step, *peak)}
                row["allocated_peak_bytes"] = plan.allocated_peak_bytes
                row["gradient_max_abs_difference"] = facts["gradient_max_abs_difference"]
                row["eager_max_abs_difference"] = model.eager_max_abs_difference
                rows.append(row)
        return pd.DataFrame(rows).astype({"limit_bytes": "Int64", "allocated_peak_bytes": "Int64"})


def save_validation(validation: Validation, folder: Path) -> None:
    """Write all files to ``folder``. While they change there is no manifest, so that nobody reads a mixture."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as made:
        staged = Path(made)
        _write(validation, staged)
        with suppress(FileNotFoundError):
            (folder / MANIFEST).unlink()
        for file in sorted(staged.iterdir(), key=lambda file: file.name == MANIFEST):
            os.replace(file, folder / file.name)


def _write(validation: Validation, folder: Path) -> None:
    save_machine(validation.machine, folder / "machine.toml")
    validation.calibration.save(folder / "calibration.json")
    save_comparisons(validation.comparisons, folder / "comparisons.json")
    write_bytes(folder / "comparisons.csv", validation.table().to_csv(index=False).encode())
    facts: dict[str, Any] = {}
    for name, model in validation.models.items():
        model.trace.save(folder / f"{name}.trace.parquet")
        for strategy, plan in model.plans.items():
            plan.plan.save(folder / f"{name}.{strategy}.plan")
            plan.measured.save(folder / f"{name}.{strategy}.timeline")
        facts[name] = {
            "eager_max_abs_difference": model.eager_max_abs_difference,
            "allocated_peak_bytes": {strategy: plan.allocated_peak_bytes for strategy, plan in model.plans.items()},
        }
    write_json(folder / MANIFEST, {"format": FORMAT, "device": validation.device, "models": facts})


def load_validation(folder: Path) -> Validation:
    """What `save_validation` wrote. Raises `FileError` for a folder that holds no whole validation."""
    path = folder / MANIFEST
    manifest = read_json(path, FORMAT)
    models = _facts(path, manifest.get("models"))
    comparisons = {(one.workload, one.strategy): one for one in load_comparisons(folder / "comparisons.json")}
    named = [(name, plan) for name, facts in models.items() for plan in facts.allocated_peak_bytes]
    if named != list(comparisons):
        raise FileError(path, "models", named, f"must have the plans of comparisons.json, {list(comparisons)}")

    def plan_of(name: str, strategy: str, allocated_bytes: int | None) -> ValidatedPlan:
        return ValidatedPlan(
            plan=Plan.load(folder / f"{name}.{strategy}.plan"),
            measured=Timeline.load(folder / f"{name}.{strategy}.timeline"),
            comparison=comparisons[name, strategy],
            allocated_peak_bytes=allocated_bytes,
        )

    return Validation(
        device=str(manifest.get("device")),
        machine=load_machine(folder / "machine.toml"),
        calibration=Calibration.load(folder / "calibration.json"),
        models={
            name: ValidatedModel(
                trace=Trace.load(folder / f"{name}.trace.parquet"),
                plans={plan: plan_of(name, plan, found) for plan, found in facts.allocated_peak_bytes.items()},
                eager_max_abs_difference=facts.eager_max_abs_difference,
            )
            for name, facts in models.items()
        },
    )


class _Facts(BaseModel):
    """What the manifest says of one model; bytes by plan."""

    model_config = ConfigDict(strict=True, extra="forbid")

    eager_max_abs_difference: float
    allocated_peak_bytes: dict[str, int | None]


def _facts(path: Path, models: object) -> dict[str, _Facts]:
    """By model. Raises `FileError`."""
    try:
        return TypeAdapter(dict[str, _Facts]).validate_python(models)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(["models", *map(str, first["loc"])])
        raise FileError(path, field, first["input"], first["msg"].lower()) from error
