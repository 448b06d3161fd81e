"""Copies between host and device: latency and bandwidth by size, both ways at once, several GPUs at one uplink."""

from collections.abc import Mapping
from typing import Any, Protocol, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from stepsim.costmodels.model import Prediction, check_fitted, check_samples, check_varied, uniform, warn_outside
from stepsim.costmodels.noise import repeat_noise, spread_of
from stepsim.costmodels.pageable import StagedCopy
from stepsim.costmodels.regimes import fastest, fit_regimes
from stepsim.costmodels.transfers import InterpolatedTransferModel, left_out_error
from stepsim.errors import CalibrationError
from stepsim.plan import Origin

NUM_LINES = 3


class Curve(Protocol):
    """Seconds by size: `InterpolatedTransferModel`, or `Lines`, which is a few numbers."""

    size_error_: float | None
    noise_: float

    @property
    def range_bytes(self) -> tuple[float, float]: ...

    def fit(self, samples: pd.DataFrame) -> Self: ...

    def seconds_of(self, size_bytes: NDArray[np.float64]) -> NDArray[np.float64]: ...

    def as_json(self) -> dict[str, Any]: ...


class Lines:
    """Seconds by size as the fastest of up to three lines, each a latency and bytes over a bandwidth.

    A larger latency comes with a larger bandwidth: staging buffers, protocols of NCCL, more channels. Never decreasing
    in size nor in the reciprocals of the bandwidths, because no weight is negative. Above the largest size its
    bandwidth holds.

    Attributes
    ----------
    lines_
        Latency in seconds and seconds per byte of each line, shape (lines, 2).
    fitted_
        Smallest and largest size.
    fit_error_, size_error_
        Mean absolute relative error on the sizes themselves, and on sizes left out, every fourth of those between the
        smallest and the largest; the latter is ``None`` for fewer than 8 sizes.
    noise_
        Of the repeats of each size (`repeat_noise`).
    """

    features = ("size_bytes",)

    lines_: NDArray[np.float64]
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
        self.lines_ = _fit_lines(size, seconds)
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

    def seconds_of(self, size_bytes: NDArray[np.float64]) -> NDArray[np.float64]:
        """Seconds for each of ``size_bytes``, without a word on the range."""
        inside = np.minimum(size_bytes, self.fitted_[1])
        return fastest(_design(inside), self.lines_) * np.maximum(size_bytes / self.fitted_[1], 1.0)

    def predict(self, tasks: pd.DataFrame) -> Prediction:
        """Seconds for each ``size_bytes``."""
        check_fitted(self, "lines_")
        return uniform(
            self.seconds_of(tasks["size_bytes"].to_numpy(float)),
            Origin.INTERPOLATED,
            spread=self.spread,
            in_range=warn_outside(self, tasks, {"size_bytes": self.fitted_}),
        )

    def as_json(self) -> dict[str, Any]:
        check_fitted(self, "lines_")
        return {
            "lines": [{"latency_s": a, "s_per_byte": b} for a, b in self.lines_.tolist()],
            "size_bytes": list(self.fitted_),
            "fit_error": self.fit_error_,
            "size_error": self.size_error_,
            "noise": self.noise_,
        }

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Self:
        model = cls()
        model.lines_ = np.array([[line["latency_s"], line["s_per_byte"]] for line in body["lines"]])
        model.fitted_ = (body["size_bytes"][0], body["size_bytes"][1])
        model.fit_error_, model.size_error_, model.noise_ = body["fit_error"], body["size_error"], body["noise"]
        return model


def curve_from_json(body: Mapping[str, Any]) -> Curve:
    return Lines.from_json(body) if "lines" in body else InterpolatedTransferModel.from_json(body)


class CopyModel:
    """Copies of one GPU by way, such as ``pinned to device``, and what others at the same time cost them.

    With a copy the other way at the same time, a copy takes ``both_ways_factor_`` times as long. Of GPUs that copy at
    once behind one uplink, all finish no sooner than the uplink moves their bytes.

    Attributes
    ----------
    curves_
        Seconds by size of each way, alone: of pageable memory `StagedCopy`, else `Lines`.
    both_ways_factor_, uplink_bytes_per_s_
        Medians over the samples that tell; 1 and infinite (nothing known) where none does.
    """

    features = ("source", "destination", "size_bytes", "opposite", "at_once")

    curves_: Mapping[str, Lines | StagedCopy]
    both_ways_factor_: float
    uplink_bytes_per_s_: float

    def fit(self, samples: pd.DataFrame) -> Self:
        """Fit to copies with the features and ``seconds``. Raises `CalibrationError`, naming the way.

        ``opposite`` says whether a copy the other way ran too; ``at_once`` counts the GPUs that copied the same way.
        """
        check_samples("copies", samples, positive=("size_bytes", "at_once", "seconds"))
        opposite, several = samples["opposite"].astype(bool), samples["at_once"] > 1
        alone = samples[~opposite & ~several]
        if alone.empty:
            raise CalibrationError("copies: there must be some that ran alone, got none")
        self.curves_ = {way: _fit_way(way, rows) for way, rows in alone.groupby(_ways(alone), sort=True)}
        both = samples[opposite & ~several]
        ratio = both["seconds"] / self._alone_s(both)
        self.both_ways_factor_ = max(1.0, float(ratio.median())) if len(both) else 1.0
        shared = samples[several & ~opposite]
        rate = shared["at_once"] * shared["size_bytes"] / shared["seconds"]
        self.uplink_bytes_per_s_ = float(rate.median()) if len(shared) else np.inf
        return self

    def predict(self, tasks: pd.DataFrame) -> Prediction:
        """NaN seconds for a way that was not fitted."""
        check_fitted(self, "curves_")
        alone_s = self._alone_s(tasks)
        both_s = alone_s * np.where(tasks["opposite"].astype(bool), self.both_ways_factor_, 1.0)
        shared = np.where(tasks["at_once"] > 1, tasks["at_once"] * tasks["size_bytes"], 0) / self.uplink_bytes_per_s_
        in_range, spread = np.zeros(len(tasks), np.bool_), np.zeros(len(tasks))
        for way, curve in self.curves_.items():
            here = (_ways(tasks) == way).to_numpy()
            in_range[here] = warn_outside(self, tasks[here], {"size_bytes": curve.fitted_})
            spread[here] = curve.spread
        return Prediction(
            seconds=np.maximum(both_s, shared),
            spread=spread,
            origin=np.full(len(tasks), Origin.INTERPOLATED, np.int8),
            in_range=in_range,
        )

    def _alone_s(self, tasks: pd.DataFrame) -> NDArray[np.float64]:
        seconds = np.full(len(tasks), np.nan)
        for way, curve in self.curves_.items():
            here = (_ways(tasks) == way).to_numpy()
            seconds[here] = curve.seconds_of(tasks["size_bytes"][here].to_numpy(float))
        return seconds

    def as_json(self) -> dict[str, Any]:
        """An uplink of null is unknown."""
        check_fitted(self, "curves_")
        uplink = self.uplink_bytes_per_s_
        return {
            "curves": {way: curve.as_json() for way, curve in self.curves_.items()},
            "both_ways_factor": self.both_ways_factor_,
            "uplink_bytes_per_s": uplink if np.isfinite(uplink) else None,
        }

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Self:
        model = cls()
        model.curves_ = {way: _new(way).from_json(entry) for way, entry in body["curves"].items()}
        model.both_ways_factor_ = body["both_ways_factor"]
        uplink = body["uplink_bytes_per_s"]
        model.uplink_bytes_per_s_ = np.inf if uplink is None else uplink
        return model


def _ways(copies: pd.DataFrame) -> pd.Series:
    return copies["source"] + " to " + copies["destination"]


def _new(way: str) -> type[Lines] | type[StagedCopy]:
    return StagedCopy if "pageable" in way else Lines


def _fit_way(way: str, rows: pd.DataFrame) -> Lines | StagedCopy:
    try:
        return _new(way)().fit(rows)
    except CalibrationError as error:
        raise CalibrationError(f"{way}: {error}") from error


def _fit_lines(size: NDArray[np.float64], seconds: NDArray[np.float64]) -> NDArray[np.float64]:
    """As many lines as there are two sizes for each, up to `NUM_LINES`."""
    num_lines = max(1, min(NUM_LINES, len(size) // 2))
    return fit_regimes(_design(size), seconds, size, num_lines)


def _guess(size: NDArray[np.float64], seconds: NDArray[np.float64], asked: NDArray[np.float64]) -> NDArray[np.float64]:
    return fastest(_design(asked), _fit_lines(size, seconds))


def _design(size: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.column_stack([np.ones(len(size)), size])
