"""The roofline: work takes as long as its FLOP or its bytes need, at the rates that this machine achieves."""

from collections.abc import Mapping
from typing import Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from stepsim.costmodels.model import (
    Prediction,
    check_fitted,
    check_samples,
    check_varied_times,
    range_of,
    uniform,
    warn_outside,
)
from stepsim.costmodels.noise import spread_of
from stepsim.errors import CalibrationError
from stepsim.plan import Origin


class Roofline:
    """``seconds = max(flop / flop_per_s_, bytes / bytes_per_s_)`` (Williams et al., CACM 2009), with achieved rates.

    The last resort for work that was never timed.

    Attributes
    ----------
    flop_per_s_, bytes_per_s_
        Median rates: bytes over work without FLOP, FLOP over work that is bound by them. A rate that no work has shown
        is infinite: it bounds nothing.
    fitted_
        Smallest and largest value of each feature.
    left_out_error_
        Mean absolute relative error for a piece of work that is left out of the fit.
    """

    features = ("flop", "size_bytes")

    flop_per_s_: float
    bytes_per_s_: float
    fitted_: Mapping[str, tuple[float, float]]
    left_out_error_: float

    def fit(self, samples: pd.DataFrame) -> Self:
        """Fit to work with ``flop``, ``size_bytes`` read and written, and ``seconds``. Raises `CalibrationError`."""
        if len(samples) < 2:
            raise CalibrationError(f"a roofline needs at least 2 pieces of work, got {len(samples)}")
        check_samples("a roofline", samples, not_negative=self.features)
        check_varied_times("a roofline", samples)
        flop, size_bytes, seconds = (samples[name].to_numpy(float) for name in (*self.features, "seconds"))
        rates = _rates(flop, size_bytes, seconds)
        if np.isinf(rates).all():
            raise CalibrationError("a roofline needs work that computes or moves anything, got none")
        self.flop_per_s_, self.bytes_per_s_ = rates
        self.fitted_ = range_of(samples, self.features)
        errors = []
        for left_out in range(len(seconds)):
            rest = np.arange(len(seconds)) != left_out
            rates = _rates(flop[rest], size_bytes[rest], seconds[rest])
            guess = _seconds(flop[left_out], size_bytes[left_out], rates)
            errors.append(abs(float(guess) - seconds[left_out]) / seconds[left_out])
        self.left_out_error_ = float(np.mean(errors))
        return self

    def predict(self, tasks: pd.DataFrame) -> Prediction:
        """The bound of each piece of work; the spread is that of its error for work left out."""
        check_fitted(self, "flop_per_s_")
        flop, size_bytes = (tasks[name].to_numpy(float) for name in self.features)
        seconds = _seconds(flop, size_bytes, (self.flop_per_s_, self.bytes_per_s_))
        return uniform(
            seconds,
            Origin.ROOFLINE,
            spread=spread_of(self.left_out_error_),
            in_range=warn_outside(self, tasks, self.fitted_),
        )


def _rates(
    flop: NDArray[np.float64], size_bytes: NDArray[np.float64], seconds: NDArray[np.float64]
) -> tuple[float, float]:
    moving = (flop == 0) & (size_bytes > 0)
    bytes_per_s = float(np.median(size_bytes[moving] / seconds[moving])) if moving.any() else np.inf
    computing = (flop > 0) & (seconds > size_bytes / bytes_per_s)
    flop_per_s = float(np.median(flop[computing] / seconds[computing])) if computing.any() else np.inf
    return flop_per_s, bytes_per_s


def _seconds(
    flop: NDArray[np.float64], size_bytes: NDArray[np.float64], rates: tuple[float, float]
) -> NDArray[np.float64]:
    flop_per_s, bytes_per_s = rates
    return np.maximum(flop / flop_per_s, size_bytes / bytes_per_s)
