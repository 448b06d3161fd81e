"""Kernel times by regression: for each op class, how much longer than the roofline, from shape and data sheet."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import pandas as pd

from stepsim.costmodels.kernels.features import DEVICE, LAUNCH_S, WORK, Floats, kernel_features, roofline_s
from stepsim.costmodels.kernels.split import part_of
from stepsim.costmodels.kernels.trees import Boosting, Trees, grow, squares
from stepsim.costmodels.model import (
    Prediction,
    check_fitted,
    check_samples,
    check_varied_times,
    range_of,
    warn_outside,
)
from stepsim.errors import CalibrationError
from stepsim.plan import Origin
from stepsim.traces.kernel_tables import SHAPE

FEWEST = 20
"""Distinct shapes that an op class needs: fewer leave nothing to check the fit with."""

LEFT_OUT_SEED = 1
"""Of the part of the samples that is left out of a first fit, to know the error."""


_STEADY_S = 1e-3
"""Roofline time above which a kernel is long enough for the clock to settle at what the power of the board allows."""

_AT_THEIR_BEST = 0.9
"""Quantile of the FLOP that kernels get out of a joule which counts as what a GPU can get."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class OpClassFit:
    """``trees`` answer log(seconds / (roofline + launch)), the roofline under a power that gives ``flop_per_joule``
    (None: no long kernel was seen, and power bounds nothing); ``fitted`` has the ranges of the dimensions.

    ``left_out_error`` is the mean absolute relative error for a fifth of the shapes, left out of a first fit, and
    ``left_out_spread`` the root mean square of the logarithm of predicted over measured there.
    """

    flop_per_joule: float | None
    trees: Trees
    fitted: Mapping[str, tuple[float, float]]
    left_out_error: float
    left_out_spread: float


class KernelRegression:
    """``seconds = (roofline + launch) x exp(trees(features))``, one sum of trees for each op class.

    Fitted on one GPU it knows that GPU. Fitted on several it says something of another, `UnseenGpuRegression` more.
    Outside the fitted range it keeps the distance from the roofline that it saw at the border.

    Attributes
    ----------
    fits_
        By op class. A class that no sample showed gets NaN: this model has nothing to say of it.
    """

    features = ("op_class", *SHAPE, *WORK, *DEVICE)

    fits_: Mapping[str, OpClassFit]

    def __init__(self, boosting: Boosting | None = None) -> None:
        self.boosting = boosting or Boosting()

    def fit(self, samples: pd.DataFrame) -> Self:
        """Fit to measured kernels. Raises `CalibrationError` for too few shapes or numbers that are none."""
        check_samples("kernels", samples, positive=(*SHAPE, *WORK, *DEVICE, "seconds"))
        self.fits_ = {str(name): self._fit(str(name), rows) for name, rows in samples.groupby("op_class", sort=True)}
        return self

    def predict(self, tasks: pd.DataFrame) -> Prediction:
        """Regressed seconds; NaN for a class without samples."""
        check_fitted(self, "fits_")
        seconds, spread = np.full(len(tasks), np.nan), np.zeros(len(tasks))
        in_range = np.zeros(len(tasks), np.bool_)
        for name, fit in self.fits_.items():
            rows = np.flatnonzero(tasks["op_class"].to_numpy() == name)
            asked = tasks.iloc[rows]
            seconds[rows] = _seconds(asked, fit.trees, fit.flop_per_joule)
            spread[rows] = fit.left_out_spread
            in_range[rows] = warn_outside(self, asked, fit.fitted)
        origin = np.full(len(tasks), Origin.REGRESSED, np.int8)
        return Prediction(seconds=seconds, spread=spread, origin=origin, in_range=in_range)

    def _fit(self, name: str, samples: pd.DataFrame) -> OpClassFit:
        where = f"kernels of class {name}"
        shapes = len(samples[list(SHAPE)].drop_duplicates())
        if shapes < FEWEST:
            raise CalibrationError(f"{where} need at least {FEWEST} shapes, got {shapes}")
        check_varied_times(where, samples)
        best = _flop_per_joule(samples)
        out = part_of(samples, LEFT_OUT_SEED) == 0
        guess = _seconds(samples[out], self._grow(samples[~out], best), best)
        errors = np.log(guess / samples["seconds"].to_numpy(float)[out])
        return OpClassFit(
            flop_per_joule=best,
            trees=self._grow(samples, best),
            fitted=range_of(samples, SHAPE),
            left_out_error=float(np.mean(np.abs(np.expm1(errors)))),
            left_out_spread=float(np.sqrt(np.mean(errors**2))),
        )

    def _grow(self, samples: pd.DataFrame, flop_per_joule: float | None) -> Trees:
        target = np.log(samples["seconds"].to_numpy(float) / _scale_s(samples, flop_per_joule))
        return grow(kernel_features(samples), squares(target), self.boosting, np.random.default_rng(0))

    def as_json(self) -> dict[str, Any]:
        """What was learnt, in plain lists and numbers, by op class. Raises `NotFittedError`."""
        check_fitted(self, "fits_")
        return {name: _as_json(fit) for name, fit in self.fits_.items()}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Self:
        """What `as_json` wrote. Raises `CalibrationError` for a document of another form."""
        try:
            fits = {name: _from_json(fit) for name, fit in document.items()}
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise CalibrationError(f"no kernel regression: {error!r}") from error
        model = cls()
        model.fits_ = fits
        return model


def _as_json(fit: OpClassFit) -> dict[str, Any]:
    return {
        "flop_per_joule": fit.flop_per_joule,
        "left_out_error": fit.left_out_error,
        "left_out_spread": fit.left_out_spread,
        "fitted": {name: list(span) for name, span in fit.fitted.items()},
        "trees": fit.trees.as_json(),
    }


def _from_json(document: Mapping[str, Any]) -> OpClassFit:
    best = document["flop_per_joule"]
    return OpClassFit(
        flop_per_joule=None if best is None else float(best),
        trees=Trees.from_json(document["trees"]),
        fitted={name: (float(low), float(high)) for name, (low, high) in document["fitted"].items()},
        left_out_error=float(document["left_out_error"]),
        left_out_spread=float(document["left_out_spread"]),
    )


def _flop_per_joule(samples: pd.DataFrame) -> float | None:
    """What the best of the GPUs gets out of a joule in its long kernels."""
    flop, seconds, power_w = (samples[name].to_numpy(float) for name in ("flop", "seconds", "power_w"))
    steady = flop / samples["peak_flop_per_s"].to_numpy(float) > _STEADY_S
    if not steady.any():
        return None
    got = pd.Series(flop[steady] / seconds[steady] / power_w[steady])
    return float(got.groupby(power_w[steady]).quantile(_AT_THEIR_BEST).max())


def _scale_s(tasks: pd.DataFrame, flop_per_joule: float | None) -> Floats:
    return roofline_s(tasks, np.inf if flop_per_joule is None else flop_per_joule) + LAUNCH_S


def _seconds(tasks: pd.DataFrame, trees: Trees, flop_per_joule: float | None) -> Floats:
    residual = np.exp(trees.predict(kernel_features(tasks)))
    return np.asarray(_scale_s(tasks, flop_per_joule) * residual, dtype=np.float64)
