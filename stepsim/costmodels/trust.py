"""The order of trust: of several models, the first that knows a task prices it."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from stepsim.costmodels.model import CostModel, Prediction


def first_that_knows(models: Sequence[CostModel], tasks: pd.DataFrame) -> Prediction:
    """Each of ``tasks`` by the first of ``models``, most trusted first, that has something to say of it.

    Seconds are NaN where none has. A model is asked only about tasks that no other has priced.
    """
    size = len(tasks)
    found = Prediction(
        seconds=np.full(size, np.nan),
        spread=np.zeros(size),
        origin=np.zeros(size, np.int8),
        in_range=np.zeros(size, np.bool_),
    )
    for model in models:
        open_ = np.flatnonzero(np.isnan(found.seconds))
        if not len(open_):
            break
        said = model.predict(tasks.iloc[open_])
        for name in ("seconds", "spread", "origin", "in_range"):
            getattr(found, name)[open_] = getattr(said, name)
    return found
