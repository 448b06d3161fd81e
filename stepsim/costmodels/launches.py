"""What launching and waiting costs: small kernels back to back, and the calls that traces record."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from stepsim.costmodels.model import Prediction, check_fitted, check_samples, check_varied, uniform, warn_outside
from stepsim.costmodels.noise import spread_of
from stepsim.costmodels.regimes import least_squares
from stepsim.errors import CalibrationError
from stepsim.plan import Origin
from stepsim.traces.trace import Trace

_BEYOND_FLOOR = 1.25
"""A kernel that takes so many times the floor is taken to be bound by its bytes."""

_ROUNDS = 10
"""More have not changed any fit."""

_LEFT_OUT = 4
"""For the error every fourth sample of a mode is left out."""


class LaunchModel:
    """Seconds of each of many small kernels back to back: what a launch takes, until moving the bytes takes longer.

    ``seconds = max(floor of the mode, fixed_s_ + size_bytes * s_per_byte_)``. The ``mode`` is how kernels are launched,
    such as ``stream`` (one call each) or ``graph`` (one call for many).

    Attributes
    ----------
    floor_s_
        By mode, what no kernel is faster than; 0 where the bytes and ``fixed_s_`` explain all of them.
    fixed_s_, s_per_byte_
        Of the kernel itself; moved within a cache, if all samples fit into it.
    fitted_
        Smallest and largest size.
    left_out_error_
        Mean absolute relative error for samples left out of the fit, one in four of each mode. ``None`` where no mode
        has two samples.
    """

    features = ("mode", "size_bytes")

    floor_s_: Mapping[str, float]
    fixed_s_: float
    s_per_byte_: float
    fitted_: tuple[float, float]
    left_out_error_: float | None

    def fit(self, samples: pd.DataFrame) -> Self:
        """Fit to kernels with the features and ``seconds``. Raises `CalibrationError`."""
        check_samples("launches", samples, positive=("size_bytes", "seconds"))
        check_varied("launches", samples, "size_bytes")
        ordered = samples.sort_values(["mode", "size_bytes", "seconds"])
        out = (ordered.groupby("mode").cumcount() % _LEFT_OUT == 1).to_numpy()
        self.left_out_error_ = None
        if out.any():
            self._learn(ordered[~out])
            self.left_out_error_ = float(np.mean(np.abs(self._seconds(ordered[out]) / ordered["seconds"][out] - 1)))
        self._learn(ordered)
        self.fitted_ = (float(samples["size_bytes"].min()), float(samples["size_bytes"].max()))
        return self

    def _learn(self, rows: pd.DataFrame) -> None:
        """Floors from the samples that are not bound by their bytes, and a line from the others, in turns."""
        size, seconds = (rows[name].to_numpy(float) for name in ("size_bytes", "seconds"))
        floor = rows.groupby("mode")["seconds"].transform("min").to_numpy(float)
        moving = seconds > _BEYOND_FLOOR * floor
        for _ in range(_ROUNDS):
            if len(np.unique(size[moving])) < 2:
                raise CalibrationError("launches: there must be kernels of 2 sizes that their bytes slow, got fewer")
            terms = np.column_stack([np.ones(int(moving.sum())), size[moving]]) / seconds[moving, None]
            self.fixed_s_, self.s_per_byte_ = least_squares(terms).tolist()
            line = self.fixed_s_ + size * self.s_per_byte_
            still = rows[~moving].groupby("mode")["seconds"].median()
            self.floor_s_ = {str(mode): float(still.get(mode, 0.0)) for mode in rows["mode"].unique()}
            before, moving = moving, line > rows["mode"].map(self.floor_s_).to_numpy(float)
            if (before == moving).all():
                break

    def _seconds(self, rows: pd.DataFrame) -> NDArray[np.float64]:
        line = self.fixed_s_ + rows["size_bytes"].to_numpy(float) * self.s_per_byte_
        return np.asarray(np.maximum(rows["mode"].map(self.floor_s_).to_numpy(float), line))

    def predict(self, tasks: pd.DataFrame) -> Prediction:
        """NaN seconds for a mode that was not fitted."""
        check_fitted(self, "fitted_")
        seconds = self._seconds(tasks)
        return uniform(
            seconds,
            Origin.INTERPOLATED,
            spread=spread_of(self.left_out_error_),
            in_range=warn_outside(self, tasks, {"size_bytes": self.fitted_}) & ~np.isnan(seconds),
        )

    def as_json(self) -> dict[str, Any]:
        check_fitted(self, "fitted_")
        return {
            "floor_s": dict(self.floor_s_),
            "fixed_s": self.fixed_s_,
            "s_per_byte": self.s_per_byte_,
            "size_bytes": list(self.fitted_),
            "left_out_error": self.left_out_error_,
        }

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Self:
        model = cls()
        model.floor_s_ = body["floor_s"]
        model.fixed_s_, model.s_per_byte_ = body["fixed_s"], body["s_per_byte"]
        model.fitted_ = (body["size_bytes"][0], body["size_bytes"][1])
        model.left_out_error_ = body["left_out_error"]
        return model


@dataclass(frozen=True, slots=True, kw_only=True)
class CallCost:
    """Host seconds of the launch calls of a trace: quantiles, and the median of what a synchronisation adds.

    ``between_s`` is the median from one launch to the next of its thread, with all the work of the program between;
    ``sync_s`` from the end of the last work on the device to the return of a call that waited for it. ``None`` where
    the trace has none.
    """

    calls: int
    low_s: float
    median_s: float
    high_s: float
    between_s: float | None
    sync_s: float | None


def call_cost(trace: Trace) -> CallCost:
    """Raises `CalibrationError` for a trace without launches. Times are those under the profiler."""
    launches = trace.of("launch").sort_values(["thread", "start_s"])
    check_samples("launch calls", launches, positive=(), not_negative=("duration_s",))
    low, median, high = np.quantile(launches["duration_s"].to_numpy(float), (0.1, 0.5, 0.9)).tolist()
    gaps = launches.groupby("thread")["start_s"].diff().dropna()
    return CallCost(
        calls=len(launches),
        low_s=low,
        median_s=median,
        high_s=high,
        between_s=float(gaps.median()) if len(gaps) else None,
        sync_s=_sync_s(trace),
    )


def _sync_s(trace: Trace) -> float | None:
    syncs, work = trace.of("sync"), trace.of("kernel", "copy", "memset", "collective")
    work_end_s = np.sort((work["start_s"] + work["duration_s"]).to_numpy(float))
    end_s = (syncs["start_s"] + syncs["duration_s"]).to_numpy(float)
    place = np.searchsorted(work_end_s, end_s, side="right") - 1
    known = place >= 0
    last_s = work_end_s[place[known]]
    waited = last_s > syncs["start_s"].to_numpy(float)[known]
    return float(np.median((end_s[known] - last_s)[waited])) if waited.any() else None
