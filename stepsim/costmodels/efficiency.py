"""The roofline of a data sheet, at the shares of its two peaks that kernels were seen to reach."""

from collections.abc import Mapping
from typing import Any, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from stepsim.costmodels.model import Prediction, check_fitted, check_samples, check_varied_times, uniform
from stepsim.costmodels.noise import spread_of
from stepsim.errors import CalibrationError
from stepsim.plan import Origin

LEFT_OUT = 5
"""Every so many samples one is left out, for the error."""


class EfficientRoofline:
    """``seconds = max(flop / (e_c peak), bytes / (e_m bandwidth))``: what serves work that no other model knows.

    Unlike `Roofline` it carries over to other GPUs and dtypes: the peaks come with the task. So it has no fitted range,
    and warns of no task: what it says of one outside its samples is a bound all the same, and its origin says so.

    Attributes
    ----------
    compute_efficiency_, memory_efficiency_
        Median share of the peak over the work that the data sheet says is bound by it; 1 where there was none.
    left_out_error_
        Mean absolute relative error for samples left out of the fit, one in five.
    """

    features = ("flop", "size_bytes", "peak_flop_per_s", "memory_bandwidth_bytes_per_s")

    compute_efficiency_: float
    memory_efficiency_: float
    left_out_error_: float

    def fit(self, samples: pd.DataFrame) -> Self:
        """Fit to work with the features and ``seconds``. Raises `CalibrationError`."""
        if len(samples) < LEFT_OUT:
            raise CalibrationError(f"an efficient roofline needs at least {LEFT_OUT} samples, got {len(samples)}")
        peaks = ("peak_flop_per_s", "memory_bandwidth_bytes_per_s")
        check_samples(
            "an efficient roofline", samples, positive=(*peaks, "seconds"), not_negative=("flop", "size_bytes")
        )
        check_varied_times("an efficient roofline", samples)
        computing_s, moving_s = _least_seconds(samples)
        if not (np.maximum(computing_s, moving_s) > 0).any():
            raise CalibrationError("an efficient roofline needs work that computes or moves anything, got none")
        seconds = samples["seconds"].to_numpy(float)
        out = np.arange(len(seconds)) % LEFT_OUT == LEFT_OUT - 1
        guess = _efficiencies(computing_s[~out], moving_s[~out], seconds[~out])
        predicted = np.maximum(computing_s[out] / guess[0], moving_s[out] / guess[1])
        self.left_out_error_ = float(np.mean(np.abs(predicted / seconds[out] - 1)))
        self.compute_efficiency_, self.memory_efficiency_ = _efficiencies(computing_s, moving_s, seconds)
        return self

    def predict(self, tasks: pd.DataFrame) -> Prediction:
        """Seconds of each task, always in range; the spread is that of the error for samples left out."""
        check_fitted(self, "compute_efficiency_")
        computing_s, moving_s = _least_seconds(tasks)
        seconds = np.maximum(computing_s / self.compute_efficiency_, moving_s / self.memory_efficiency_)
        return uniform(seconds, Origin.ROOFLINE, spread=spread_of(self.left_out_error_))

    def as_json(self) -> dict[str, Any]:
        check_fitted(self, "compute_efficiency_")
        return {
            "compute_efficiency": self.compute_efficiency_,
            "memory_efficiency": self.memory_efficiency_,
            "left_out_error": self.left_out_error_,
        }

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Self:
        model = cls()
        model.compute_efficiency_ = body["compute_efficiency"]
        model.memory_efficiency_ = body["memory_efficiency"]
        model.left_out_error_ = body["left_out_error"]
        return model


def _least_seconds(rows: pd.DataFrame) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """At the peaks: of computing and of moving."""
    flop, size_bytes, peak, bandwidth = (rows[name].to_numpy(float) for name in EfficientRoofline.features)
    return flop / peak, size_bytes / bandwidth


def _efficiencies(
    computing_s: NDArray[np.float64], moving_s: NDArray[np.float64], seconds: NDArray[np.float64]
) -> tuple[float, float]:
    computes = computing_s > moving_s
    parts = [(computing_s / seconds)[computes], (moving_s / seconds)[~computes & (moving_s > 0)]]
    compute, memory = (float(np.median(part)) if len(part) else 1.0 for part in parts)
    return compute, memory
