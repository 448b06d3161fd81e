"""Public tables of single kernels, each measured over many shapes, as one frame of samples for cost models.

Read by `read_neusight` (one op class on one GPU, float32), `read_gemm_table` (aiconfigurator, one GPU),
`read_vidur_mlp` (the layers of a transformer block) and `stepsim.traces.deepbench`. Columns of every frame:

===================  =============================================================================================
gpu, dtype           as the table calls the GPU; ``float32``, ``float16``, ``bfloat16``
op_class             ``linear``, ``bmm``, ``conv``, ``elementwise``, ``softmax``, ``layernorm``
batch                matrices of a batched product, images of a convolution, else 1
m, n, k              output rows, output columns and inner length of the product; a convolution is the product of
                     the pixels of an output image, output channels, and input channels x kernel area; else rows,
                     length of a row, 1
kernel_area, stride  of a convolution, else 1
flop                 floating-point operations
size_bytes           read and written, each operand once
call                 row in its table, from 0, in the order in which the rows were measured
seconds              measured
kernels              names of the kernels that ran where the table tells, each after a ``;``, the longest kernel last
                     after a ``!``: outcomes, no inputs of a prediction
===================  =============================================================================================
"""

from pathlib import Path

import numpy as np
import pandas as pd

from stepsim.errors import CalibrationError, FileError
from stepsim.traces.csv_tables import need_columns, read_table

SHAPE = ("batch", "m", "n", "k", "kernel_area", "stride")
COLUMNS = ("gpu", "dtype", "op_class", *SHAPE, "flop", "size_bytes", "call", "seconds", "kernels")

DTYPE_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2}

PRODUCTS = ("linear", "bmm")

FEWEST_FOR_DRIFT = 200
"""Of fewer samples one in a hundred is none."""

MOST_DRIFT = 0.7
"""Share of the time above which the drift leaves too little of a sample to learn from."""

_OPS = {
    "linear": ("linear", 0, 0),
    "bmm": ("bmm", 0, 0),
    "conv": ("conv", 0, 0),
    "add": ("elementwise", 3, 1),
    "mul": ("elementwise", 3, 1),
    "relu": ("elementwise", 2, 1),
    "gelu": ("elementwise", 2, 8),
    "softmax": ("softmax", 2, 5),
    "ln": ("layernorm", 2, 8),
}
"""By the name in a table: op class; arrays of the output's shape that it reads and writes; FLOP for each element.

FLOP are counted by hand from the formulas, a transcendental function as one; these ops are bound by their bytes.
"""


def read_neusight(path: Path) -> pd.DataFrame:
    """One table of ``scripts/asplos/data/dataset/train`` of sitar-lab/NeuSight: latency in milliseconds by shape.

    Raises `FileError` for a missing column, an unknown op, or a latency that is no positive number.
    """
    table = read_table(path, ("OPName", "Latency", "Device", "Kernel Name", "B"))
    op = _only(path, table, "OPName")
    if op not in _OPS:
        raise FileError(path, "OPName", op, f"must be one of {', '.join(_OPS)}")
    op_class, operands, flop_per_element = _OPS[op]
    if op_class == "conv":
        shape = _convolution(path, table)
    elif op_class in PRODUCTS:
        # NeuSight writes a product as (B, M, N) x (B, N, K): N is the inner length.
        need_columns(path, table, ("M", "N", "K"))
        shape = _shape(table, batch=table["B"], m=table["M"], n=table["K"], k=table["N"])
    else:
        need_columns(path, table, ("H",))
        shape = _shape(table, m=table["B"], n=table["H"])
    kernels = table["Kernels"].astype(str) if "Kernels" in table else ""
    shape = shape.assign(gpu=table["Device"], dtype="float32", op_class=op_class)
    shape = shape.assign(kernels=kernels + "!" + table["Kernel Name"].astype(str))
    return finished_samples(path, shape, table["Latency"] * 1e-3, operands, flop_per_element)


def read_gemm_table(path: Path) -> pd.DataFrame:
    """A table of matrix products from ai-dynamo/aiconfigurator: ``m, n, k``, latency in milliseconds.

    Raises `FileError` for a missing column, an unknown dtype, or a latency that is no positive number.
    """
    table = read_table(path, ("device", "gemm_dtype", "m", "n", "k", "latency"))
    for dtype in sorted(set(table["gemm_dtype"].astype(str)) - set(DTYPE_BYTES)):
        raise FileError(path, "gemm_dtype", dtype, f"must be one of {', '.join(DTYPE_BYTES)}")
    shape = _shape(table, m=table["m"], n=table["n"], k=table["k"])
    shape = shape.assign(gpu=table["device"], dtype=table["gemm_dtype"], op_class="linear", kernels="")
    return finished_samples(path, shape, table["latency"] * 1e-3)


def read_vidur_mlp(path: Path, gpu: str) -> pd.DataFrame:
    """The products of ``mlp.csv`` of microsoft/vidur, float16: median milliseconds by tokens and tensor parallelism.

    Each device has 1 / ``num_tensor_parallel_workers`` of the heads and of the hidden MLP columns (Megatron-LM).
    Raises `FileError` for a missing column, or a time that is no positive number.
    """
    sizes = ("n_head", "n_kv_head", "n_embd", "n_expanded_embd", "num_tensor_parallel_workers", "num_tokens")
    names = ("attn_pre_proj", "attn_post_proj", "mlp_up_proj", "mlp_down_proj")
    times = {name: f"time_stats.{name}.median" for name in names}
    table = read_table(path, (*sizes, "use_gated_mlp", *times.values()))
    width, share = table["n_embd"], table["num_tensor_parallel_workers"]
    heads = (table["n_head"] + 2 * table["n_kv_head"]) // share
    hidden = table["n_expanded_embd"] // share
    up_columns = hidden * np.where(table["use_gated_mlp"].astype(bool), 2, 1)
    columns = (heads * (width // table["n_head"]), width, up_columns, width)
    inner = (width, width // share, width, hidden)
    frames = []
    for name, n, k in zip(names, columns, inner, strict=True):
        shape = _shape(table, m=table["num_tokens"], n=n, k=k)
        shape = shape.assign(gpu=gpu, dtype="float16", op_class="linear", kernels="")
        frames.append(finished_samples(path, shape, table[times[name]] * 1e-3))
    return pd.concat(frames, ignore_index=True)


def merged(samples: pd.DataFrame) -> pd.DataFrame:
    """One row for each distinct gpu, dtype, op class, shape, FLOP and bytes, with the median of its seconds."""
    key = ["gpu", "dtype", "op_class", *SHAPE, "flop", "size_bytes"]
    rest = {"call": "first", "seconds": "median", "kernels": "first"}
    return samples.groupby(key, sort=True, as_index=False).agg(rest)[list(COLUMNS)]


def drift_s_per_call(samples: pd.DataFrame) -> float:
    """By how much each call of one table was slower than the call before it, whatever it computed.

    The convolutions of NeuSight were timed in one process whose host took ever longer for each call: the fastest of any
    hundred rows takes 0.1 ms at the begin of a table and 0.3 to 0.8 ms at its end, on every GPU, while the shapes stand
    in no such order. So the line from the least time of all, above which 99 of 100 samples of the later half lie, is
    that drift. Raises `CalibrationError` for fewer samples than `FEWEST_FOR_DRIFT`.
    """
    if len(samples) < FEWEST_FOR_DRIFT:
        raise CalibrationError(f"a drift needs at least {FEWEST_FOR_DRIFT} samples, got {len(samples)}")
    later = samples[samples["call"] > samples["call"].median()]
    slopes = (later["seconds"] - samples["seconds"].min()) / later["call"]
    return float(slopes.quantile(0.01))


def without_drift(samples: pd.DataFrame) -> pd.DataFrame:
    """``samples`` of the convolution tables of several GPUs without their drift, which column ``drift_s`` then has.

    Samples of which the drift is more than `MOST_DRIFT` are left out: they tell of the host more than of the kernel.
    """
    per_call = {gpu: drift_s_per_call(rows) for gpu, rows in samples.groupby("gpu")}
    drift_s = samples["call"] * samples["gpu"].map(per_call)
    steady = samples.assign(seconds=samples["seconds"] - drift_s, drift_s=drift_s)
    return steady[drift_s <= MOST_DRIFT * samples["seconds"]]


def _only(path: Path, table: pd.DataFrame, column: str) -> str:
    values = sorted(set(table[column].astype(str)))
    if len(values) > 1:
        raise FileError(path, column, ", ".join(values), "must be one value")
    return values[0]


def _shape(table: pd.DataFrame, **given: pd.Series) -> pd.DataFrame:
    return pd.DataFrame({name: given.get(name, 1) for name in SHAPE}, index=table.index)


def _convolution(path: Path, table: pd.DataFrame) -> pd.DataFrame:
    need_columns(path, table, ("Input_Channel", "Output_Channel", "Kernel_Szie", "Input_Size", "Stride", "Padding"))
    kernel, stride = table["Kernel_Szie"], table["Stride"]
    side = (table["Input_Size"] + 2 * table["Padding"] - kernel) // stride + 1
    area = kernel**2
    inner = table["Input_Channel"] * area
    shape = _shape(table, batch=table["B"], m=side**2, n=table["Output_Channel"], k=inner)
    return shape.assign(kernel_area=area, stride=stride, input_pixels=table["Input_Size"] ** 2)


def finished_samples(
    path: Path, shape: pd.DataFrame, seconds: pd.Series, operands: int = 0, flop_per_element: int = 0
) -> pd.DataFrame:
    """`COLUMNS` of kernels that took ``seconds``: FLOP and bytes from ``shape``, which has the other columns.

    ``shape`` of convolutions also has ``input_pixels``. Ops that are no product say how many arrays of the output's
    shape they read and write, and their FLOP for each element. Raises `FileError` for a number that is not positive.
    """
    samples = shape.assign(seconds=seconds.to_numpy(float))
    for column in (*SHAPE, "seconds"):
        values = pd.to_numeric(samples[column], errors="coerce").to_numpy(float)
        for place in np.flatnonzero(~(np.isfinite(values) & (values > 0))):
            raise FileError(path, f"row {place}, {column}", samples[column].iloc[place], "must be > 0")
    output = samples["batch"].astype(float) * samples["m"] * samples["n"]
    elements = output * operands if operands else _product_elements(samples)
    flop = output * (flop_per_element or 2 * samples["k"])
    size_bytes = elements * samples["dtype"].map(DTYPE_BYTES)
    return samples.assign(flop=flop, size_bytes=size_bytes, call=np.arange(len(samples)))[list(COLUMNS)]


def _product_elements(samples: pd.DataFrame) -> pd.Series:
    """Elements of both operands and of the result; all images of a convolution share the filter."""
    batch, m, n, k = (samples[name].astype(float) for name in ("batch", "m", "n", "k"))
    if "input_pixels" not in samples:
        return batch * (m * k + n * k + m * n)
    return batch * (k / samples["kernel_area"] * samples["input_pixels"] + m * n) + n * k
