"""How well are kernel times predicted for shapes, and for GPUs, that no fit has seen?

Measured: float32 kernels of P4, P100, V100 and T4 (sitar-lab/NeuSight), in the folder that ``stepsim data path`` names.
A fifth of the shapes is held out, the same on every GPU (`stepsim.costmodels.kernels.held_out`). Fitted are (a) one
regression for each GPU, and (b) one for the three others. Beside them stands a plain roofline.

The convolution tables drift: each call was slower than the one before (`stepsim.traces.kernel_tables.without_drift`).
The regression learns the kernel without the drift; the drift, known from the training part and the place in the table,
is added back before a prediction is compared with what was measured (``drift known``). ``shape only`` are the errors
of a regression on the times as they stand.
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd

from experiments.experiment import Claim
from stepsim.costmodels.kernels import KernelRegression, held_out, with_device
from stepsim.costmodels.kernels.features import roofline_s
from stepsim.datasets import data_folder
from stepsim.errors import StepsimError
from stepsim.machines import load_machine
from stepsim.traces.kernel_tables import drift_s_per_call, merged, read_neusight, without_drift

MACHINES = ("p4", "p100_pcie_4", "v100_pcie", "t4")
CLASSES = ("linear", "bmm", "conv", "elementwise", "softmax", "layernorm")
MOST_KNOWN = {"linear": 0.08, "bmm": 0.08, "conv": 0.12, "elementwise": 0.1, "softmax": 0.1, "layernorm": 0.1}
MOST_LEFT_OUT = {"linear": 0.25, "bmm": 0.25, "conv": 0.25}
PLAIN = "nothing: a plain roofline"
QUICK_SHAPES = 600
"""Rows of each table in a quick run."""


def run(folder: Path, *, quick: bool) -> list[Claim]:
    """Write ``kernel_accuracy.csv``: errors by op class, GPU and question; claim the mean over the GPUs of each."""
    errors = pd.DataFrame(_errors(quick))
    errors.to_csv(folder / "kernel_accuracy.csv", index=False)
    plain = errors[errors["fitted_on"] == PLAIN].groupby("op_class")["mape"].mean()
    asked = errors[errors["most"].notna()]
    means = asked.groupby(["fitted_on", "op_class"], sort=False)[["mape", "most"]].mean().reset_index()
    claims = []
    for row in means.to_dict("records"):
        # A quick run has too few shapes for the bounds: it has to be better than no fit at all.
        most = float(plain[row["op_class"]]) if quick else row["most"]
        text = f"{row['op_class']}, fitted on {row['fitted_on']}: mean error over GPUs is at most {most:.0%}"
        claims.append(Claim(claim=text, ours=row["mape"], holds=row["mape"] <= most))
    return claims


def _errors(quick: bool) -> Iterator[dict[str, object]]:
    for op_class in CLASSES:
        samples = _samples(op_class)
        if quick:
            samples = samples.groupby("gpu").head(QUICK_SHAPES)
        out = held_out(samples)
        known, asked = samples[~out], samples[out]
        drifts = {gpu: drift_s_per_call(rows) for gpu, rows in known.groupby("gpu")} if op_class == "conv" else {}
        steady = without_drift(known) if drifts else known
        for gpu, rows in asked.groupby("gpu"):
            drift_s = rows["call"].to_numpy(float) * drifts.get(gpu, 0.0)
            own, others = steady[steady["gpu"] == gpu], steady[steady["gpu"] != gpu]
            question = {"op_class": op_class, "gpu": gpu}
            told = "the GPU, drift known" if drifts else "the GPU"
            yield question | _error(told, rows, _fitted(own, rows) + drift_s, MOST_KNOWN[op_class])
            told = "the other GPUs, drift known" if drifts else "the other GPUs"
            yield question | _error(told, rows, _fitted(others, rows) + drift_s, MOST_LEFT_OUT.get(op_class))
            yield question | _error(PLAIN, rows, roofline_s(rows), None)
            if drifts:
                raw = _fitted(known[known["gpu"] == gpu], rows)
                yield question | _error("the GPU, shape only", rows, raw, None)


def _samples(op_class: str) -> pd.DataFrame:
    frames = [read_neusight(path) for path in _tables(op_class)]
    samples = merged(pd.concat(frames, ignore_index=True))
    devices = [load_machine(name).devices[0] for name in MACHINES]
    return pd.concat([with_device(samples[samples["gpu"] == device.model], device) for device in devices])


def _tables(op_class: str) -> list[Path]:
    folder = data_folder() / "neusight/kernels"
    names = {"elementwise": ("add", "mul", "relu", "gelu"), "layernorm": ("ln",)}.get(op_class, (op_class,))
    found = [path for name in names for path in sorted((folder / name).glob("*.csv.gz"))]
    if not found:
        raise StepsimError(f"no measured data at {folder}: set STEPSIM_DATA, or run stepsim data fetch")
    return found


def _fitted(samples: pd.DataFrame, tasks: pd.DataFrame) -> np.ndarray:
    return KernelRegression().fit(samples).predict(tasks).seconds


def _error(fitted_on: str, rows: pd.DataFrame, seconds: np.ndarray, most: float | None) -> dict[str, object]:
    off = np.abs(seconds / rows["seconds"].to_numpy(float) - 1)
    return {
        "fitted_on": fitted_on,
        "shapes": len(rows),
        "mape": float(off.mean()),
        "median": float(np.median(off)),
        "p90": float(np.quantile(off, 0.9)),
        "most": most,
    }
