"""Transfers: seconds by size, interpolated between measured sizes."""

from collections.abc import Callable, Mapping
from typing import Any, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from stepsim.costmodels.model import Prediction, check_fitted, check_samples, check_varied, uniform, warn_outside
from stepsim.costmodels.noise import repeat_noise, spread_of
from stepsim.plan import Origin

_FOLDS = 4
"""For the error, every fourth size is left out, four times over."""

Array = NDArray[np.float64]


class InterpolatedTransferModel:
    """Time of a copy by its size, on a straight line between measured sizes.

    The bandwidth of a copy depends on its size (latency, caches), so no one line fits; between neighbours latency plus
    bytes over bandwidth is one. Below the smallest size time is constant (latency); above the largest the last measured
    bandwidth holds. Never decreasing in size.

    Attributes
    ----------
    size_bytes_, seconds_
        Measured sizes in rising order, and the median time of each; where a larger size was faster, the geometric mean
        of both and of what lies between (isotonic regression of log time).
    size_error_
        Mean absolute relative error for a size that is left out and interpolated from its neighbours. ``None`` where
        no size has two of them.
    noise_
        Of the repeats of each size (`repeat_noise`).
    """

    features = ("size_bytes",)

    size_bytes_: NDArray[np.float64]
    seconds_: NDArray[np.float64]
    size_error_: float | None
    noise_: float

    def fit(self, samples: pd.DataFrame) -> Self:
        """Fit to transfers with columns ``size_bytes`` and ``seconds``. Raises `CalibrationError`."""
        check_samples("transfers", samples, positive=("size_bytes", "seconds"))
        check_varied("transfers", samples, "size_bytes")
        middle = samples.groupby("size_bytes")["seconds"].median().sort_index()
        self.size_bytes_ = middle.index.to_numpy(dtype=float)
        times = middle.to_numpy(dtype=float)
        self.seconds_ = np.exp(monotone(np.log(times)))
        self.size_error_ = _error_between(self.size_bytes_, times)
        self.noise_ = repeat_noise(samples, ["size_bytes"])
        return self

    def predict(self, tasks: pd.DataFrame) -> Prediction:
        """Seconds for each ``size_bytes``."""
        check_fitted(self, "seconds_")
        return uniform(
            self.seconds_of(tasks["size_bytes"].to_numpy(float)),
            Origin.INTERPOLATED,
            spread=spread_of(self.size_error_, self.noise_),
            in_range=warn_outside(self, tasks, {"size_bytes": self.range_bytes}),
        )

    @property
    def range_bytes(self) -> tuple[float, float]:
        """Smallest and largest measured size."""
        return float(self.size_bytes_[0]), float(self.size_bytes_[-1])

    def seconds_of(self, size_bytes: NDArray[np.float64]) -> NDArray[np.float64]:
        """Seconds for each of ``size_bytes``, without a word on the range."""
        size = np.maximum(size_bytes, self.size_bytes_[0])
        inside = np.interp(size, self.size_bytes_, self.seconds_)
        above = self.seconds_[-1] * size / self.size_bytes_[-1]
        return np.asarray(np.where(size > self.size_bytes_[-1], above, inside))

    def as_json(self) -> dict[str, Any]:
        check_fitted(self, "seconds_")
        return {
            "size_bytes": self.size_bytes_.tolist(),
            "seconds": self.seconds_.tolist(),
            "size_error": self.size_error_,
            "noise": self.noise_,
        }

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Self:
        model = cls()
        model.size_bytes_ = np.array(body["size_bytes"], dtype=np.float64)
        model.seconds_ = np.array(body["seconds"], dtype=np.float64)
        model.size_error_, model.noise_ = body["size_error"], body["noise"]
        return model


def monotone(values: NDArray[np.float64]) -> NDArray[np.float64]:
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


def left_out_error(size: Array, seconds: Array, guess: Callable[[Array, Array, Array], Array]) -> float | None:
    """Mean absolute relative error of sizes left out, every fourth of those between the smallest and the largest.

    ``guess`` is given the sizes that are left, their seconds, and the sizes that are asked for. ``None`` for fewer than
    8 sizes.
    """
    if len(size) < 2 * _FOLDS:
        return None
    errors = np.full(len(size), np.nan)
    place = np.arange(len(size))
    for fold in range(_FOLDS):
        out = (place % _FOLDS == fold) & (place > 0) & (place < len(size) - 1)
        errors[out] = np.abs(guess(size[~out], seconds[~out], size[out]) / seconds[out] - 1)
    return float(np.nanmean(errors))


def _error_between(sizes: NDArray[np.float64], times: NDArray[np.float64]) -> float | None:
    inner = range(1, len(times) - 1)
    errors = [abs(np.interp(sizes[i], sizes[[i - 1, i + 1]], times[[i - 1, i + 1]]) / times[i] - 1) for i in inner]
    return float(np.mean(errors)) if errors else None
