"""Do kernel models, fitted on one laboratory's tables of a GPU, predict what another measured on that GPU?

Reproduces: DeepBench's training results (baidu-research/DeepBench) of P100, T4 and GTX 1080 Ti in float32: products and
            convolutions, forward and both gradients. DeepBench runs each kernel many times without waiting in between
            and gives the mean, so launches hide; NeuSight's tables, which the models are fitted on, are taken without
            theirs (`without_launch`) and without the drift of the convolutions.
Claim:      forward convolutions: the regression of each GPU is nearer to DeepBench than the data sheet is. Products on
            the T4: so it is. On the P100 it is not: DeepBench's products are faster than NeuSight's linear layers of
            the same size by half, and as fast as NeuSight's batched products, so those linear layers ran slow. A
            regression on a GPU's other shapes of DeepBench is nearer to the shapes held out than rooflines of other
            GPUs are: so the GTX 1080 Ti, of which NeuSight has no table, is known from here.
Needs:      the measured files, STEPSIM_DATA; about 2 minutes, no GPU.
Writes:     deepbench_accuracy.csv and deepbench_predictions.csv in the output folder.
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd

from experiments.calibration_samples import float32_kernels
from experiments.experiment import Claim
from stepsim.costmodels.board_power import comparable_power_w
from stepsim.costmodels.kernels import KernelRegression, held_out, with_device
from stepsim.costmodels.kernels.features import roofline_s
from stepsim.costmodels.power_bound import PowerBoundRooflines
from stepsim.datasets import data_folder
from stepsim.machines import load_machine
from stepsim.traces.deepbench import read_deepbench

TABLES = {
    "p100_pcie_4": "deepbench/DeepBench_NV_P100.xlsx",
    "t4": "deepbench/DeepBench_NV_T4.xlsx",
    "gtx_1080_ti": "deepbench/DeepBench_NV_1080Ti.xlsx",
}
"""By the machine that has the GPU of the table."""

OWN = "the GPU, NeuSight"
BATCHED = "the GPU, NeuSight's batched products"
OTHERS = "other GPUs, NeuSight, rooflines"
HERE = "the GPU, DeepBench's other shapes"
PLAIN = "nothing: a plain roofline"

SLOW = ("Tesla P100-PCIE-16GB", "linear")
"""Where NeuSight's table is slower than DeepBench's."""

QUICK_SHARE = 20
"""Of NeuSight's kernels a quick run takes every so many."""


def run(folder: Path, *, quick: bool) -> list[Claim]:
    data = data_folder()
    neusight = float32_kernels(data)
    neusight = neusight[neusight["op_class"].isin(("linear", "bmm", "conv"))][:: QUICK_SHARE if quick else 1]
    predictions = pd.concat(_predictions(data, neusight), ignore_index=True)
    predictions.to_csv(folder / "deepbench_predictions.csv", index=False, float_format="%.6g")
    errors = _errors(predictions)
    errors.to_csv(folder / "deepbench_accuracy.csv", index=False, float_format="%.6g")
    print(errors.round(3).to_string(index=False))
    return claims(errors)


def deepbench_kernels(data: Path, machine: str) -> pd.DataFrame:
    """DeepBench's kernels of the GPU of ``machine`` (a key of `TABLES`), as they are in a stream that is never empty,
    with its data sheet; ``gpu`` as machine files call it. Raises `FileError`.
    """
    device = load_machine(machine).devices[0]
    samples = read_deepbench(data / TABLES[machine]).assign(gpu=device.model)
    return with_device(samples, device).assign(power_w=comparable_power_w(device))


def _predictions(data: Path, neusight: pd.DataFrame) -> Iterator[pd.DataFrame]:
    for machine in TABLES:
        tasks = deepbench_kernels(data, machine)
        own = neusight["gpu"].isin(tasks["gpu"])
        for op_class, asked in tasks.groupby("op_class", sort=False):
            same = neusight["op_class"] == op_class
            out = held_out(asked)
            if own.any():
                yield _asked(OWN, asked, _regression_s(neusight[own & same], asked))
            if own.any() and op_class == "linear":
                yield _asked(BATCHED, asked, _regression_s(neusight[own & (neusight["op_class"] == "bmm")], asked))
            rooflines = PowerBoundRooflines().fit(neusight[~own & same])
            yield _asked(OTHERS, asked[out], rooflines.predict(asked[out]).seconds)
            yield _asked(PLAIN, asked, roofline_s(asked))
        for _, asked in tasks.groupby(
            ["op_class", tasks["variant"].where(tasks["op_class"] == "conv", "")], sort=False
        ):
            out = held_out(asked)
            yield _asked(HERE, asked[out], _regression_s(asked[~out], asked[out]))


def _regression_s(samples: pd.DataFrame, tasks: pd.DataFrame) -> np.ndarray:
    """Seconds of ``tasks`` from the one class of ``samples``, whatever its name."""
    fitted = KernelRegression().fit(samples.assign(op_class=tasks["op_class"].iloc[0]))
    return np.asarray(fitted.predict(tasks).seconds)


def _asked(fitted_on: str, tasks: pd.DataFrame, seconds: np.ndarray) -> pd.DataFrame:
    shown = tasks[["gpu", "op_class", "variant", "batch", "m", "n", "k", "flop", "size_bytes", "seconds"]]
    return shown.assign(fitted_on=fitted_on, predicted_s=seconds)


def _errors(predictions: pd.DataFrame) -> pd.DataFrame:
    ratio = predictions["predicted_s"] / predictions["seconds"]
    told = predictions.assign(off=(ratio - 1).abs(), ratio=ratio)
    groups = told.groupby(["op_class", "variant", "gpu", "fitted_on"], sort=False)
    errors = groups["off"].agg(kernels="size", mape="mean", median="median").assign(p90=groups["off"].quantile(0.9))
    return errors.assign(median_ratio=groups["ratio"].median()).reset_index()


def claims(errors: pd.DataFrame) -> list[Claim]:
    """Of products, and of forward convolutions. Where one error must be below another, that is the ``paper``."""
    asked = errors[(errors["op_class"] == "linear") | (errors["variant"] == "forward")]
    found = []
    for (gpu, op_class), rows in asked.groupby(["gpu", "op_class"], sort=False):
        error, ratio = _means(rows, "mape"), _means(rows, "median_ratio")
        where = f"{gpu}, {op_class}"
        found.append(_below(where, error, HERE, OTHERS))
        if (gpu, op_class) == SLOW:
            found.append(_near(where, ratio[OWN], OWN, 1.3, 2.0))
            found.append(_near(where, ratio[BATCHED], BATCHED, 0.8, 1.2))
        elif OWN in error:
            found.append(_below(where, error, OWN, PLAIN))
    return found


def _means(rows: pd.DataFrame, column: str) -> dict[str, float]:
    """Over the variants, by what was fitted on."""
    parts = rows.groupby("fitted_on")
    return {str(name): float(np.average(part[column], weights=part["kernels"])) for name, part in parts}


def _below(where: str, error: dict[str, float], better: str, worse: str) -> Claim:
    text = f"{where}: mean error, fitted on {better}, below that of {worse} (as paper)"
    return Claim(claim=text, ours=error[better], holds=error[better] < error[worse], paper=error[worse])


def _near(where: str, ratio: float, fitted_on: str, least: float, most: float) -> Claim:
    text = f"{where}: median of predicted over measured, fitted on {fitted_on}, between {least} and {most}"
    return Claim(claim=text, ours=ratio, holds=least < ratio < most)
