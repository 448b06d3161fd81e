"""Rooflines under the power of the board, one for each op class: what carries over to GPUs that nobody measured."""

from collections.abc import Mapping
from typing import Any, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from stepsim.costmodels.efficiency import LEFT_OUT, EfficientRoofline
from stepsim.costmodels.model import Prediction, check_fitted, check_samples
from stepsim.errors import CalibrationError
from stepsim.plan import Origin

LONG_S = 1e-4
"""Samples shorter than this are left out of the fit: they show how little of a GPU a small kernel fills."""

_STEADY_S = 1e-3
"""Time of computing above which a kernel is long enough for the clock to settle at what the board's power allows."""

_AT_THEIR_BEST = 0.9
"""Quantile of the FLOP that kernels get out of a joule which counts as what the GPU can get."""


class PowerBoundRooflines:
    """`EfficientRoofline` by op class, over a peak of ``min(data sheet, flop_per_joule_ x power_w)``.

    Attributes
    ----------
    flop_per_joule_
        The best that a GPU of the samples got in long kernels; infinite where none is long.
    rooflines_
        By op class.
    """

    features = ("op_class", "flop", "size_bytes", "peak_flop_per_s", "memory_bandwidth_bytes_per_s", "power_w")

    flop_per_joule_: float
    rooflines_: Mapping[str, EfficientRoofline]

    def fit(self, samples: pd.DataFrame) -> Self:
        """Fit to kernels with the features and ``seconds``; classes of few long kernels are left out.

        Raises `CalibrationError`.
        """
        positive = ("seconds", *self.features[3:])
        check_samples("power-bound rooflines", samples, positive=positive, not_negative=("flop", "size_bytes"))
        self.flop_per_joule_ = _flop_per_joule(samples)
        bound = self._bound(samples)
        long = bound[bound["seconds"] > LONG_S].groupby("op_class")
        self.rooflines_ = {str(name): EfficientRoofline().fit(rows) for name, rows in long if len(rows) >= LEFT_OUT}
        if not self.rooflines_:
            raise CalibrationError(f"power-bound rooflines need {LEFT_OUT} kernels of one class above {LONG_S} s")
        return self

    def predict(self, tasks: pd.DataFrame) -> Prediction:
        """Seconds of each task; NaN for a class without samples."""
        check_fitted(self, "rooflines_")
        size = len(tasks)
        seconds, spread = np.full(size, np.nan), np.zeros(size)
        for name, roofline in self.rooflines_.items():
            rows = np.flatnonzero(tasks["op_class"] == name)
            said = roofline.predict(self._bound(tasks.iloc[rows]))
            seconds[rows], spread[rows] = said.seconds, said.spread
        origin = np.full(size, Origin.ROOFLINE, np.int8)
        return Prediction(seconds=seconds, spread=spread, origin=origin, in_range=np.isfinite(seconds))

    def as_json(self) -> dict[str, Any]:
        """FLOP per joule of null bound nothing."""
        check_fitted(self, "rooflines_")
        return {
            "flop_per_joule": self.flop_per_joule_ if np.isfinite(self.flop_per_joule_) else None,
            "rooflines": {name: roofline.as_json() for name, roofline in self.rooflines_.items()},
        }

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Self:
        model = cls()
        model.flop_per_joule_ = np.inf if body["flop_per_joule"] is None else body["flop_per_joule"]
        model.rooflines_ = {name: EfficientRoofline.from_json(entry) for name, entry in body["rooflines"].items()}
        return model

    def _bound(self, rows: pd.DataFrame) -> pd.DataFrame:
        """With the peak that the power of the board leaves."""
        sustained = np.minimum(rows["peak_flop_per_s"], self.flop_per_joule_ * rows["power_w"])
        return rows.assign(peak_flop_per_s=sustained)


def _flop_per_joule(samples: pd.DataFrame) -> float:
    flop, seconds, peak, power_w = (
        _numbers(samples, name) for name in ("flop", "seconds", "peak_flop_per_s", "power_w")
    )
    steady = flop / peak > _STEADY_S
    if not steady.any():
        return np.inf
    each_gpu = [peak[steady], power_w[steady]]
    got = pd.Series(flop[steady] / seconds[steady] / power_w[steady]).groupby(each_gpu).quantile(_AT_THEIR_BEST)
    return float(got.max())


def _numbers(rows: pd.DataFrame, name: str) -> NDArray[np.float64]:
    return rows[name].to_numpy(float)
