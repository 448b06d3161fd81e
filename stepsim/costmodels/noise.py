"""Spread: how far a time may lie from what is predicted of it, as the standard deviation of its logarithm.

Two errors make it, independent of each other, so that their squares add: that of the model, for samples left out of its
fit, and the noise of repeats, which no model can tell. Where a model is held against single samples its error has the
noise in it; where samples of the same are first joined into their median, as those of transfers and collectives are,
the noise is taken from the repeats.
"""

from collections.abc import Sequence

import numpy as np
import pandas as pd

_ONE_SIGMA = 0.6827
"""Share of a normal distribution within one standard deviation."""


def spread_of(error: float | None, noise: float = 0.0) -> float:
    """Of a mean absolute relative ``error``, None where nothing could be left out, and the ``noise`` of repeats."""
    return float(np.hypot(np.log1p(error or 0.0), noise))


def repeat_noise(samples: pd.DataFrame, by: Sequence[str]) -> float:
    """Standard deviation of log ``seconds`` among samples that agree in the columns ``by``; 0 without any repeats.

    Where ``least_seconds`` and ``most_seconds`` tell the ends of a sample's repeats, they count as repeats too: with
    its median all that there were of three, as vidur's tables have, and more than the noise of more than three. Told by
    the deviations that two in three keep to, because now and then one repeat takes many times as long.
    """
    ends = [name for name in ("least_seconds", "most_seconds") if name in samples]
    rows = pd.concat([samples[[*by, name]].rename(columns={name: "seconds"}) for name in ("seconds", *ends)])
    rows = rows.dropna(subset=["seconds"])
    logs = np.log(rows["seconds"].to_numpy(float))
    groups = pd.Series(logs).groupby(rows.groupby(list(by)).ngroup().to_numpy())
    count = groups.transform("size").to_numpy()
    again = count > 1
    if not again.any():
        return 0.0
    deviation = np.abs(logs - groups.transform("mean").to_numpy())[again]
    return float(np.quantile(deviation * np.sqrt(count[again] / (count[again] - 1)), _ONE_SIGMA))
