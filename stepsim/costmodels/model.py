"""What every cost model is: `fit` on samples, `predict` for tasks, and each prediction says how far to trust it."""

from dataclasses import dataclass
from typing import Protocol, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from stepsim.errors import CalibrationError, NotFittedError
from stepsim.plan import Origin


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Prediction:
    """One entry for each task, each of shape (tasks,).

    ``spread`` is the standard deviation of the logarithm of the time. ``origin`` has values of
    `stepsim.plan.Origin`. ``in_range`` is false where a feature lies outside the samples that the model was fitted on.
    Where a model has nothing to say of a task, ``seconds`` is NaN.
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
        """Raises `CalibrationError` for too few samples, one size only, or seconds that are no positive numbers."""

    def predict(self, tasks: pd.DataFrame) -> Prediction:
        """Raises `NotFittedError` before `fit`. Warns once, with the range, for tasks outside the fitted range."""


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
