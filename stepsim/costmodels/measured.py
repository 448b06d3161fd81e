"""The measured table: work that was timed costs what it took."""

from dataclasses import dataclass
from typing import Self

import numpy as np
import pandas as pd

from stepsim.costmodels.model import Prediction, check_fitted, check_samples
from stepsim.plan import Origin


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One piece of work: median seconds, their spread (half the interquartile range), and how often it was timed."""

    kind: str
    seconds: float
    spread_s: float
    count: int


class MeasuredTable:
    """Median seconds by work signature.

    Attributes
    ----------
    entries_
        Signature to `Entry`.
    repeat_error_
        Mean absolute relative error with which the even repeats of each work predict its odd ones: the noise of the
        measurement, and so the least error that any prediction from this table has. ``None`` without repeats.
    """

    features = ("work",)

    entries_: dict[str, Entry]
    repeat_error_: float | None

    def fit(self, samples: pd.DataFrame) -> Self:
        """Fit to samples with columns ``work``, ``name`` and ``seconds``. Raises `CalibrationError`."""
        check_samples("a measured table of work", samples)
        self.entries_ = {}
        errors = []
        for signature, group in samples.groupby("work", sort=True):
            seconds = group["seconds"].to_numpy(dtype=float)
            low, middle, high = np.quantile(seconds, (0.25, 0.5, 0.75))
            self.entries_[str(signature)] = Entry(
                kind=str(group["name"].iloc[0]),
                seconds=float(middle),
                spread_s=float(high - low) / 2,
                count=len(seconds),
            )
            if len(seconds) > 1:
                odd = float(np.median(seconds[1::2]))
                errors.append(abs(float(np.median(seconds[::2])) - odd) / odd)
        self.repeat_error_ = float(np.mean(errors)) if errors else None
        return self

    def predict(self, tasks: pd.DataFrame) -> Prediction:
        """What each ``work`` took; NaN seconds, out of range, for work that was never timed.

        The spread takes the times as log-normal, whose quartiles lie 0.6745 standard deviations from the median.
        """
        check_fitted(self, "entries_")
        known = [self.entries_.get(signature) for signature in tasks["work"]]
        seconds = np.array([np.nan if entry is None else entry.seconds for entry in known], dtype=np.float64)
        relative = [0.0 if entry is None else entry.spread_s / entry.seconds for entry in known]
        return Prediction(
            seconds=seconds,
            spread=np.array(relative, dtype=np.float64) / 0.6745,
            origin=np.full(len(known), Origin.MEASURED, np.int8),
            in_range=~np.isnan(seconds),
        )
