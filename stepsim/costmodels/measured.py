"""The measured table: work that was timed costs what it took."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from stepsim.errors import CalibrationError, NotFittedError


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

    entries_: dict[str, Entry]
    repeat_error_: float | None

    def fit(self, samples: pd.DataFrame) -> Self:
        """Fit to samples with columns ``work``, ``name`` and ``duration_s``. Raises `CalibrationError`."""
        if len(samples) == 0:
            raise CalibrationError("a measured table needs samples of work, got none")
        check_seconds(samples)
        self.entries_ = {}
        errors = []
        for signature, group in samples.groupby("work", sort=True):
            seconds = group["duration_s"].to_numpy(dtype=float)
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

    def predict(self, signatures: Sequence[str]) -> NDArray[np.float64]:
        """Seconds of each signature; NaN for work that was never timed."""
        if not hasattr(self, "entries_"):
            raise NotFittedError("MeasuredTable is not fitted yet: call fit() with samples first")
        known = self.entries_
        return np.array([known[s].seconds if s in known else np.nan for s in signatures], dtype=np.float64)


def check_seconds(samples: pd.DataFrame) -> None:
    """Raises `CalibrationError` for a duration that is no positive number."""
    seconds = samples["duration_s"].to_numpy(dtype=float)
    for place in np.flatnonzero(~(np.isfinite(seconds) & (seconds > 0))):
        name = samples["name"].iloc[place]
        raise CalibrationError(f"sample {place} of {name!r}: duration_s must be > 0, got {seconds[place]}")
