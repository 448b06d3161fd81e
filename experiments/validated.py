"""What `experiments.validate_gpu` found on one device: a folder that is written whole, read again, and compared later.

validation.json           the device, and for each model what stands in no other file; written last
machine.toml              the device and its host
calibration.json          fitted to the traces of all models
comparisons.json, .csv    predicted beside measured, one row a model
NAME.trace.parquet        ops, copies and launches as recorded
NAME.plan                 the plan that ran
NAME.timeline             the median of its runs
"""

import os
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

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
class ValidatedModel:
    """One model on the device: what was recorded, what ran, and how it compares.

    ``allocated_peak_bytes`` is the peak of PyTorch's allocator, with workspaces, rounding and whatever else was there;
    None on a CPU. ``eager_max_abs_difference`` is how far plain PyTorch is from itself when it repeats the step.
    """

    trace: Trace
    plan: Plan
    measured: Timeline
    comparison: Comparison
    allocated_peak_bytes: int | None
    eager_max_abs_difference: float


@dataclass(frozen=True, eq=False, kw_only=True)
class Validation:
    """All that was found on ``device``, models by name."""

    device: str
    machine: Machine
    calibration: Calibration
    models: Mapping[str, ValidatedModel]

    def table(self) -> pd.DataFrame:
        """One row a model: predicted beside measured, in seconds and bytes."""
        keys = ("workload", "predicted_s", "measured_s", "step_error", "predicted_peak_bytes", "measured_peak_bytes")
        rows = []
        for model in self.models.values():
            facts = model.comparison.as_json()
            row = {key: facts[key] for key in keys}
            row["allocated_peak_bytes"] = model.allocated_peak_bytes
            row["gradient_max_abs_difference"] = facts["gradient_max_abs_difference"]
            row["eager_max_abs_difference"] = model.eager_max_abs_difference
            rows.append(row)
        return pd.DataFrame(rows)


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
    save_comparisons([model.comparison for model in validation.models.values()], folder / "comparisons.json")
    write_bytes(folder / "comparisons.csv", validation.table().to_csv(index=False).encode())
    facts: dict[str, Any] = {}
    for name, model in validation.models.items():
        model.trace.save(folder / f"{name}.trace.parquet")
        model.plan.save(folder / f"{name}.plan")
        model.measured.save(folder / f"{name}.timeline")
        facts[name] = {
            "allocated_peak_bytes": model.allocated_peak_bytes,
            "eager_max_abs_difference": model.eager_max_abs_difference,
        }
    write_json(folder / MANIFEST, {"format": FORMAT, "device": validation.device, "models": facts})


def load_validation(folder: Path) -> Validation:
    """What `save_validation` wrote. Raises `FileError` for a folder that holds no whole validation."""
    path = folder / MANIFEST
    manifest = read_json(path, FORMAT)
    comparisons = load_comparisons(folder / "comparisons.json")
    models, wanted = manifest.get("models"), [comparison.workload for comparison in comparisons]
    if not isinstance(models, dict) or list(models) != wanted:
        raise FileError(path, "models", models, f"must be those of comparisons.json, {wanted}")
    return Validation(
        device=str(manifest.get("device")),
        machine=load_machine(folder / "machine.toml"),
        calibration=Calibration.load(folder / "calibration.json"),
        models={
            name: ValidatedModel(
                trace=Trace.load(folder / f"{name}.trace.parquet"),
                plan=Plan.load(folder / f"{name}.plan"),
                measured=Timeline.load(folder / f"{name}.timeline"),
                comparison=comparison,
                **_facts(path, name, facts),
            )
            for (name, facts), comparison in zip(models.items(), comparisons, strict=True)
        },
    )


def _facts(path: Path, name: str, facts: object) -> dict[str, Any]:
    """What the manifest says of one model. Raises `FileError`."""
    keys = ("allocated_peak_bytes", "eager_max_abs_difference")
    if not isinstance(facts, dict) or set(facts) != set(keys):
        raise FileError(path, f"models.{name}", facts, f"must hold {' and '.join(keys)}")
    allocated_bytes, difference = (facts[key] for key in keys)
    if not (allocated_bytes is None or isinstance(allocated_bytes, int)):
        raise FileError(path, f"models.{name}.{keys[0]}", allocated_bytes, "must be whole or null")
    if not isinstance(difference, int | float):
        raise FileError(path, f"models.{name}.{keys[1]}", difference, "must be a number")
    return facts
