"""How far off what ships is, for what the fit did not see: the errors that a calibration tells of itself."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from stepsim.costmodels.power_bound import LONG_S, PowerBoundRooflines

PAGEABLE, TAKEN_EQUAL = "pageable to device", "device to pageable"
"""Nobody's trace holds large copies of the latter way. Either way the driver copies through a pinned buffer of its own
(CUDA C++ best practices guide, pinned memory)."""


def regression_errors(prefix: str, entry: Mapping[str, Any]) -> dict[str, float]:
    """Mean absolute relative error by op class for a fifth of the shapes, left out, however short their kernels."""
    return {f"{prefix} {name}, left out": fit["left_out_error"] for name, fit in entry["regression"].items()}


def own_errors(prefix: str, samples: pd.DataFrame) -> dict[str, float]:
    """Mean absolute relative error of one kernel in five, left out, by op class; of kernels above `LONG_S`."""
    fits = [PowerBoundRooflines().fit(part).rooflines_ for part in parts(samples)]
    return {f"{prefix} {name}, left out": fit.left_out_error_ for found in fits for name, fit in found.items()}


def left_out_errors(samples: pd.DataFrame) -> dict[str, float]:
    """By op class, of the kernels of each GPU where the fit never saw that GPU; the mean over the GPUs."""
    errors: dict[str, list[float]] = {}
    for part in parts(samples):
        for gpu in part["gpu"].unique():
            out = part[(part["gpu"] == gpu) & (part["seconds"] > LONG_S)]
            said = PowerBoundRooflines().fit(part[part["gpu"] != gpu]).predict(out)
            relative = pd.Series(np.abs(said.seconds / out["seconds"].to_numpy() - 1))
            for name, error in relative.groupby(out["op_class"].to_numpy()).mean().items():
                errors.setdefault(f"float32 {name}, GPU left out", []).append(float(error))
    return {name: float(np.mean(found)) for name, found in errors.items()}


def parts(samples: pd.DataFrame) -> list[pd.DataFrame]:
    """Convolutions apart: Winograd kernels compute less than their FLOP say, so that those tell nothing of power."""
    is_conv = samples["op_class"] == "conv"
    return [part for part in (samples[~is_conv], samples[is_conv]) if len(part)]


def link_errors(copies: Mapping[str, Any] | None, collectives: Mapping[str, Any] | None) -> dict[str, float]:
    """Those of copies by way, and of collectives for sizes and for groups left out, as far as there are any."""
    curves = {} if copies is None else copies["curves"]
    found = {
        f"copies {way}, sizes left out": curve["size_error"] for way, curve in curves.items() if way != TAKEN_EQUAL
    }
    if collectives is not None:
        found["collectives, sizes left out"] = collectives["table"]["size_error"]
        found["collectives, groups left out"] = collectives["table"]["group_error"]
    return {name: error for name, error in found.items() if error is not None}
