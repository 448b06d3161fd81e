"""Gradient boosting of symmetric trees: each level of a tree asks one question of all rows.

Friedman, "Greedy function approximation", Annals of Statistics 29 (2001); symmetric (oblivious) trees as in
Prokhorenkova et al., "CatBoost", NeurIPS 2018. A tree of depth d is d questions and 2^d values: one line of text, as
``3>1.25 17>0.5: -12 8 0 31``, which asks whether feature 3 is above 1.25 (adds 1 to the place) and feature 17 above 0.5
(adds 2), and answers the value at that place, in thousandths.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from stepsim.errors import CalibrationError

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

DIGITS = 4
"""Significant digits of a threshold that is written."""

UNIT = 1e-3
"""Of a value that is written: of a logarithm a thousandth, where no regression here errs by less than ten."""

START_STEPS = 8
"""Of Newton from 0 to the first answer: squares need one."""


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
        """One line of text for each tree."""
        tables = zip(self.feature.tolist(), self.threshold.tolist(), self.value.tolist(), strict=True)
        return {"start": self.start, "trees": [_line(*tree) for tree in tables]}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Self:
        """What `as_json` wrote. Raises `CalibrationError` for trees that are not of one size."""
        trees = [_tree(line) for line in document["trees"]]
        sizes = {(len(questions), len(values)) for questions, values in trees}
        depth = len(trees[0][0]) if trees else 0
        if sizes != {(depth, 1 << depth)}:
            raise CalibrationError(f"trees: d questions need 2 ** d values each, got (questions, values) {sizes}")
        return cls(
            start=float(document["start"]),
            feature=np.array([[feature for feature, _ in questions] for questions, _ in trees], np.int64),
            threshold=np.array([[threshold for _, threshold in questions] for questions, _ in trees], np.float64),
            value=np.array([values for _, values in trees], np.float64) * UNIT,
        )


class Loss(Protocol):
    """What is wrong with the ``answers`` so far, for each row; both of shape (rows,).

    First the pull, by which the loss falls as the answer rises; then the weight, by which the pull falls.
    """

    def __call__(self, answers: Floats) -> tuple[Floats, Floats]: ...


def squares(target: Floats) -> Loss:
    """Half the squared distance to ``target``."""
    return lambda answers: (target - answers, np.ones(len(target)))


def grow(features: Floats, loss: Loss, boosting: Boosting, rng: np.random.Generator) -> Trees:
    """Trees whose sum makes ``loss`` small for ``features`` of shape (rows, features), by a Newton step for each."""
    edges = _edges(features, boosting.bins)
    binned = np.column_stack([np.searchsorted(cut, column) for cut, column in zip(edges, features.T, strict=True)])
    start = _start(loss, len(features))
    answers = np.full(len(features), start)
    chosen, thresholds, values = [], [], []
    seen = max(1, round(boosting.share * features.shape[1]))
    for _ in range(boosting.trees):
        candidates = rng.choice(features.shape[1], seen, replace=False)
        pull, weight = loss(answers)
        questions, leaf = _questions(binned, pull, weight, candidates, boosting)
        value = boosting.rate * _leaf_values(leaf, pull, weight, boosting)
        answers = answers + value[leaf]
        chosen.append([feature for feature, _ in questions])
        thresholds.append([edges[feature][place] for feature, place in questions])
        values.append(value)
    return Trees(start=start, feature=np.array(chosen), threshold=np.array(thresholds), value=np.array(values))


def _edges(features: Floats, bins: int) -> list[Floats]:
    """Thresholds of each feature: its quantiles, doubles left out."""
    quantiles = np.linspace(0, 1, bins + 1)[1:-1]
    return [np.unique(np.quantile(column, quantiles, method="lower")) for column in features.T]


def _start(loss: Loss, rows: int) -> float:
    """The one answer for all rows; steps are no longer than those of a loss that weighs a row in all."""
    start = 0.0
    for _ in range(START_STEPS):
        pull, weight = loss(np.full(rows, start))
        start += float(pull.sum() / max(weight.sum(), 1.0))
    return start


def _questions(
    binned: Ints, pull: Floats, weight: Floats, candidates: Ints, boosting: Boosting
) -> tuple[list[tuple[int, int]], Ints]:
    """The best (feature, edge) of each level in turn, and the leaf where each row ends."""
    leaf = np.zeros(len(pull), np.int64)
    questions: list[tuple[int, int]] = []
    for level in range(boosting.depth):
        gains = [_best_edge(leaf, 1 << level, binned[:, feature], pull, weight, boosting) for feature in candidates]
        best = int(np.argmax([gain for gain, _ in gains]))
        feature, place = int(candidates[best]), gains[best][1]
        questions.append((feature, place))
        leaf = leaf + ((binned[:, feature] > place).astype(np.int64) << level)
    return questions, leaf


def _best_edge(
    leaf: Ints, leaves: int, bins_of: Ints, pull: Floats, weight: Floats, boosting: Boosting
) -> tuple[float, int]:
    cell = leaf * boosting.bins + bins_of
    size = leaves * boosting.bins
    weighed = np.bincount(cell, weight, minlength=size).reshape(leaves, boosting.bins).cumsum(axis=1)
    total = np.bincount(cell, pull, minlength=size).reshape(leaves, boosting.bins).cumsum(axis=1)
    above, weighed_above = total[:, -1:] - total, weighed[:, -1:] - weighed
    gain = total**2 / (weighed + boosting.smoothing) + above**2 / (weighed_above + boosting.smoothing)
    last = max(1, int(bins_of.max()))
    best = int(np.argmax(gain.sum(axis=0)[:last]))
    return float(gain.sum(axis=0)[best]), best


def _leaf_values(leaf: Ints, pull: Floats, weight: Floats, boosting: Boosting) -> Floats:
    leaves = 1 << boosting.depth
    total, weighed = (np.bincount(leaf, values, minlength=leaves) for values in (pull, weight))
    return np.asarray(total / (weighed + boosting.smoothing), dtype=np.float64)


def _line(features: list[int], thresholds: list[float], values: list[float]) -> str:
    asked = " ".join(f"{feature}>{limit:.{DIGITS}g}" for feature, limit in zip(features, thresholds, strict=True))
    return f"{asked}: {' '.join(str(round(value / UNIT)) for value in values)}"


def _tree(line: str) -> tuple[list[tuple[int, float]], list[int]]:
    asked, _, values = line.partition(":")
    questions = [question.split(">") for question in asked.split()]
    return [(int(feature), float(limit)) for feature, limit in questions], [int(value) for value in values.split()]
