"""Features of a kernel: everything that a shape and a data sheet tell before it runs.

The roofline (Williams et al., CACM 2009) gives the scale. Around it: how well tiles of the output fill it (tile
quantisation) and how well those tiles fill the SMs (wave quantisation; NVIDIA, "Matrix multiplication background user
guide").
"""

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from stepsim.costmodels.kernels.generation import generation
from stepsim.errors import CalibrationError
from stepsim.machines import Device

Floats = NDArray[np.float64]

DEVICE = ("peak_flop_per_s", "memory_bandwidth_bytes_per_s", "num_sms", "l2_bytes", "power_w")
"""Columns with fields of a data sheet, the peak in the dtype of the task."""

WORK = ("flop", "size_bytes")

TILES = ((128, 128), (128, 64), (64, 128), (64, 64), (128, 32), (32, 128), (32, 32))
"""Rows and columns of the output that one block computes, in the names of the kernels of cuBLAS and cuDNN."""

LAUNCH_S = 5e-6
"""Scale below which the roofline says nothing: about the time that an empty kernel takes. Only a feature's origin."""


def with_device(samples: pd.DataFrame, device: Device) -> pd.DataFrame:
    """``samples`` with the columns `DEVICE` of ``device`` and its ``generation``.

    Raises `CalibrationError` for a dtype without a peak.
    """
    for dtype in sorted(set(samples["dtype"]) - set(device.peak_flop_per_s)):
        raise CalibrationError(f"device {device.name!r} has no peak_flop_per_s for {dtype!r}")
    sheet = {name: float(getattr(device, name)) for name in DEVICE[1:]}
    peak = samples["dtype"].map(dict(device.peak_flop_per_s))
    return samples.assign(peak_flop_per_s=peak, **sheet, generation=generation(device))


def roofline_s(tasks: pd.DataFrame, flop_per_joule: float = np.inf) -> Floats:
    """Seconds that the rates of the data sheet need, under the power of the board. Shape (tasks,).

    ``flop_per_joule`` is what kernels get out of a joule at best: a small board cannot feed its peak for long.
    """
    rate = np.minimum(column(tasks, "peak_flop_per_s"), flop_per_joule * column(tasks, "power_w"))
    computing_s = column(tasks, "flop") / rate
    return np.maximum(computing_s, column(tasks, "size_bytes") / column(tasks, "memory_bandwidth_bytes_per_s"))


def kernel_features(tasks: pd.DataFrame) -> Floats:
    """All features; shape (tasks, features)."""
    return np.column_stack([*_sizes(tasks), *_tilings(tasks), *_alignments(tasks)])


def portable_features(tasks: pd.DataFrame, flop_per_joule: float) -> Floats:
    """Features that mean the same on every GPU, ``flop_per_joule`` as in `roofline_s`; shape (tasks, features)."""
    batch, m, n, k = (np.log2(column(tasks, name)) for name in ("batch", "m", "n", "k"))
    shape = [batch, m, n, k, batch + m, batch + n, m + n, batch + m + n, m + k, n + k, m - n]
    moving = np.log2(column(tasks, "size_bytes") / column(tasks, "memory_bandwidth_bytes_per_s"))
    computing = np.log2(column(tasks, "flop") / column(tasks, "peak_flop_per_s"))
    feeding = np.log2(column(tasks, "flop") / column(tasks, "power_w"))
    scale = np.log2(LAUNCH_S + roofline_s(tasks, flop_per_joule))
    against = [computing - moving, feeding - moving, scale]
    return np.column_stack([*shape, *against, *_tilings(tasks), *_alignments(tasks)])


def column(tasks: pd.DataFrame, name: str) -> Floats:
    return tasks[name].to_numpy(dtype=np.float64)


def _sizes(tasks: pd.DataFrame) -> list[Floats]:
    batch, m, n, k = (np.log2(column(tasks, name)) for name in ("batch", "m", "n", "k"))
    flop, size_bytes = (np.log2(column(tasks, name)) for name in WORK)
    moving = size_bytes - np.log2(column(tasks, "memory_bandwidth_bytes_per_s"))
    computing = flop - np.log2(column(tasks, "peak_flop_per_s"))
    scale = np.log2(LAUNCH_S + roofline_s(tasks))
    shape = [batch, m, n, k, batch + m, batch + n, m + n, batch + m + n, m + k, n + k, m - n]
    return [*shape, scale, flop, size_bytes, computing - moving, size_bytes - np.log2(column(tasks, "l2_bytes"))]


def _tilings(tasks: pd.DataFrame) -> list[Floats]:
    """For each tile: the share of its area that is output, the share of the last wave, and waves."""
    batch, m, n = (column(tasks, name) for name in ("batch", "m", "n"))
    joined = column(tasks, "kernel_area") > 1
    rows, sheets = np.where(joined, batch * m, m), np.where(joined, 1.0, batch)
    features: list[Floats] = []
    for tile_m, tile_n in TILES:
        tiles = np.ceil(rows / tile_m) * np.ceil(n / tile_n)
        waves = tiles * sheets / column(tasks, "num_sms")
        features += [rows * n / (tiles * tile_m * tile_n), waves / np.ceil(waves), np.log2(waves)]
    return features


def _alignments(tasks: pd.DataFrame) -> list[Floats]:
    """Wide loads need inner lengths that are multiples; Winograd kernels cut the image into tiles of 2 or 4 pixels."""
    side = np.sqrt(column(tasks, "m"))
    powers = [np.log2(np.gcd(tasks[name].to_numpy(np.int64), 64)).astype(np.float64) for name in ("m", "n", "k")]
    remainders = [column(tasks, name) % step / step for name, step in (("m", 64), ("n", 128), ("n", 32), ("k", 16))]
    winograd = [(np.ceil(side / tile) * tile / side) ** 2 for tile in (2, 4, 8)]
    return [*powers, *remainders, *winograd]
