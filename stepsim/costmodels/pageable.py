"""Copies of pageable memory: fast as far as the first bytes go, and slower for the rest."""

from collections.abc import Mapping
from typing import Any, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from stepsim.costmodels.model import Prediction, check_fitted, check_samples, check_varied, uniform, warn_outside
from stepsim.costmodels.noise import repeat_noise, spread_of
from stepsim.costmodels.regimes import least_squares
from stepsim.costmodels.transfers import left_out_error
from stepsim.plan import Origin

Array = NDArray[np.float64]


class StagedCopy:
    """``latency_s_ + s_per_byte_ x first bytes + rest_s_per_byte_ x the rest``; the first are up to ``first_bytes_``.

    The driver copies pageable memory piece by piece through a pinned buffer of its own (CUDA C++ best practices guide,
    pinned memory), and the host's processor moves the pieces. Never decreasing in size, because no weight is negative.

    Attributes
    ----------
    latency_s_, s_per_byte_, rest_s_per_byte_
        Both rates are the same where there are too few sizes to tell them apart.
    first_bytes_
        One of the measured sizes.
    fitted_
        Smallest and largest size.
    fit_error_, size_error_, noise_
        As those of `stepsim.costmodels.copies.Lines`.
    """

    features = ("size_bytes",)

    latency_s_: float
    s_per_byte_: float
    rest_s_per_byte_: float
    first_bytes_: float
    fitted_: tuple[float, float]
    fit_error_: float
    size_error_: float | None
    noise_: float

    def fit(self, samples: pd.DataFrame) -> Self:
        """Fit to the median of each size; columns ``size_bytes`` and ``seconds``. Raises `CalibrationError`."""
        check_samples("transfers", samples, positive=("size_bytes", "seconds"))
        check_varied("transfers", samples, "size_bytes")
        middle = samples.groupby("size_bytes")["seconds"].median().sort_index()
        size, seconds = middle.index.to_numpy(dtype=float), middle.to_numpy(dtype=float)
        self.first_bytes_, weights = _fit(size, seconds)
        self.latency_s_, self.s_per_byte_, self.rest_s_per_byte_ = weights.tolist()
        self.fitted_ = (float(size[0]), float(size[-1]))
        self.fit_error_ = float(np.mean(np.abs(self.seconds_of(size) / seconds - 1)))
        self.size_error_ = left_out_error(size, seconds, _guess)
        self.noise_ = repeat_noise(samples, ["size_bytes"])
        return self

    @property
    def spread(self) -> float:
        return spread_of(self.fit_error_ if self.size_error_ is None else self.size_error_, self.noise_)

    @property
    def range_bytes(self) -> tuple[float, float]:
        return self.fitted_

    def seconds_of(self, size_bytes: Array) -> Array:
        """Seconds for each of ``size_bytes``, without a word on the range; above it the last bytes keep their rate."""
        weights = np.array([self.latency_s_, self.s_per_byte_, self.rest_s_per_byte_])
        return np.asarray(_design(size_bytes, self.first_bytes_) @ weights)

    def predict(self, tasks: pd.DataFrame) -> Prediction:
        """Seconds for each ``size_bytes``."""
        check_fitted(self, "fitted_")
        return uniform(
            self.seconds_of(tasks["size_bytes"].to_numpy(float)),
            Origin.INTERPOLATED,
            spread=self.spread,
            in_range=warn_outside(self, tasks, {"size_bytes": self.fitted_}),
        )

    def as_json(self) -> dict[str, Any]:
        check_fitted(self, "fitted_")
        return {
            "latency_s": self.latency_s_,
            "s_per_byte": self.s_per_byte_,
            "rest_s_per_byte": self.rest_s_per_byte_,
            "first_bytes": self.first_bytes_,
            "size_bytes": list(self.fitted_),
            "fit_error": self.fit_error_,
            "size_error": self.size_error_,
            "noise": self.noise_,
        }

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Self:
        model = cls()
        model.latency_s_, model.first_bytes_ = body["latency_s"], body["first_bytes"]
        model.s_per_byte_, model.rest_s_per_byte_ = body["s_per_byte"], body["rest_s_per_byte"]
        model.fitted_ = (body["size_bytes"][0], body["size_bytes"][1])
        model.fit_error_, model.size_error_, model.noise_ = body["fit_error"], body["size_error"], body["noise"]
        return model


def _fit(size: Array, seconds: Array) -> tuple[float, Array]:
    """The first bytes, and the weights of `_design`, that fit with least relative error."""
    best, least = (float(size[-1]), _one_rate(size, seconds)), np.inf
    for first in size[1:-2].tolist():
        weights = least_squares(_design(size, first) / seconds[:, None])
        error = float(np.mean((_design(size, first) @ weights / seconds - 1) ** 2))
        if error < least and weights[2] >= weights[1]:
            best, least = (first, weights), error
    return best


def _one_rate(size: Array, seconds: Array) -> Array:
    latency_s, s_per_byte = least_squares(np.column_stack([np.ones(len(size)), size]) / seconds[:, None]).tolist()
    return np.array([latency_s, s_per_byte, s_per_byte])


def _guess(size: Array, seconds: Array, asked: Array) -> Array:
    first, weights = _fit(size, seconds)
    return np.asarray(_design(asked, first) @ weights)


def _design(size: Array, first_bytes: float) -> Array:
    return np.column_stack([np.ones(len(size)), np.minimum(size, first_bytes), np.maximum(size - first_bytes, 0.0)])
