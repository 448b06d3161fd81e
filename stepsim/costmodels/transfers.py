"""Transfers: seconds by size, interpolated between measured sizes."""

from typing import Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from stepsim.costmodels.measured import check_seconds
from stepsim.errors import CalibrationError, NotFittedError


class InterpolatedTransferModel:
    """Time of a copy by its size, on a straight line in log time over log size between measured sizes.

    The bandwidth of a copy depends on its size (latency, caches), so no one line fits. Below the smallest size time is
    constant (latency); above the largest the last measured bandwidth holds. Never decreasing in size.

    Attributes
    ----------
    size_bytes_, seconds_
        Measured sizes in rising order, and the median time of each, made monotone.
    size_error_
        Mean absolute relative error for a size that is left out and interpolated from its neighbours.
    """

    size_bytes_: NDArray[np.float64]
    seconds_: NDArray[np.float64]
    size_error_: float

    def fit(self, transfers: pd.DataFrame) -> Self:
        """Fit to transfers with columns ``size_bytes`` and ``duration_s``. Raises `CalibrationError`."""
        if transfers["size_bytes"].nunique() < 2:
            raise CalibrationError(f"transfers need at least 2 sizes, got {transfers['size_bytes'].nunique()}")
        check_seconds(transfers)
        middle = transfers.groupby("size_bytes")["duration_s"].median().sort_index()
        self.size_bytes_ = middle.index.to_numpy(dtype=float)
        self.seconds_ = np.maximum.accumulate(middle.to_numpy(dtype=float))
        self.size_error_ = self._left_out_error(middle.to_numpy(dtype=float))
        return self

    def _left_out_error(self, measured_s: NDArray[np.float64]) -> float:
        inner = range(1, len(measured_s) - 1)
        sizes = np.log(self.size_bytes_)
        times = np.log(measured_s)
        guesses = [np.interp(sizes[i], sizes[[i - 1, i + 1]], times[[i - 1, i + 1]]) for i in inner]
        return float(np.mean([abs(np.expm1(guess - times[i])) for guess, i in zip(guesses, inner, strict=True)] or [0]))

    def predict(self, size_bytes: NDArray[np.int64]) -> NDArray[np.float64]:
        """Seconds for each size."""
        if not hasattr(self, "seconds_"):
            raise NotFittedError("InterpolatedTransferModel is not fitted yet: call fit() with transfers first")
        size = np.maximum(size_bytes.astype(np.float64), self.size_bytes_[0])
        inside = np.exp(np.interp(np.log(size), np.log(self.size_bytes_), np.log(self.seconds_)))
        above = self.seconds_[-1] * size / self.size_bytes_[-1]
        return np.asarray(np.where(size > self.size_bytes_[-1], above, inside), dtype=np.float64)
