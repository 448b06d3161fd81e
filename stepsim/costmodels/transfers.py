"""Transfers: seconds by size, interpolated between measured sizes."""

from typing import Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from stepsim.costmodels.model import Prediction, check_fitted, check_samples, uniform
from stepsim.errors import CalibrationError
from stepsim.plan import Origin


class InterpolatedTransferModel:
    """Time of a copy by its size, on a straight line in log time over log size between measured sizes.

    The bandwidth of a copy depends on its size (latency, caches), so no one line fits. Below the smallest size time is
    constant (latency); above the largest the last measured bandwidth holds. Never decreasing in size.

    Attributes
    ----------
    size_bytes_, seconds_
        Measured sizes in rising order, and the median time of each; where a larger size was faster, the geometric mean
        of both and of what lies between (isotonic regression of log time).
    size_error_
        Mean absolute relative error for a size that is left out and interpolated from its neighbours. ``None`` where
        no size has two of them.
    """

    features = ("size_bytes",)

    size_bytes_: NDArray[np.float64]
    seconds_: NDArray[np.float64]
    size_error_: float | None

    def fit(self, samples: pd.DataFrame) -> Self:
        """Fit to transfers with columns ``size_bytes`` and ``seconds``. Raises `CalibrationError`."""
        if samples["size_bytes"].nunique() < 2:
            raise CalibrationError(f"transfers need at least 2 sizes, got {samples['size_bytes'].nunique()}")
        check_samples("transfers", samples, positive=("size_bytes", "seconds"))
        middle = samples.groupby("size_bytes")["seconds"].median().sort_index()
        self.size_bytes_ = middle.index.to_numpy(dtype=float)
        times = np.log(middle.to_numpy(dtype=float))
        self.seconds_ = np.exp(_monotone(times))
        self.size_error_ = _left_out_error(np.log(self.size_bytes_), times)
        return self

    def predict(self, tasks: pd.DataFrame) -> Prediction:
        """Seconds for each ``size_bytes``."""
        check_fitted(self, "seconds_")
        asked = tasks["size_bytes"].to_numpy(float)
        size = np.maximum(asked, self.size_bytes_[0])
        inside = np.exp(np.interp(np.log(size), np.log(self.size_bytes_), np.log(self.seconds_)))
        above = self.seconds_[-1] * size / self.size_bytes_[-1]
        return uniform(
            np.where(size > self.size_bytes_[-1], above, inside),
            Origin.INTERPOLATED,
            spread=float(np.log1p(self.size_error_ or 0.0)),
            in_range=(asked >= self.size_bytes_[0]) & (asked <= self.size_bytes_[-1]),
        )


def _monotone(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """The closest sequence that never falls: neighbours out of order share their mean.

    Pool adjacent violators: Ayer et al., "An empirical distribution function for sampling with incomplete
    information", Annals of Mathematical Statistics 26 (1955).
    """
    pools: list[list[float]] = []
    for value in values:
        pools.append([float(value)])
        while len(pools) > 1 and np.mean(pools[-2]) > np.mean(pools[-1]):
            last = pools.pop()
            pools[-1] += last
    return np.concatenate([np.full(len(pool), np.mean(pool)) for pool in pools])


def _left_out_error(sizes: NDArray[np.float64], times: NDArray[np.float64]) -> float | None:
    """Both in logarithms."""
    inner = range(1, len(times) - 1)
    errors = [
        abs(np.expm1(np.interp(sizes[i], sizes[[i - 1, i + 1]], times[[i - 1, i + 1]]) - times[i])) for i in inner
    ]
    return float(np.mean(errors)) if errors else None
