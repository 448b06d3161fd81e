"""What every cost model is: `fit` on samples, `predict` for tasks, and each prediction says how far to trust it."""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol, Self
from weakref import WeakSet

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from stepsim.errors import CalibrationError, NotFittedError
from stepsim.plan import Origin


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Prediction:
    """One entry for each task, each of shape (tasks,).

    ``spread`` is the standard deviation of the log of the time (`stepsim.costmodels.noise`). ``origin`` has values
    of `stepsim.plan.Origin`. ``in_range`` is false where a feature lies outside the samples that the model was fitted
    on. Where a model has nothing to say of a task, ``seconds`` is NaN.
    """

    seconds: NDArray[np.float64]
    spread: NDArray[np.float64]
    origin: NDArray[np.int8]
    in_range: NDArray[np.bool_]


class CostModel(Protocol):
    """Attributes that are learnt end in an underscore; there are none before `fit`.

    ``features`` are the columns of ``samples`` and ``tasks`` that the model reads; samples have ``seconds`` besides.
    """

    @property
    def features(self) -> tuple[str, ...]: ...

    def fit(self, samples: pd.DataFrame) -> Self:
        """Raises `CalibrationError` for too few samples, one size only, constant times, or seconds that are not > 0."""

    def predict(self, tasks: pd.DataFrame) -> Prediction:
        """Raises `NotFittedError` before `fit`. Warns once, with the range, for tasks outside the fitted range.

        `EfficientRoofline`, and what is made of it, has no such range.
        """


def check_samples(
    model: str, samples: pd.DataFrame, positive: tuple[str, ...] = ("seconds",), not_negative: tuple[str, ...] = ()
) -> None:
    """Raises `CalibrationError` for no samples, and for the first value of those columns that is no such number."""
    if len(samples) == 0:
        raise CalibrationError(f"{model} needs samples, got none")
    for columns, bound in ((positive, "> 0"), (not_negative, ">= 0")):
        for column in columns:
            values = samples[column].to_numpy(dtype=float)
            kept = np.isfinite(values) & (values > 0 if bound == "> 0" else values >= 0)
            for place in np.flatnonzero(~kept):
                raise CalibrationError(f"{model}, sample {place}: {column} must be {bound}, got {values[place]}")


def check_varied(model: str, samples: pd.DataFrame, feature: str) -> None:
    """Raises `CalibrationError` for samples that tell nothing of ``feature``: one value only, or constant times."""
    num_values = samples[feature].nunique()
    if num_values < 2:
        raise CalibrationError(f"{model}: {feature} must have at least 2 different values, got {num_values}")
    check_varied_times(model, samples)


def check_varied_times(model: str, samples: pd.DataFrame) -> None:
    """Raises `CalibrationError` for samples that all took the same: no clock gives such times of different work."""
    if samples["seconds"].nunique() == 1:
        seconds = samples["seconds"].iloc[0]
        raise CalibrationError(f"{model}: constant times: all {len(samples)} samples took {seconds:g} s")


def range_of(samples: pd.DataFrame, features: tuple[str, ...]) -> dict[str, tuple[float, float]]:
    """Smallest and largest value of each of ``features``."""
    return {name: (float(samples[name].min()), float(samples[name].max())) for name in features}


_WARNED: WeakSet[object] = WeakSet()


def warn_outside(model: object, tasks: pd.DataFrame, fitted: Mapping[str, tuple[float, float]]) -> NDArray[np.bool_]:
    """Whether each task lies within the ``fitted`` ranges of its features. Shape (tasks,).

    The first task outside makes one warning with feature, value and range, and no other follows for this ``model``.
    """
    in_range = np.full(len(tasks), True)
    for feature, (low, high) in fitted.items():
        values = tasks[feature].to_numpy(float)
        inside = (values >= low) & (values <= high)
        in_range &= inside
        if not inside.all() and model not in _WARNED:
            _WARNED.add(model)
            text = f"{feature} {values[~inside][0]:g} lies outside the fitted range {low:g} to {high:g}"
            warnings.warn(f"{type(model).__name__}: {text}: its time is extrapolated", stacklevel=3)
    return in_range


def check_fitted(model: object, learnt: str) -> None:
    """Raises `NotFittedError` where ``model`` has no attribute ``learnt`` yet."""
    if not hasattr(model, learnt):
        raise NotFittedError(f"{type(model).__name__} is not fitted yet: call fit() with samples first")


def uniform(
    seconds: NDArray[np.float64], origin: Origin, *, spread: float = 0.0, in_range: NDArray[np.bool_] | None = None
) -> Prediction:
    """A prediction whose tasks all have one origin and spread; all are in range unless ``in_range`` says otherwise."""
    return Prediction(
        seconds=seconds,
        spread=np.full(len(seconds), spread),
        origin=np.full(len(seconds), origin, np.int8),
        in_range=np.full(len(seconds), True) if in_range is None else in_range,
    )
