import gzip

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepsim.errors import FileError
from stepsim.traces.neusight_labels import (
    LAYER_COLUMNS,
    product_flop,
    read_layer_times,
    read_layers,
    read_steps,
    sum_of_layers,
)

IN_BLOCK = "{'nn_module_stack': OrderedDict([('m.h.0', <class 'x.Block'>), ('m.h.0.up', <class 'torch.nn.Linear'>)])}"
OUTSIDE = "{'nn_module_stack': OrderedDict([('m.head', <class 'torch.nn.modules.linear.Linear'>)])}"


def node(op, target, inputs, output, *, meta="{}", name="n", dtype="torch.float32", times_ms=(1.0, 2.0, 0.5)):
    forward, backward, accumulate = times_ms
    return {
        "op": op,
        "target": target,
        "Name": name,
        "meta": meta,
        "input_shapes": str(inputs),
        "output_shape": str(output),
        "dtype": dtype,
        "fw_latency": forward,
        "bw_latency": backward,
        "acc_latency": accumulate,
    }


NODES = [
    node("placeholder", "tokens", [], (2, 3), dtype="torch.int64", times_ms=(0.0, 0.0, 0.0)),
    node("call_module", "m.h.0.up", [[2, 3, 4]], (2, 3, 8), meta=IN_BLOCK, name="up"),
    node("call_function", "<built-in method bmm of type>", [[6, 2, 5], [6, 5, 7]], (6, 2, 7), meta=IN_BLOCK),
    node("call_function", "<built-in method addmm of type>", [[8], [6, 4], [4, 8]], (6, 8)),
    node("call_module", "m.head", [[2, 3, 4]], (2, 3, 10), meta=OUTSIDE),
    node("call_function", "<built-in function add>", [[2, 3]], (2, 3), dtype=np.nan),
]


def label(folder, nodes=NODES, **changes):
    path = folder / "gpt-train-3-2.csv.gz"
    pd.DataFrame(nodes).assign(**changes).to_csv(path, index=False)
    return path


def steps_table(folder, rows):
    columns = ("device", "config_model_mode_seqlen_batch", "num_layer", "e2e_ms", "fw_ms", "bwall_ms")
    path = folder / "steps.csv"
    pd.DataFrame(rows, columns=columns).to_csv(path, index=False)
    return path


def test_layers_carry_shapes_and_nothing_of_what_was_measured(tmp_path):
    layers = read_layers(label(tmp_path))

    assert tuple(layers.columns) == LAYER_COLUMNS
    assert layers.iloc[1].to_dict() == {
        "name": "up",
        "target": "m.h.0.up",
        "module_class": "Linear",
        "repeated": True,
        "input_shapes": ((2, 3, 4),),
        "output_shape": (2, 3, 8),
        "dtype": "float32",
    }
    assert layers["dtype"].tolist() == ["int64", *["float32"] * 4, ""]


def test_nodes_are_of_the_block_by_their_module_or_the_modules_around_them(tmp_path):
    named = [
        node("call_module", f"m.{name}", [], ()) for name in ("layer.0.q", "layers.0.q", "h.0", "player.0", "h.01")
    ]

    assert read_layers(label(tmp_path))["repeated"].tolist() == [False, True, True, False, False, False]
    assert read_layers(label(tmp_path, named))["repeated"].tolist() == [True, True, True, False, False]


def test_times_are_seconds(tmp_path):
    times = read_layer_times(label(tmp_path))

    assert times.iloc[1].tolist() == [1e-3, 2e-3, 0.5e-3]
    assert len(times) == len(NODES)


@given(num_layers=st.integers(1, 100))
def test_the_block_counts_once_for_each_layer_and_the_rest_once(tmp_path_factory, num_layers):
    path = label(tmp_path_factory.mktemp("label"))

    summed_s = sum_of_layers(read_layers(path), read_layer_times(path), num_layers)

    assert summed_s == pytest.approx(3.5e-3 * (2 * num_layers + 3))


def test_products_are_linear_modules_and_calls_of_matmul_bmm_and_addmm(tmp_path):
    """FLOP of a product are 2 x output elements x inner length."""
    flop = product_flop(read_layers(label(tmp_path)))

    assert flop == {True: 2 * 48 * 4 + 2 * 84 * 5, False: 2 * 48 * 4 + 2 * 60 * 4}


def test_only_plain_training_steps_of_models_with_layers_are_read(tmp_path):
    rows = [
        ("V100", "bert_large-train-512-2", 24, 234.0, 83.0, 151.0),
        ("V100", "bert_large-inf-512-2", 24, 90.0, 90.0, 0.0),
        ("H100", "gpt2_large-train-1024-4-dp4", 36, 100.0, 40.0, 60.0),
        ("A100", "bert_large-train-512-2-fusion", 24, 100.0, 40.0, 60.0),
        ("A100", "switchxl4-train-512-1", 0, 790.0, 339.0, 451.0),
        ("A100", "other-train-512-1", "", 790.0, 339.0, 451.0),
    ]

    steps = read_steps(steps_table(tmp_path, rows))

    expected = {"device": "V100", "config": rows[0][1], "model": "bert_large", "sequence": 512, "batch": 2}
    expected |= {"num_layers": 24, "seconds": 0.234, "forward_s": 0.083, "backward_s": 0.151}
    assert steps.to_dict("records") == [pytest.approx(expected)]


@pytest.mark.parametrize("column", ["op", "target", "meta", "input_shapes", "output_shape", "dtype", "Name"])
def test_a_label_without_a_column_is_refused_by_its_name(tmp_path, column):
    nodes = [{key: value for key, value in one.items() if key != column} for one in NODES]

    with pytest.raises(FileError, match=f"column: must be there, got '{column}'"):
        read_layers(label(tmp_path, nodes))


@pytest.mark.parametrize("shape", ["(2, -3)", "(2.5,)", "('a',)", "__import__('os')", "3", "((", "(True,)", "[[1], 2]"])
@pytest.mark.parametrize("column", ["input_shapes", "output_shape"])
def test_a_shape_that_is_none_is_refused_with_row_column_and_value(tmp_path, column, shape):
    wrong = f"[{shape}]" if column == "input_shapes" else shape

    with pytest.raises(FileError, match=f"row 0, {column}"):
        read_layers(label(tmp_path, NODES, **{column: wrong}))


@pytest.mark.parametrize("time_ms", [-1.0, np.nan, np.inf, "fast"])
def test_a_time_that_is_none_is_refused_with_row_and_column(tmp_path, time_ms):
    path = label(tmp_path, NODES, bw_latency=[1.0, time_ms, 1.0, 1.0, 1.0, 1.0])

    with pytest.raises(FileError, match="row 1, bw_latency: must be >= 0"):
        read_layer_times(path)


@pytest.mark.parametrize("content", [b"", b"\x1f\x8b\x08junk", gzip.compress(b"op,target\n", mtime=0)[:-6]])
@pytest.mark.parametrize("read", [read_layers, read_layer_times, read_steps])
def test_empty_truncated_and_foreign_files_are_refused(tmp_path, read, content):
    path = tmp_path / "label.csv.gz"
    path.write_bytes(content)

    with pytest.raises(FileError):
        read(path)


def test_a_table_without_rows_is_refused(tmp_path):
    path = tmp_path / "empty.csv"
    pd.DataFrame([], columns=list(NODES[0])).to_csv(path, index=False)

    with pytest.raises(FileError, match="rows: must be > 0"):
        read_layers(path)


def test_all_labels_are_read_and_their_sums_are_near_the_measured_steps(data_dir):
    steps = read_steps(data_dir / "neusight/e2e_latency_dev.csv").set_index(["device", "config"])
    errors = {}
    for path in sorted((data_dir / "neusight/labels").glob("*/*.csv.gz")):
        step = steps.loc[(path.parent.name, path.name.removesuffix(".csv.gz"))]
        summed_s = sum_of_layers(read_layers(path), read_layer_times(path), step["num_layers"])
        errors.setdefault(path.parent.name, []).append(abs(summed_s / step["seconds"] - 1))

    mean = {device: round(float(np.mean(found)), 3) for device, found in errors.items()}
    assert {device: len(found) for device, found in errors.items()} == {
        "NVIDIA_A100_80GB_PCIe": 8,
        "NVIDIA_L4": 3,
        "Tesla_V100-PCIE-32GB": 3,
    }
    assert mean == {"NVIDIA_A100_80GB_PCIe": 0.078, "NVIDIA_L4": 0.057, "Tesla_V100-PCIE-32GB": 0.146}
