"""Which shapes are held out: the same ones for every model, however many samples there are."""

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from stepsim.traces.kernel_tables import SHAPE

HELD_OUT_SEED = 20261202
"""Chosen before any model was fitted, and never changed since."""

PARTS = 5
"""One of so many parts is held out."""


def held_out(samples: pd.DataFrame) -> NDArray[np.bool_]:
    """Whether each sample has one of the shapes that no fit of an accuracy test may see; about a fifth of them."""
    return np.asarray(part_of(samples, HELD_OUT_SEED) == 0)


def part_of(samples: pd.DataFrame, seed: int) -> NDArray[np.int64]:
    """A part from 0 to `PARTS` - 1 for each sample. It follows from the shape alone, so that no shape is in two."""
    shape = samples[list(SHAPE)].astype(np.int64).assign(seed=seed)
    hashed = pd.util.hash_pandas_object(shape, index=False).to_numpy()
    return np.asarray(hashed % PARTS, dtype=np.int64)
