"""Comparison: what was predicted beside what was measured, for one plan of one workload."""

import itertools
import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import BaseModel, ConfigDict, ValidationError

from stepsim.errors import FileError, StepsimError
from stepsim.plan import TaskKind
from stepsim.tables import read_json, write_json
from stepsim.timeline import Timeline

FORMAT = "stepsim-comparison"


@dataclass(frozen=True, slots=True, kw_only=True)
class KindSeconds:
    """Seconds that the tasks of one kind took together, predicted and measured (median over the runs)."""

    predicted_s: float
    measured_s: float

    @property
    def error(self) -> float | None:
        """Relative: positive where the prediction is too long; ``None`` where nothing was measured."""
        return _error(self.predicted_s, self.measured_s) if self.measured_s > 0 else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """One plan, predicted and measured.

    ``measured_runs_s`` are the step times of all runs. ``kinds`` has an entry for each kind of task that takes time, by
    its label. ``gradient_max_abs_difference`` is against eager PyTorch. ``limit_bytes`` is the memory limit that the
    plan was made for, if any. ``provenance`` says in text what was measured where: machine, versions, threads, date.

    Raises `StepsimError` for numbers that cannot be: negative, not finite, no run, or a measured time of 0.
    """

    workload: str
    strategy: str
    predicted_s: float
    measured_runs_s: tuple[float, ...]
    predicted_peak_bytes: int
    measured_peak_bytes: int
    gradient_max_abs_difference: float
    limit_bytes: int | None
    kinds: Mapping[str, KindSeconds]
    provenance: Mapping[str, str]

    def __post_init__(self) -> None:
        for name, value in _numbers(self):
            if not (math.isfinite(value) and value >= 0):
                raise StepsimError(f"{self.workload}, {self.strategy}: {name} must be finite and >= 0, got {value}")
        if not self.measured_runs_s or self.measured_s == 0:
            runs_s = self.measured_runs_s
            raise StepsimError(f"{self.workload}, {self.strategy}: measured_runs_s must hold times > 0, got {runs_s}")

    @property
    def measured_s(self) -> float:
        """The median of the runs."""
        return statistics.median(self.measured_runs_s)

    @property
    def step_error(self) -> float:
        """Of the step time, relative: positive where the prediction is too long."""
        return _error(self.predicted_s, self.measured_s)

    def as_json(self) -> dict[str, Any]:
        """First the keys that are fixed for every command, then what else is known."""
        return {
            "workload": self.workload,
            "strategy": self.strategy,
            "predicted_s": self.predicted_s,
            "measured_s": self.measured_s,
            "predicted_peak_bytes": self.predicted_peak_bytes,
            "measured_peak_bytes": self.measured_peak_bytes,
            "gradient_max_abs_difference": self.gradient_max_abs_difference,
            "limit_bytes": self.limit_bytes,
            "step_error": self.step_error,
            "measured_runs_s": list(self.measured_runs_s),
            "kinds": {label: asdict(kind) for label, kind in self.kinds.items()},
            "provenance": dict(self.provenance),
        }


def _numbers(comparison: Comparison) -> Iterator[tuple[str, float]]:
    """Every number of ``comparison`` with its name."""
    for name in ("predicted_s", "predicted_peak_bytes", "measured_peak_bytes", "gradient_max_abs_difference"):
        yield name, getattr(comparison, name)
    if comparison.limit_bytes is not None:
        yield "limit_bytes", comparison.limit_bytes
    for run, seconds in enumerate(comparison.measured_runs_s):
        yield f"measured_runs_s.{run}", seconds
    for label, kind in comparison.kinds.items():
        yield f"kinds.{label}.predicted_s", kind.predicted_s
        yield f"kinds.{label}.measured_s", kind.measured_s


def _error(predicted: float, measured: float) -> float:
    return (predicted - measured) / measured


def compare(
    predicted: Timeline,
    measured: Sequence[Timeline],
    *,
    workload: str,
    strategy: str,
    predicted_peak_bytes: int,
    measured_peak_bytes: int,
    gradient_max_abs_difference: float,
    limit_bytes: int | None = None,
    provenance: Mapping[str, str],
) -> Comparison:
    """The comparison of a predicted timeline with one or more measured runs of the same plan.

    Raises `StepsimError` without a run, for a run of another plan, and for numbers that `Comparison` refuses.
    """
    if not measured:
        raise StepsimError(f"{workload}, {strategy}: nothing was measured")
    for run in measured:
        if run.plan_hash != predicted.plan_hash:
            wrong, right = run.plan_hash[:12], predicted.plan_hash[:12]
            raise StepsimError(f"{workload}, {strategy}: plan {wrong} was measured, plan {right} was predicted")
    return Comparison(
        workload=workload,
        strategy=strategy,
        predicted_s=predicted.makespan_s,
        measured_runs_s=tuple(run.makespan_s for run in measured),
        predicted_peak_bytes=predicted_peak_bytes,
        measured_peak_bytes=measured_peak_bytes,
        gradient_max_abs_difference=gradient_max_abs_difference,
        limit_bytes=limit_bytes,
        kinds=_by_kind(predicted, measured),
        provenance=dict(provenance),
    )


def _by_kind(predicted: Timeline, measured: Sequence[Timeline]) -> dict[str, KindSeconds]:
    def seconds(timeline: Timeline) -> list[float]:
        spans = timeline.spans
        return [float(total) for total in np.bincount(spans.kind, spans.end_s - spans.start_s, len(TaskKind))]

    ours = seconds(predicted)
    theirs = [statistics.median(runs_s) for runs_s in zip(*map(seconds, measured), strict=True)]
    return {
        kind.label: KindSeconds(predicted_s=ours[kind], measured_s=theirs[kind])
        for kind in TaskKind
        if ours[kind] > 0 or theirs[kind] > 0
    }


def rank_agreement(comparisons: Sequence[Comparison], workload: str) -> float | None:
    """The share of pairs of plans of ``workload`` that prediction and measurement put in the same order by step time.

    Plans that tie in one must tie in the other. ``None`` with fewer than two plans.
    """
    plans = [one for one in comparisons if one.workload == workload]
    pairs = list(itertools.combinations(plans, 2))
    if not pairs:
        return None
    return statistics.fmean(
        np.sign(a.predicted_s - b.predicted_s) == np.sign(a.measured_s - b.measured_s) for a, b in pairs
    )


def save_comparisons(comparisons: Sequence[Comparison], path: str | Path) -> None:
    """Write ``comparisons`` as JSON, which people can read and compare."""
    write_json(path, {"format": FORMAT, "comparisons": [one.as_json() for one in comparisons]})


def load_comparisons(path: str | Path) -> tuple[Comparison, ...]:
    """The comparisons in a file. Raises `FileError`, which names the field, if there are none to be read."""
    entries = read_json(path, FORMAT).get("comparisons")
    if not isinstance(entries, list):
        raise FileError(path, "comparisons", entries, "must be a list")
    return tuple(_comparison(path, f"comparisons.{place}", entry) for place, entry in enumerate(entries))


class _Kind(BaseModel):
    model_config = ConfigDict(strict=True)

    predicted_s: float
    measured_s: float


class _Body(BaseModel):
    """The types of an entry; `Comparison` knows the ranges. Keys that follow from others may be there too."""

    model_config = ConfigDict(strict=True)

    workload: str
    strategy: str
    predicted_s: float
    measured_runs_s: list[float]
    predicted_peak_bytes: int
    measured_peak_bytes: int
    gradient_max_abs_difference: float
    limit_bytes: int | None
    kinds: dict[str, _Kind]
    provenance: dict[str, str]


def _comparison(path: str | Path, where: str, entry: object) -> Comparison:
    try:
        body = _Body.model_validate(entry).model_dump()
        runs_s = tuple(body.pop("measured_runs_s"))
        kinds = {label: KindSeconds(**seconds) for label, seconds in body.pop("kinds").items()}
        return Comparison(**body, measured_runs_s=runs_s, kinds=kinds)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join([where, *map(str, first["loc"])])
        raise FileError(path, field, first["input"], first["msg"].lower()) from error
    except StepsimError as error:
        raise FileError(path, where, None, str(error)) from error
