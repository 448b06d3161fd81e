"""Collectives by alpha and beta: latency of steps and bytes over bandwidth, for groups that nobody has measured.

Terms of each algorithm, for n ranks on m nodes, g to a node, and an array of A bytes (of an all_gather, what all ranks
contribute); v(n) is 2 (n - 1) / n for an all_reduce, 1 for a broadcast, (n - 1) / n otherwise:

============  ==================================  =====================  ==============  ==================
algorithm     steps within                        steps across nodes     bytes within    bytes across nodes
============  ==================================  =====================  ==============  ==================
ring          n - 1, twice for an all_reduce      none                   v(n) A          none
tree          log2 n, twice for an all_reduce     none                   v(n) A          none
hierarchical  g - 1, twice for an all_reduce      m - 1, or twice that   v(g) A          v(m) A / g
============  ==================================  =====================  ==============  ==================

Thakur et al. (IJHPCA 2005); Sanders et al. (Parallel Computing 2009); Cho et al., "BlueConnect" (MLSys 2019). An
all_to_all goes direct, with as many steps as a ring. Each of up to three regimes (`stepsim.costmodels.regimes`) has its
own alphas and betas.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from stepsim.costmodels.model import Prediction, check_fitted, check_samples, check_varied, warn_outside
from stepsim.costmodels.noise import repeat_noise, spread_of
from stepsim.costmodels.regimes import fastest, fit_regimes
from stepsim.plan import Origin
from stepsim.traces.collective_tables import array_bytes

FEATURES = ("collective", "ranks", "nodes", "size_bytes")

NUM_REGIMES = 3
"""LL, LL128 and Simple."""

_WITH_TREES = ("all_reduce", "broadcast")

_MOST_SIZES = 64
"""Of each group, evenly in order of size: denser tables tell no more of a dozen weights."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Regime:
    """Seconds for each collective, step and byte; ``across`` are those between nodes."""

    fixed_s: float
    step_s: float
    step_across_s: float
    s_per_byte: float
    s_per_byte_across: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """One collective: ``error`` is the mean absolute relative error on its own samples.

    ``left_out_error`` is that of groups, between the smallest and the largest, that were left out of the fit; ``None``
    where there is no such group. ``noise`` is that of repeats (`repeat_noise`). Ranges are of the samples;
    ``array_bytes`` as in `array_bytes`.
    """

    algorithm: str
    regimes: tuple[Regime, ...]
    error: float
    left_out_error: float | None
    noise: float
    ranks: tuple[int, int]
    nodes: tuple[int, int]
    array_bytes: tuple[float, float]


class AlphaBeta:
    """Seconds of a collective as the fastest of a few sums of alphas and betas; never decreasing in size.

    Below the smallest size time is constant.

    Attributes
    ----------
    fits_
        By collective. Samples within one node are fitted as a ring or, where there is one, a tree, whichever errs
        less; others as hierarchical.
    """

    features = FEATURES

    fits_: Mapping[str, Fit]

    def fit(self, samples: pd.DataFrame) -> Self:
        """Fit to samples with the features and ``seconds``. Raises `CalibrationError`."""
        check_samples("collectives", samples, positive=("ranks", "nodes", "size_bytes", "seconds"))
        check_varied("collectives", samples, "size_bytes")
        groups = samples.groupby("collective", sort=True)
        self.fits_ = {str(name): _fit(rows) for name, rows in groups}
        return self

    def predict(self, tasks: pd.DataFrame) -> Prediction:
        """NaN seconds for a collective that was not fitted, and across nodes where all samples were within one."""
        check_fitted(self, "fits_")
        seconds, spread = np.full(len(tasks), np.nan), np.zeros(len(tasks))
        in_range = np.zeros(len(tasks), np.bool_)
        for name, fit in self.fits_.items():
            here = ((tasks["collective"] == name) & ((tasks["nodes"] == 1) | (fit.nodes[1] > 1))).to_numpy()
            rows = tasks[here].assign(array_bytes=array_bytes(tasks[here]))
            weights = np.array([list(asdict(regime).values()) for regime in fit.regimes])
            sized = rows.assign(array_bytes=rows["array_bytes"].clip(lower=fit.array_bytes[0]))
            seconds[here] = fastest(_design(name, fit.algorithm, sized), weights)
            spread[here] = spread_of(fit.error if fit.left_out_error is None else fit.left_out_error, fit.noise)
            ranges = {"ranks": fit.ranks, "nodes": fit.nodes, "array_bytes": fit.array_bytes}
            in_range[here] = warn_outside(self, rows, ranges)
        return Prediction(
            seconds=seconds,
            spread=spread,
            origin=np.full(len(tasks), Origin.INTERPOLATED, np.int8),
            in_range=in_range,
        )

    def as_json(self) -> dict[str, Any]:
        check_fitted(self, "fits_")
        return {name: asdict(fit) for name, fit in self.fits_.items()}

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Self:
        model = cls()
        model.fits_ = {
            name: Fit(
                algorithm=entry["algorithm"],
                regimes=tuple(Regime(**regime) for regime in entry["regimes"]),
                error=entry["error"],
                left_out_error=entry["left_out_error"],
                noise=entry["noise"],
                ranks=(entry["ranks"][0], entry["ranks"][1]),
                nodes=(entry["nodes"][0], entry["nodes"][1]),
                array_bytes=(entry["array_bytes"][0], entry["array_bytes"][1]),
            )
            for name, entry in body.items()
        }
        return model


_SAME = ["collective", "ranks", "nodes", "array_bytes"]
"""Samples that agree in these are repeats of each other."""


def _fit(samples: pd.DataFrame) -> Fit:
    """To the median of each group and size."""
    samples = samples.assign(array_bytes=array_bytes(samples))
    rows = samples.groupby(_SAME, sort=True)["seconds"].median().reset_index()
    found = {algorithm: _regimes(rows, algorithm) for algorithm in _algorithms(rows)}
    errors = {algorithm: _error(rows, algorithm, regimes) for algorithm, regimes in found.items()}
    algorithm = min(errors, key=errors.__getitem__)
    return Fit(
        algorithm=algorithm,
        regimes=tuple(Regime(**dict(zip(Regime.__slots__, row, strict=True))) for row in found[algorithm].tolist()),
        error=errors[algorithm],
        left_out_error=_left_out_error(rows, algorithm),
        noise=repeat_noise(samples, _SAME),
        ranks=(int(rows["ranks"].min()), int(rows["ranks"].max())),
        nodes=(int(rows["nodes"].min()), int(rows["nodes"].max())),
        array_bytes=(float(rows["array_bytes"].min()), float(rows["array_bytes"].max())),
    )


def _algorithms(rows: pd.DataFrame) -> tuple[str, ...]:
    if rows["nodes"].max() > 1:
        return ("hierarchical",)
    return ("ring", "tree") if rows["collective"].iloc[0] in _WITH_TREES else ("ring",)


def _regimes(rows: pd.DataFrame, algorithm: str) -> NDArray[np.float64]:
    groups = rows.groupby(["ranks", "nodes"], sort=True)
    place, size = groups.cumcount(), groups["array_bytes"].transform("size")
    used = rows[place % np.ceil(size / _MOST_SIZES).astype(int) == 0]
    design = _design(str(used["collective"].iloc[0]), algorithm, used)
    order = used["array_bytes"].to_numpy(float)
    return fit_regimes(design, used["seconds"].to_numpy(float), order, NUM_REGIMES)


def _error(rows: pd.DataFrame, algorithm: str, regimes: NDArray[np.float64]) -> float:
    guess = fastest(_design(str(rows["collective"].iloc[0]), algorithm, rows), regimes)
    return float(np.mean(np.abs(guess / rows["seconds"].to_numpy(float) - 1)))


def _left_out_error(rows: pd.DataFrame, algorithm: str) -> float | None:
    inner = sorted(rows["ranks"].unique())[1:-1]
    errors = []
    for ranks in inner:
        out = rows["ranks"] == ranks
        errors.append(_error(rows[out], algorithm, _regimes(rows[~out], algorithm)))
    return float(np.mean(errors)) if errors else None


def _design(collective: str, algorithm: str, rows: pd.DataFrame) -> NDArray[np.float64]:
    """Terms of each row in the order of `Regime`: shape (rows, 5)."""
    ranks, nodes, size = (rows[name].to_numpy(float) for name in ("ranks", "nodes", "array_bytes"))
    twice = 2.0 if collective == "all_reduce" else 1.0
    none, one = np.zeros(len(rows)), np.ones(len(rows))
    if algorithm == "hierarchical":
        local = ranks / nodes
        steps, across = twice * (local - 1), twice * (nodes - 1)
        moved = _volume(collective, local) * size
        return np.column_stack([one, steps, across, moved, _volume(collective, nodes) * size / local])
    steps = twice * (np.log2(ranks) if algorithm == "tree" else ranks - 1)
    return np.column_stack([one, steps, none, _volume(collective, ranks) * size, none])


def _volume(collective: str, ranks: NDArray[np.float64]) -> NDArray[np.float64]:
    """Bytes over the busiest link for each byte of the array; none in a group of one."""
    if collective in ("broadcast", "send_receive"):
        return np.where(ranks > 1, 1.0, 0.0)
    return (2.0 if collective == "all_reduce" else 1.0) * (ranks - 1) / ranks
