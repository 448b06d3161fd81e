"""Kernel times on a GPU that nobody measured, learnt from several that somebody did.

What carries over is how far a kernel stays from the data sheet, told by what has no unit: tiles and waves, and FLOP
against bytes. What does not is the clock: a small board cannot feed its peak. So the time has two parts,

    seconds = sqrt(free ** 2 + power ** 2),   power = flop / (flop_per_joule x power_w)

of which trees learn the free one, (roofline + launch) x exp(trees(features)). Each measured GPU has the power part that
it showed, so that a kernel that was bound by power teaches nothing of the free part; an unseen one has the best.

Two witnesses speak of a linear layer, and their geometric mean is the answer: batched products of all GPUs, and linear
layers of GPUs of its generation, for which the same kernels were written (those of Pascal suit long layers badly, of
which other generations know nothing). Without such a GPU the first speaks alone. Of other classes all GPUs speak.

How this was chosen, and what it is worth, stands in `experiments/kernel_accuracy.py`.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from stepsim.costmodels.kernels.features import (
    DEVICE,
    LAUNCH_S,
    WORK,
    Floats,
    column,
    portable_features,
    roofline_s,
)
from stepsim.costmodels.kernels.trees import Boosting, Loss, Trees, grow
from stepsim.costmodels.model import Prediction, check_fitted, check_samples
from stepsim.errors import CalibrationError
from stepsim.plan import Origin
from stepsim.traces.kernel_tables import PRODUCTS, SHAPE

JUDGED_BY = {"linear": "bmm"}
"""Class whose kernels of all GPUs speak for another."""

STEADY_S = 1e-3
"""Time of computing above which a kernel is long enough for the clock to settle at what the board's power allows."""

BEST, USUAL = 0.9, 0.5
"""Quantiles of the FLOP per joule of long kernels: what a GPU can get, and what the one that was measured had."""

FARTHEST = 0.3
"""Errors of a logarithm count no more than this while trees grow: no single table decides."""

SPREAD = 0.35
"""Root mean square of log(predicted / measured) for products of left out GPUs in `experiments/kernel_accuracy.py`."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Witness:
    """What the kernels of some GPUs tell: of those of ``generation``, or of all (None)."""

    generation: int | None
    flop_per_joule: float
    trees: Trees

    def log_seconds(self, tasks: pd.DataFrame) -> Floats:
        free = _log_roofline(tasks) + self.trees.predict(portable_features(tasks, self.flop_per_joule))
        return _joined(free, _log_power(tasks, self.flop_per_joule))


class UnseenGpuRegression:
    """Regression over several GPUs for one that is not among them.

    Samples have a column ``gpu`` besides; column ``generation`` is that of `stepsim.costmodels.kernels.generation`.

    Attributes
    ----------
    witnesses_
        By op class. A class that no sample showed gets NaN.
    """

    features = ("op_class", "generation", *SHAPE, *WORK, *DEVICE)

    witnesses_: Mapping[str, Sequence[Witness]]

    def __init__(self, boosting: Boosting | None = None) -> None:
        self.boosting = boosting or Boosting(trees=100, rate=0.15)

    def fit(self, samples: pd.DataFrame) -> Self:
        """Fit to kernels of two GPUs or more. Raises `CalibrationError`."""
        check_samples("kernels of several GPUs", samples, positive=(*SHAPE, *WORK, *DEVICE, "seconds"))
        gpus = samples["gpu"].nunique()
        if gpus < 2:
            raise CalibrationError(f"kernels of an unseen GPU need samples of at least 2 others, got {gpus}")
        self.witnesses_ = {str(name): list(self._witnesses(str(name), samples)) for name in set(samples["op_class"])}
        return self

    def predict(self, tasks: pd.DataFrame) -> Prediction:
        """Seconds of each task; NaN for a class without samples. Nothing is in range: the GPU was not seen."""
        check_fitted(self, "witnesses_")
        seconds, spread = np.full(len(tasks), np.nan), np.zeros(len(tasks))
        for (name, generation), rows in tasks.reset_index(drop=True).groupby(["op_class", "generation"]):
            heard = [one for one in self.witnesses_.get(str(name), ()) if one.generation in (None, generation)]
            if heard:
                seconds[rows.index] = np.exp(np.mean([one.log_seconds(rows) for one in heard], axis=0))
                spread[rows.index] = SPREAD
        origin = np.full(len(tasks), Origin.REGRESSED, np.int8)
        return Prediction(seconds=seconds, spread=spread, origin=origin, in_range=np.zeros(len(tasks), np.bool_))

    def _witnesses(self, name: str, samples: pd.DataFrame) -> Iterator[Witness]:
        """The one that is always heard first."""
        rate = samples[samples["op_class"].isin(PRODUCTS)] if name in PRODUCTS else samples[samples["op_class"] == name]
        best = _flop_per_joule(rate, BEST)
        judge = JUDGED_BY.get(name, name)
        judge = judge if (samples["op_class"] == judge).any() else name
        of_all = samples[samples["op_class"] == judge]
        yield self._witness(None, of_all, rate, best)
        if judge != name:
            own = samples[samples["op_class"] == name]
            for generation in sorted(own["generation"].unique().tolist()):
                yield self._witness(generation, own[own["generation"] == generation], rate, best)

    def _witness(self, generation: int | None, samples: pd.DataFrame, rate: pd.DataFrame, best: float) -> Witness:
        power = np.full(len(samples), -np.inf)
        for gpu, places in samples.reset_index(drop=True).groupby("gpu").indices.items():
            shown = _flop_per_joule(rate[rate["gpu"] == gpu], USUAL)
            rows = samples.iloc[places]
            bound = bool((best * rows["power_w"] < rows["peak_flop_per_s"]).all())
            power[places] = _log_power(rows, shown if bound else best)
        measured = np.log(column(samples, "seconds"))
        loss = _free_part(measured, _log_roofline(samples), power)
        trees = grow(portable_features(samples, best), loss, self.boosting, np.random.default_rng(0))
        return Witness(generation=generation, flop_per_joule=best, trees=trees)


def _free_part(measured: Floats, roofline: Floats, power: Floats) -> Loss:
    """Half the squared error of the logarithm, as far as the free part makes it; larger errors pull no harder."""

    def loss(answers: Floats) -> tuple[Floats, Floats]:
        free = roofline + answers
        said = _joined(free, power)
        share = np.exp(2 * (free - said))
        return share * np.clip(measured - said, -FARTHEST, FARTHEST), share**2

    return loss


def _joined(free: Floats, power: Floats) -> Floats:
    """Logarithm of the root of the squares."""
    return np.asarray(np.logaddexp(2 * free, 2 * power) / 2, dtype=np.float64)


def _log_roofline(tasks: pd.DataFrame) -> Floats:
    return np.asarray(np.log(roofline_s(tasks) + LAUNCH_S), dtype=np.float64)


def _log_power(tasks: pd.DataFrame, flop_per_joule: float) -> Floats:
    """Of seconds; minus infinity where power bounds nothing."""
    if np.isinf(flop_per_joule):
        return np.full(len(tasks), -np.inf)
    return np.asarray(np.log(column(tasks, "flop") / flop_per_joule / column(tasks, "power_w")), dtype=np.float64)


def _flop_per_joule(samples: pd.DataFrame, quantile: float) -> float:
    """Of long kernels: the highest that any class on any GPU shows; infinite where none is long."""
    long = samples[column(samples, "flop") / column(samples, "peak_flop_per_s") > STEADY_S]
    if not len(long):
        return np.inf
    got: NDArray[np.float64] = column(long, "flop") / column(long, "seconds") / column(long, "power_w")
    return float(pd.Series(got, long.index).groupby([long["gpu"], long["op_class"]]).quantile(quantile).max())
