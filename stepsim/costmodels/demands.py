"""Demands: which shares of the SMs and of the memory bandwidth of a GPU a kernel, copy or collective needs.

A kernel of B blocks can use at most B of the SMs, whatever fits on each (CUDA C++ Programming Guide, hardware
implementation: a block runs on one multiprocessor). How many blocks an op launches is learnt from recorded grids; at
prediction shapes are enough.
"""

from collections.abc import Mapping
from typing import Self

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from stepsim.costmodels.model import check_fitted, check_samples

Shares = NDArray[np.float64]

CHANNEL_SMS = 1
"""SMs that a channel of NCCL takes: it launches one block a channel (NCCL 2 documentation, ``NCCL_MAX_NCHANNELS``)."""


class DemandModel:
    """Share of the SMs that a kernel can use: its blocks, one for so many output elements of its op class, over SMs.

    Attributes
    ----------
    elements_per_block_
        By op class, the median in the recorded grids.
    left_out_error_
        By op class, the mean absolute error of the share for shapes left out (every fifth), on the recorded GPUs.
        ``None`` for a class of fewer than 5 samples.
    """

    features = ("op_class", "output_elements", "num_sms")

    elements_per_block_: Mapping[str, float]
    left_out_error_: Mapping[str, float | None]

    def fit(self, samples: pd.DataFrame) -> Self:
        """Fit to recorded grids: the features, and ``blocks``. Raises `CalibrationError`."""
        check_samples("demands of kernels", samples, positive=("output_elements", "num_sms", "blocks"))
        groups = {str(name): rows for name, rows in samples.groupby("op_class", sort=True)}
        self.elements_per_block_ = {name: _elements_per_block(rows) for name, rows in groups.items()}
        self.left_out_error_ = {name: _left_out_error(rows) for name, rows in groups.items()}
        return self

    def sm_share(self, tasks: pd.DataFrame) -> Shares:
        """For each task, 0 to 1; 1, all SMs, for a class that no grid was recorded of. Shape (tasks,)."""
        check_fitted(self, "elements_per_block_")
        per_block = tasks["op_class"].map(self.elements_per_block_).fillna(0.0).to_numpy(float)
        return _share(tasks, per_block)


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

    As `stepsim.simulator` has it: what a kernel needs beyond the rest slows it in proportion. A bound from above for
    kernels that are not bound by their SMs. Infinite where nothing is left.
    """
    left = np.maximum(1.0 - np.asarray(taken, dtype=np.float64), 0.0)
    needed = np.asarray(sm_share, dtype=np.float64)
    alone: Shares = np.full(np.broadcast(needed, left).shape, np.inf)
    np.divide(needed, left, out=alone, where=left > 0)
    return np.maximum(alone, 1.0, out=alone)


def _elements_per_block(rows: pd.DataFrame) -> float:
    return float((rows["output_elements"] / rows["blocks"]).median())


def _share(rows: pd.DataFrame, elements_per_block: ArrayLike) -> Shares:
    elements, sms = (rows[name].to_numpy(float) for name in ("output_elements", "num_sms"))
    per_block = np.broadcast_to(np.asarray(elements_per_block, dtype=np.float64), elements.shape)
    blocks = np.divide(elements, per_block, out=np.full(elements.shape, np.inf), where=per_block > 0)
    share: Shares = np.minimum(np.ceil(blocks) / sms, 1.0)
    return share


def _left_out_error(rows: pd.DataFrame) -> float | None:
    """Every fifth in order of size is left out."""
    if len(rows) < 5:
        return None
    ordered = rows.sort_values(["output_elements", "blocks", "num_sms"])
    out = np.arange(len(ordered)) % 5 == 2
    guessed = _share(ordered[out], _elements_per_block(ordered[~out]))
    recorded = np.minimum(ordered["blocks"][out] / ordered["num_sms"][out], 1.0).to_numpy(float)
    return float(np.mean(np.abs(guessed - recorded)))
