"""What every cost model is: `fit` on samples, `predict` for tasks, and each prediction says how far to trust it."""

from dataclasses import dataclass
from typing import Protocol, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray


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
