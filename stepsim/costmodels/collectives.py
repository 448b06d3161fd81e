"""Collectives by what they took: a curve over the size for each group that was measured, and between groups."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, Self, cast

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from stepsim.costmodels.copies import Curve, Lines, curve_from_json
from stepsim.costmodels.model import Prediction, check_fitted, check_samples, warn_outside
from stepsim.costmodels.noise import spread_of
from stepsim.costmodels.transfers import InterpolatedTransferModel
from stepsim.errors import CalibrationError
from stepsim.plan import Origin
from stepsim.traces.collective_tables import array_bytes

FEATURES = ("collective", "ranks", "nodes", "size_bytes")

Kind = tuple[str, int]
"""A collective, and the nodes of its group."""

Groups = Mapping[int, Curve]
"""Time by size, for each number of ranks in rising order."""


class CollectiveTable:
    """Seconds of a collective, interpolated between measured sizes, and between measured groups on as many nodes.

    Sizes are those of the whole array (`stepsim.traces.collective_tables.array_bytes`). Between two groups time goes
    as a power of the ranks, at any one size. Never decreasing in size. Other groups and collectives are unknown.

    Parameters
    ----------
    compact
        Keep a few lines for each group (`stepsim.costmodels.copies.Lines`) instead of all measured sizes.

    Attributes
    ----------
    curves_
        For each collective and number of nodes, and each number of ranks in rising order, time by size.
    size_error_, group_error_
        Mean absolute relative error for a size left out, and for a group left out between two others; ``None`` where
        nothing could be left out.
    """

    features = FEATURES

    curves_: Mapping[Kind, Groups]
    size_error_: float | None
    group_error_: float | None

    def __init__(self, *, compact: bool = False) -> None:
        self.compact = compact

    def fit(self, samples: pd.DataFrame) -> Self:
        """Fit to samples with the features and ``seconds``. Raises `CalibrationError`, naming the group."""
        check_samples("collectives", samples, positive=("ranks", "nodes", "size_bytes", "seconds"))
        samples = samples.assign(size_bytes=array_bytes(samples))
        found: dict[Kind, dict[int, Curve]] = {}
        for key, rows in samples.groupby(["collective", "nodes", "ranks"], sort=True):
            name, nodes, ranks = cast(tuple[str, int, int], key)
            found.setdefault((name, int(nodes)), {})[int(ranks)] = _curve(rows, self.compact)
        self.curves_ = found
        curves = [curve for groups in self.curves_.values() for curve in groups.values()]
        self.size_error_ = _mean([curve.size_error_ for curve in curves])
        self.group_error_ = _mean([_group_error(groups) for groups in self.curves_.values()])
        return self

    def predict(self, tasks: pd.DataFrame) -> Prediction:
        """NaN seconds for other collectives, and for groups that do not lie between measured ones."""
        check_fitted(self, "curves_")
        seconds, spread = np.full(len(tasks), np.nan), np.zeros(len(tasks))
        in_range = np.zeros(len(tasks), np.bool_)
        sizes = array_bytes(tasks).to_numpy(float)
        for key, places in tasks.groupby(["collective", "ranks", "nodes"]).indices.items():
            name, ranks, nodes = cast(tuple[str, int, int], key)
            groups = self.curves_.get((name, nodes), {})
            around = _around(groups, ranks)
            if around is None:
                continue
            low, high = around
            seconds[places] = _between(groups, low, high, ranks, sizes[places])
            error = self.size_error_ if low == high else self.group_error_
            spread[places] = spread_of(error, max(groups[low].noise_, groups[high].noise_))
            ranges = [groups[low].range_bytes, groups[high].range_bytes]
            known = (max(least for least, _ in ranges), min(most for _, most in ranges))
            asked = pd.DataFrame({"array_bytes": sizes[places]})
            in_range[places] = warn_outside(self, asked, {"array_bytes": known})
        return Prediction(
            seconds=seconds,
            spread=spread,
            origin=np.full(len(tasks), Origin.INTERPOLATED, np.int8),
            in_range=in_range,
        )

    def as_json(self) -> dict[str, Any]:
        check_fitted(self, "curves_")
        curves = [
            {"collective": name, "nodes": nodes, "ranks": ranks, **curve.as_json()}
            for (name, nodes), groups in self.curves_.items()
            for ranks, curve in groups.items()
        ]
        return {
            "compact": self.compact,
            "curves": curves,
            "size_error": self.size_error_,
            "group_error": self.group_error_,
        }

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Self:
        model = cls(compact=body["compact"])
        curves: dict[Kind, dict[int, Curve]] = {}
        for entry in body["curves"]:
            groups = curves.setdefault((entry["collective"], entry["nodes"]), {})
            groups[entry["ranks"]] = curve_from_json(entry)
        model.curves_ = curves
        model.size_error_, model.group_error_ = body["size_error"], body["group_error"]
        return model


def _curve(rows: pd.DataFrame, compact: bool) -> Curve:
    try:
        return (Lines() if compact else InterpolatedTransferModel()).fit(rows)
    except CalibrationError as error:
        one = rows.iloc[0]
        group = f"{one['collective']} of {one['ranks']} ranks on {one['nodes']} nodes"
        raise CalibrationError(f"{group}: {error}") from error


def _around(groups: Groups, ranks: int) -> tuple[int, int] | None:
    """The measured groups next to ``ranks``, twice the same where it was measured; None outside of them all."""
    below = [known for known in groups if known <= ranks]
    above = [known for known in groups if known >= ranks]
    return (max(below), min(above)) if below and above else None


def _between(groups: Groups, low: int, high: int, ranks: int, sizes: NDArray[np.float64]) -> NDArray[np.float64]:
    share = 0.0 if low == high else float(np.log(ranks / low) / np.log(high / low))
    seconds = [groups[known].seconds_of(sizes) for known in (low, high)]
    return np.asarray(seconds[0] ** (1 - share) * seconds[1] ** share)


def _group_error(groups: Groups) -> float | None:
    """Of each group that lies between two others, at sizes as close as powers of 2."""
    errors: list[float] = []
    for (low, out), (_, high) in pairwise(pairwise(groups)):
        least, most = groups[out].range_bytes
        sizes = np.geomspace(least, most, max(2, round(np.log2(most / least)) + 1))
        guess = _between(groups, low, high, out, sizes)
        errors.append(float(np.mean(np.abs(guess / groups[out].seconds_of(sizes) - 1))))
    return _mean(errors)


def _mean(errors: Sequence[float | None]) -> float | None:
    known = [error for error in errors if error is not None]
    return float(np.mean(known)) if known else None
