"""The order of trust: of several models, the first that knows a task prices it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from stepsim.costmodels.model import Prediction
from stepsim.plan import Origin


class Fitted(Protocol):
    """A cost model after its fit."""

    def predict(self, tasks: pd.DataFrame) -> Prediction: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ForDtypes:
    """What ``model`` says of tasks in one of ``dtypes``; NaN seconds for others."""

    model: Fitted
    dtypes: tuple[str, ...]

    def predict(self, tasks: pd.DataFrame) -> Prediction:
        here = np.flatnonzero(tasks["dtype"].isin(self.dtypes))
        said, found = self.model.predict(tasks.iloc[here]), unknown(len(tasks))
        _put(found, here, said)
        return found


def unknown(size: int) -> Prediction:
    """Nothing to say of any of ``size`` tasks."""
    return Prediction(
        seconds=np.full(size, np.nan),
        spread=np.zeros(size),
        origin=np.full(size, Origin.ROOFLINE, np.int8),
        in_range=np.zeros(size, np.bool_),
    )


def first_that_knows(models: Sequence[Fitted], tasks: pd.DataFrame) -> Prediction:
    """Each of ``tasks`` by the first of ``models``, most trusted first, that has something to say of it.

    Seconds are NaN where none has. A model is asked only about tasks that no other has priced.
    """
    found = unknown(len(tasks))
    for model in models:
        open_ = np.flatnonzero(np.isnan(found.seconds))
        if not len(open_):
            break
        _put(found, open_, model.predict(tasks.iloc[open_]))
    return found


def _put(found: Prediction, places: NDArray[np.int64], said: Prediction) -> None:
    for name in ("seconds", "spread", "origin", "in_range"):
        getattr(found, name)[places] = getattr(said, name)
