"""The public kernel tables that calibrations are fitted to, each row with the data sheet of its GPU."""

from pathlib import Path

import pandas as pd

from experiments.shipped_gpus import A40_LAYERS, NEUSIGHT, PRODUCTS, Gpu, device_of
from stepsim.costmodels.board_power import comparable_power_w
from stepsim.costmodels.kernels import with_device
from stepsim.costmodels.launch_floor import without_launch
from stepsim.errors import FileError
from stepsim.traces.deepbench import read_deepbench
from stepsim.traces.kernel_tables import merged, read_gemm_table, read_neusight, read_vidur_mlp, without_drift


def float32_kernels(data: Path) -> pd.DataFrame:
    """NeuSight's kernels with the data sheets of their GPUs, as in a stream that is never empty."""
    paths = sorted((data / "neusight/kernels").glob("*/*.csv.gz"))
    if not paths:
        raise FileError(data, "neusight/kernels", None, "must hold the kernel tables of NeuSight: set STEPSIM_DATA")
    tables = pd.concat([read_neusight(path) for path in paths], ignore_index=True)
    is_conv = tables["op_class"] == "conv"
    steady = pd.concat([tables[~is_conv], without_drift(tables[is_conv])])
    samples = without_launch(merged(steady))
    return pd.concat([_with_gpu(rows, NEUSIGHT[str(gpu)]) for gpu, rows in samples.groupby("gpu")])


def products_16_bit(data: Path) -> dict[str, pd.DataFrame]:
    """By the file of the table."""
    found = {file: _with_gpu(read_gemm_table(data / file), machine) for machine, file in PRODUCTS.items()}
    return {**found, A40_LAYERS: _with_gpu(read_vidur_mlp(data / A40_LAYERS, "NVIDIA A40"), "a40")}


def deepbench_kernels(data: Path, gpu: Gpu) -> pd.DataFrame:
    """DeepBench queues its kernels behind each other, so that no launch is in their times."""
    return _with_gpu(read_deepbench(data / gpu.deepbench).assign(gpu=gpu.models[0]), gpu.machine)


def _with_gpu(samples: pd.DataFrame, machine: str) -> pd.DataFrame:
    gpu = device_of(machine)
    return with_device(samples, gpu).assign(power_w=comparable_power_w(gpu))
