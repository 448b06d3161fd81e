import numpy as np
import pandas as pd
import pytest

from stepsim.errors import CalibrationError, FileError
from stepsim.traces.kernel_tables import (
    COLUMNS,
    SHAPE,
    drift_s_per_call,
    merged,
    read_gemm_table,
    read_neusight,
    read_vidur_mlp,
    without_drift,
)


def neusight(op, **columns):
    given = {"OPName": op, "Latency": 2.0, "Device": "Tesla P4", "Kernel Name": "a", "Kernels": ";a", **columns}
    rows = max(np.size(value) for value in given.values())
    return pd.DataFrame(given, index=range(rows))


def convolution(**columns):
    size = {"B": 2, "Input_Channel": 3, "Output_Channel": 5, "Kernel_Szie": 3, "Input_Size": 8}
    return neusight("conv", **{**size, "Stride": 2, "Padding": 1, **columns})


def written(tmp_path, table):
    path = tmp_path / "table.csv"
    table.to_csv(path, index=False)
    return path


def test_the_inner_length_of_a_neusight_product_is_the_column_n(tmp_path):
    """7 matrices of 2 x 3 times 3 x 5: 2 * 7 * 2 * 3 * 5 FLOP, 7 * (6 + 15 + 10) numbers of 4 bytes."""
    row = read_neusight(written(tmp_path, neusight("bmm", B=7, M=2, N=3, K=5))).iloc[0]

    assert row[list(SHAPE)].tolist() == [7, 2, 5, 3, 1, 1]
    assert (row["flop"], row["size_bytes"], row["seconds"]) == (420, 868, 0.002)
    assert (row["gpu"], row["op_class"], row["kernels"]) == ("Tesla P4", "bmm", ";a!a")


def test_a_convolution_is_the_product_of_its_pixels(tmp_path):
    """8 x 8 pixels, 3 x 3 kernel, stride 2, padding 1: 4 x 4 pixels out, each a sum of 27 products."""
    row = read_neusight(written(tmp_path, convolution())).iloc[0]

    assert row[list(SHAPE)].tolist() == [2, 16, 5, 27, 9, 2]
    assert row["flop"] == 2 * (2 * 16 * 5) * 27
    assert row["size_bytes"] == 4 * (2 * 3 * 64 + 5 * 27 + 2 * 16 * 5)


@pytest.mark.parametrize(
    ("op", "op_class", "arrays"),
    [("add", "elementwise", 3), ("relu", "elementwise", 2), ("softmax", "softmax", 2), ("ln", "layernorm", 2)],
)
def test_ops_of_rows_move_so_many_arrays(tmp_path, op, op_class, arrays):
    row = read_neusight(written(tmp_path, neusight(op, B=4, H=6))).iloc[0]

    assert (row["op_class"], row["m"], row["n"], row["k"]) == (op_class, 4, 6, 1)
    assert row["size_bytes"] == arrays * 24 * 4


def test_a_gemm_table_has_its_own_dtype(tmp_path):
    table = pd.DataFrame({"device": ["A"], "gemm_dtype": "bfloat16", "m": 2, "n": 3, "k": 5, "latency": 4.0})

    row = read_gemm_table(written(tmp_path, table)).iloc[0]

    assert (row["dtype"], row["flop"], row["size_bytes"], row["seconds"]) == ("bfloat16", 60, 2 * 31, 0.004)


def test_the_layers_of_a_block_are_parted_among_the_workers(tmp_path):
    """8 heads of 4 among 2 workers; gated, so the hidden 48 come twice: 24 columns x 2 up and 24 down."""
    sizes = {"n_head": 8, "n_kv_head": 2, "n_embd": 32, "n_expanded_embd": 48, "num_tensor_parallel_workers": 2}
    layers = ("attn_pre_proj", "attn_post_proj", "mlp_up_proj", "mlp_down_proj")
    times = {f"time_stats.{name}.median": 1.0 for name in layers}
    table = pd.DataFrame([{**sizes, "num_tokens": 10, "use_gated_mlp": True, **times}])

    samples = read_vidur_mlp(written(tmp_path, table), "A40")

    assert samples[["m", "n", "k"]].to_numpy().tolist() == [[10, 24, 32], [10, 32, 16], [10, 48, 32], [10, 32, 24]]
    assert list(samples.columns) == list(COLUMNS)


def test_a_shape_that_was_timed_twice_becomes_one_sample_with_the_median(tmp_path):
    samples = read_neusight(written(tmp_path, neusight("ln", B=[4, 4, 5], H=6, Latency=[1.0, 3.0, 7.0])))

    assert merged(samples)[["m", "seconds", "call"]].to_numpy().tolist() == [[4, 0.002, 0], [5, 0.007, 2]]


@pytest.mark.parametrize(
    ("table", "told"),
    [
        (neusight("fft", B=1), "OPName: must be one of"),
        (neusight("bmm", B=1), "column: must be there, got 'M'"),
        (neusight("ln", B=1, H=2, Latency=0.0), "row 0, seconds: must be > 0"),
        (neusight("ln", B=[1, 1], H=[2, -2]), "row 1, n: must be > 0"),
        (neusight("ln", B=[1, 1], H=2, OPName=["ln", "add"]), "OPName: must be one value"),
        (neusight("ln", B=1, H=2).iloc[:0], "rows: must be > 0"),
        (pd.DataFrame({"a": [1]}), "column: must be there, got 'OPName'"),
    ],
    ids=["op", "column", "time", "size", "two ops", "no rows", "other table"],
)
def test_a_table_that_is_none_is_refused_with_its_field(tmp_path, table, told):
    with pytest.raises(FileError, match=told):
        read_neusight(written(tmp_path, table))


def test_a_file_that_is_no_table_is_refused(tmp_path):
    (tmp_path / "empty.csv").write_bytes(b"")

    with pytest.raises(FileError, match="must be a readable CSV"):
        read_neusight(tmp_path / "empty.csv")


def drifting(count=2000, per_call_s=1e-7):
    """Kernels of 0.1 to 10 ms, in no order, each call slower than the one before."""
    kernel_s = 1e-4 * 100 ** np.random.default_rng(0).uniform(size=count)
    kernel_s[::20] = 1e-4
    call = np.arange(count)
    return pd.DataFrame({"gpu": "A", "call": call, "seconds": kernel_s + per_call_s * call, "kernel_s": kernel_s})


def test_the_drift_is_the_slope_of_the_fastest_kernels():
    assert drift_s_per_call(drifting()) == pytest.approx(1e-7, rel=0.02)


def test_without_its_drift_a_table_has_the_times_of_its_kernels():
    steady = without_drift(drifting(per_call_s=1e-6))

    assert steady["seconds"].to_numpy() == pytest.approx(steady["kernel_s"].to_numpy(), rel=0.2)
    assert 0 < len(steady) < 2000, "what is nearly all drift is left out"


def test_a_drift_of_few_samples_is_none():
    with pytest.raises(CalibrationError, match="at least 200 samples, got 10"):
        drift_s_per_call(drifting(10))


def test_every_table_of_neusight_is_read(data_dir):
    paths = sorted(data_dir.glob("neusight/kernels/*/*.csv.gz"))

    samples = pd.concat([read_neusight(path) for path in paths])

    assert len(paths) == 30
    assert len(samples) == 146_701
    assert set(samples["op_class"]) == {"linear", "bmm", "conv", "elementwise", "softmax", "layernorm"}


def test_the_tables_of_products_are_read(data_dir):
    a100 = read_gemm_table(data_dir / "aiconfigurator/gemm_bf16_a100_sxm.csv.gz")
    a40 = read_vidur_mlp(data_dir / "vidur/compute/a40/Llama-2-7b-hf/mlp.csv.gz", "NVIDIA A40")

    # The data sheets say 312 and 149.7 TFLOP/s.
    assert (a100["flop"] / a100["seconds"]).max() < 312e12
    assert 0.5 * 149.7e12 < (a40["flop"] / a40["seconds"]).max() < 149.7e12
