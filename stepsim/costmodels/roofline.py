"""The roofline: work takes as long as its FLOP or its bytes need, at the rates that this machine achieves."""

from typing import Self

import numpy as np
from numpy.typing import NDArray

from stepsim.errors import CalibrationError, NotFittedError


class Roofline:
    """``seconds = max(flop / flop_per_s_, bytes / bytes_per_s_)`` (Williams et al., CACM 2009), with achieved rates.

    The last resort for work that was never timed.

    Attributes
    ----------
    flop_per_s_, bytes_per_s_
        Median rates: bytes over work without FLOP, FLOP over work that is bound by them. A rate that no work has shown
        is infinite: it bounds nothing.
    left_out_error_
        Mean absolute relative error for a piece of work that is left out of the fit.
    """

    flop_per_s_: float
    bytes_per_s_: float
    left_out_error_: float

    def fit(self, flop: NDArray[np.float64], size_bytes: NDArray[np.float64], seconds: NDArray[np.float64]) -> Self:
        """Fit to work with its FLOP, bytes read and written, and measured seconds. Raises `CalibrationError`."""
        if len(seconds) < 2:
            raise CalibrationError(f"a roofline needs at least 2 pieces of work, got {len(seconds)}")
        _check("flop", flop, flop >= 0, ">= 0")
        _check("size_bytes", size_bytes, size_bytes >= 0, ">= 0")
        _check("seconds", seconds, seconds > 0, "> 0")
        rates = _rates(flop, size_bytes, seconds)
        if np.isinf(rates).all():
            raise CalibrationError("a roofline needs work that computes or moves anything, got none")
        self.flop_per_s_, self.bytes_per_s_ = rates
        errors = []
        for left_out in range(len(seconds)):
            rest = np.arange(len(seconds)) != left_out
            rates = _rates(flop[rest], size_bytes[rest], seconds[rest])
            guess = _seconds(flop[left_out], size_bytes[left_out], rates)
            errors.append(abs(float(guess) - seconds[left_out]) / seconds[left_out])
        self.left_out_error_ = float(np.mean(errors))
        return self

    def predict(self, flop: NDArray[np.float64], size_bytes: NDArray[np.float64]) -> NDArray[np.float64]:
        """Seconds for each piece of work."""
        if not hasattr(self, "flop_per_s_"):
            raise NotFittedError("Roofline is not fitted yet: call fit() first")
        return _seconds(flop, size_bytes, (self.flop_per_s_, self.bytes_per_s_))


def _check(name: str, values: NDArray[np.float64], in_bound: NDArray[np.bool_], bound: str) -> None:
    for place in np.flatnonzero(~(np.isfinite(values) & in_bound)):
        raise CalibrationError(f"work {place}: {name} must be {bound}, got {values[place]}")


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
