"""Demands: which shares of the SMs and of the memory bandwidth of a GPU a kernel or collective needs.

A kernel of B blocks can use at most B of the SMs, whatever fits on each (CUDA C++ Programming Guide, hardware
implementation: a block runs on one multiprocessor). A block computes one tile of the output; how large the tiles of an
op class are is learnt from recorded grids, so that at prediction shapes are enough.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from itertools import product
from typing import Any, Self

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from stepsim.costmodels.model import check_fitted, check_samples

Shares = NDArray[np.float64]

CHANNEL_SMS = 1
"""SMs that a channel of NCCL takes: it launches one block a channel (NCCL 2 documentation, ``NCCL_MAX_NCHANNELS``)."""

_ROWS = tuple(2**k for k in range(9))
_COLUMNS = tuple(2**k for k in range(11))
"""Sizes of tiles that are tried; 1024 is the most threads of a block, and 256 the longest side in a name of cuBLAS."""

_JOINED = ("linear", "conv")
"""Classes whose rows lie below each other whatever matrix or image they belong to: a tile may hold rows of several."""

_LEFT_OUT = 5
"""Every so many shapes, in order of their blocks, one is left out, for the error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tile:
    """Rows and columns of the output that one block computes; ``columns`` of None are whole rows.

    ``error`` is the mean absolute error of the share for shapes left out of the fit, ``free_error`` that of those which
    left SMs free; ``None`` for fewer than 5 samples, and where none of those left out did.
    """

    rows: int
    columns: int | None
    error: float | None = None
    free_error: float | None = None


class DemandModel:
    """Share of the SMs that a kernel can use: the tiles of its output over the SMs, at most 1.

    The output of an elementwise op is one long row.

    Attributes
    ----------
    tiles_
        By op class, the tile whose shares are nearest to those of the recorded grids in the mean, with its errors.
    """

    features = ("op_class", "batch", "m", "n", "num_sms")

    tiles_: Mapping[str, Tile]

    def fit(self, samples: pd.DataFrame) -> Self:
        """Fit to recorded grids: the features, and ``blocks``. Raises `CalibrationError`."""
        check_samples("demands of kernels", samples, positive=(*self.features[1:], "blocks"))
        groups = samples.groupby("op_class", sort=True)
        self.tiles_ = {str(name): _tile(str(name), rows) for name, rows in groups}
        return self

    def sm_share(self, tasks: pd.DataFrame) -> Shares:
        """For each task, 0 to 1; 1, all SMs, for a class that no grid was recorded of. Shape (tasks,)."""
        check_fitted(self, "tiles_")
        share = np.ones(len(tasks))
        for name, tile in self.tiles_.items():
            here = (tasks["op_class"] == name).to_numpy()
            share[here] = _share(name, tasks[here], tile)
        return share

    def as_json(self) -> dict[str, Any]:
        """By op class; columns of null are whole rows."""
        check_fitted(self, "tiles_")
        return {name: asdict(tile) for name, tile in self.tiles_.items()}

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Self:
        model = cls()
        model.tiles_ = {name: Tile(**entry) for name, entry in body.items()}
        return model


def bandwidth_share(size_bytes: ArrayLike, seconds: ArrayLike, bandwidth_bytes_per_s: ArrayLike) -> Shares:
    """Share of the memory bandwidth that moving ``size_bytes`` in ``seconds`` takes; at most 1, 0 in no time."""
    moved, needed = np.broadcast_arrays(
        np.asarray(size_bytes, dtype=np.float64), np.multiply(seconds, bandwidth_bytes_per_s)
    )
    share = np.divide(moved, needed, out=np.zeros(needed.shape), where=needed > 0)
    return np.asarray(np.minimum(share, 1.0), dtype=np.float64)


def collective_sm_share(channels: int, num_sms: int) -> float:
    """Share of the SMs that a collective of NCCL on ``channels`` holds while it runs."""
    return min(1.0, CHANNEL_SMS * channels / num_sms)


def slowdown(sm_share: ArrayLike, taken: ArrayLike) -> Shares:
    """Time of a kernel beside what takes the share ``taken`` of the SMs, over its time alone.

    As `stepsim.simulator` has it: what a kernel needs beyond the rest slows it in proportion. Infinite where nothing is
    left.
    """
    left = np.maximum(1.0 - np.asarray(taken, dtype=np.float64), 0.0)
    needed = np.asarray(sm_share, dtype=np.float64)
    alone: Shares = np.full(np.broadcast(needed, left).shape, np.inf)
    np.divide(needed, left, out=alone, where=left > 0)
    return np.maximum(alone, 1.0, out=alone)


def taken_share(alone_s: ArrayLike, beside_s: ArrayLike) -> float:
    """Share of the SMs that must be gone for kernels that need all to slow as these did, in total; at least 0."""
    return max(0.0, 1.0 - float(np.sum(alone_s)) / float(np.sum(beside_s)))


def _tile(op_class: str, rows: pd.DataFrame) -> Tile:
    """With errors of every fifth shape, by the tile that the others tell."""
    best = _best(op_class, rows)
    if len(rows) < _LEFT_OUT:
        return best
    ordered = rows.sort_values(["blocks", "batch", "m", "n", "num_sms"])
    out = np.arange(len(ordered)) % _LEFT_OUT == _LEFT_OUT // 2
    left, recorded = ordered[out], _recorded(ordered[out])
    errors = np.abs(_share(op_class, left, _best(op_class, ordered[~out])) - recorded)
    free = errors[recorded < 1]
    free_error = float(free.mean()) if len(free) else None
    return Tile(rows=best.rows, columns=best.columns, error=float(errors.mean()), free_error=free_error)


def _best(op_class: str, rows: pd.DataFrame) -> Tile:
    """The first, from the smallest, where several do equally well."""
    tiles = [Tile(rows=height, columns=width) for height, width in product(_ROWS, (*_COLUMNS, None))]
    recorded = _recorded(rows)
    errors = [float(np.mean(np.abs(_share(op_class, rows, tile) - recorded))) for tile in tiles]
    return tiles[int(np.argmin(errors))]


def _recorded(rows: pd.DataFrame) -> Shares:
    share: Shares = np.minimum(rows["blocks"].to_numpy(float) / rows["num_sms"].to_numpy(float), 1.0)
    return share


def _share(op_class: str, rows: pd.DataFrame, tile: Tile) -> Shares:
    batch, m, n, sms = (rows[name].to_numpy(float) for name in DemandModel.features[1:])
    if op_class == "elementwise":
        batch, m, n = np.ones(len(rows)), np.ones(len(rows)), batch * m * n
    elif op_class in _JOINED:
        batch, m = np.ones(len(rows)), batch * m
    across = np.ones(len(rows)) if tile.columns is None else np.ceil(n / tile.columns)
    share: Shares = np.minimum(batch * np.ceil(m / tile.rows) * across / sms, 1.0)
    return share
