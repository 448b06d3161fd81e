"""Gradient boosting of symmetric trees: each level of a tree asks one question of all rows.

Friedman, "Greedy function approximation", Annals of Statistics 29 (2001); symmetric (oblivious) trees as in
Prokhorenkova et al., "CatBoost", NeurIPS 2018. A tree of depth d is d questions and 2^d values, so that the whole model
is three small arrays.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from stepsim.errors import CalibrationError

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

DIGITS = 4
"""Significant digits of what is written: far finer than the error of any regression here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Boosting:
    """How trees are grown. ``rate`` shrinks each tree's answer, ``smoothing`` counts as rows that answer 0.

    Each tree sees a random ``share`` of the features.
    """

    trees: int = 300
    depth: int = 5
    rate: float = 0.12
    smoothing: float = 2.0
    share: float = 0.4
    bins: int = 64


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Trees:
    """``feature`` and ``threshold`` of shape (trees, depth), ``value`` of shape (trees, 2 ** depth)."""

    start: float
    feature: Ints
    threshold: Floats
    value: Floats

    def predict(self, features: Floats) -> Floats:
        """The sum over all trees for each row of ``features``."""
        result = np.full(len(features), self.start)
        for feature, threshold, value in zip(self.feature, self.threshold, self.value, strict=True):
            bits = features[:, feature] > threshold
            result += value[bits @ (1 << np.arange(len(feature)))]
        return result

    def as_json(self) -> dict[str, Any]:
        """Plain lists, of `DIGITS` digits."""
        threshold, value = (_short(table) for table in (self.threshold, self.value))
        return {"start": self.start, "feature": self.feature.tolist(), "threshold": threshold, "value": value}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Self:
        """What `as_json` wrote. Raises `CalibrationError` for tables that are not of one size."""
        feature = np.array(document["feature"], np.int64)
        threshold, value = (np.array(document[name], np.float64) for name in ("threshold", "value"))
        if (
            feature.ndim != 2
            or threshold.shape != feature.shape
            or value.shape != (len(feature), 1 << feature.shape[1])
        ):
            shapes = f"{feature.shape}, {threshold.shape}, {value.shape}"
            raise CalibrationError(f"trees: feature, threshold and value must belong together, got shapes {shapes}")
        return cls(start=float(document["start"]), feature=feature, threshold=threshold, value=value)


def grow(features: Floats, target: Floats, boosting: Boosting, rng: np.random.Generator) -> Trees:
    """Trees that together answer ``target``, of shape (rows,), for ``features`` of shape (rows, features)."""
    edges = _edges(features, boosting.bins)
    binned = np.column_stack([np.searchsorted(cut, column) for cut, column in zip(edges, features.T, strict=True)])
    start = float(np.mean(target))
    rest = target - start
    chosen, thresholds, values = [], [], []
    seen = max(1, round(boosting.share * features.shape[1]))
    for _ in range(boosting.trees):
        candidates = rng.choice(features.shape[1], seen, replace=False)
        questions, leaf = _questions(binned, rest, candidates, boosting)
        value = boosting.rate * _leaf_values(leaf, rest, boosting)
        rest = rest - value[leaf]
        chosen.append([feature for feature, _ in questions])
        thresholds.append([edges[feature][place] for feature, place in questions])
        values.append(value)
    return Trees(start=start, feature=np.array(chosen), threshold=np.array(thresholds), value=np.array(values))


def _edges(features: Floats, bins: int) -> list[Floats]:
    """Thresholds of each feature: its quantiles, doubles left out."""
    quantiles = np.linspace(0, 1, bins + 1)[1:-1]
    return [np.unique(np.quantile(column, quantiles, method="lower")) for column in features.T]


def _questions(binned: Ints, rest: Floats, candidates: Ints, boosting: Boosting) -> tuple[list[tuple[int, int]], Ints]:
    """The best (feature, edge) of each level in turn, and the leaf where each row ends."""
    leaf = np.zeros(len(rest), np.int64)
    questions: list[tuple[int, int]] = []
    for level in range(boosting.depth):
        gains = [_best_edge(leaf, 1 << level, binned[:, feature], rest, boosting) for feature in candidates]
        best = int(np.argmax([gain for gain, _ in gains]))
        feature, place = int(candidates[best]), gains[best][1]
        questions.append((feature, place))
        leaf = leaf + ((binned[:, feature] > place).astype(np.int64) << level)
    return questions, leaf


def _best_edge(leaf: Ints, leaves: int, bins_of: Ints, rest: Floats, boosting: Boosting) -> tuple[float, int]:
    cell = leaf * boosting.bins + bins_of
    size = leaves * boosting.bins
    count = np.bincount(cell, minlength=size).reshape(leaves, boosting.bins).cumsum(axis=1)
    total = np.bincount(cell, rest, minlength=size).reshape(leaves, boosting.bins).cumsum(axis=1)
    above, count_above = total[:, -1:] - total, count[:, -1:] - count
    gain = total**2 / (count + boosting.smoothing) + above**2 / (count_above + boosting.smoothing)
    last = max(1, int(bins_of.max()))
    best = int(np.argmax(gain.sum(axis=0)[:last]))
    return float(gain.sum(axis=0)[best]), best


def _leaf_values(leaf: Ints, rest: Floats, boosting: Boosting) -> Floats:
    leaves = 1 << boosting.depth
    total, count = np.bincount(leaf, rest, minlength=leaves), np.bincount(leaf, minlength=leaves)
    return np.asarray(total / (count + boosting.smoothing), dtype=np.float64)


def _short(table: Floats) -> list[list[float]]:
    return [[float(f"{number:.{DIGITS}g}") for number in row] for row in table.tolist()]
