"""Labels of sitar-lab/NeuSight: the layers of a training step, and, read apart, what each of them took.

A prediction may see `read_layers` alone. What was measured (`read_layer_times`, and whole steps: `read_steps`) is there
to judge it.

A label lists the nodes of the traced module with one block, the first of ``num_layers`` equal ones. Each node was timed
alone, events around it, the mean of the 5 fastest of 25 runs (NeuSight, ``neusight/Tracing``); a whole step likewise,
forward and backward apart, with the loss in between left out, no optimizer, and PyTorch's cache of memory emptied
before each run.
"""

import ast
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from stepsim.errors import FileError
from stepsim.traces.csv_tables import read_table

LAYER_COLUMNS = ("name", "target", "module_class", "repeated", "input_shapes", "output_shape", "dtype")

_TIMES = {"forward_s": "fw_latency", "backward_s": "bw_latency", "accumulate_s": "acc_latency"}

_BLOCK = re.compile(r"\.(?:layer|layers|h)\.0\b")
"""The first block, as the modules of BERT, OPT and GPT-2 call it."""

_CLASS = re.compile(r"<class '([^']+)'>")

_MS = 1e-3


def read_layers(path: Path) -> pd.DataFrame:
    """The nodes of one label, in order, by their shapes: columns `LAYER_COLUMNS`, no times.

    ``target`` is the function, method or module that the node calls; ``module_class`` the class of the module, empty
    for functions and methods; ``repeated`` marks nodes of the block. Shapes are tuples. Raises `FileError`.
    """
    table = read_table(path, ("op", "target", "Name", "meta", "input_shapes", "output_shape", "dtype"))
    meta, target = table["meta"].astype(str), table["target"].astype(str)
    classes = [_CLASS.findall(text)[-1:] or [""] for text in meta]
    is_module = table["op"] == "call_module"
    return pd.DataFrame(
        {
            "name": table["Name"].astype(str),
            "target": target,
            "module_class": [
                found[0].rpartition(".")[2] if is_ else "" for found, is_ in zip(classes, is_module, strict=True)
            ],
            "repeated": [bool(_BLOCK.search(where + " " + what)) for where, what in zip(meta, target, strict=True)],
            "input_shapes": [
                _shapes(path, row, "input_shapes", text) for row, text in enumerate(table["input_shapes"])
            ],
            "output_shape": [_shape(path, row, "output_shape", text) for row, text in enumerate(table["output_shape"])],
            "dtype": table["dtype"].fillna("").astype(str).str.removeprefix("torch."),
        }
    )


def read_layer_times(path: Path) -> pd.DataFrame:
    """What each node of `read_layers` took: ``forward_s``, ``backward_s``, ``accumulate_s``.

    The last is what adding to the gradients of its parameters took. Raises `FileError` for a time that is negative or
    no number.
    """
    return _times(path, read_table(path, tuple(_TIMES.values())), _TIMES)


def sum_of_layers(layers: pd.DataFrame, times: pd.DataFrame, num_layers: int) -> float:
    """Seconds of a step of ``num_layers`` blocks, if it took what its nodes took, one after the other."""
    each = times[list(_TIMES)].sum(axis=1)
    return float((each * np.where(layers["repeated"], num_layers, 1)).sum())


def read_steps(path: Path) -> pd.DataFrame:
    """Measured training steps on one GPU, of models without experts: one row each.

    Columns: ``device``, ``config`` (model-mode-sequence-batch), ``model``, ``sequence``, ``batch``, ``num_layers``,
    ``seconds``, ``forward_s``, ``backward_s``. Compiled (``fusion``) and distributed runs are left out, as are models
    of which the table has no number of layers. Raises `FileError`.
    """
    needed = {"seconds": "e2e_ms", "forward_s": "fw_ms", "backward_s": "bwall_ms"}
    table = read_table(path, ("device", "config_model_mode_seqlen_batch", "num_layer", *needed.values()))
    config = table["config_model_mode_seqlen_batch"].astype(str)
    parts = config.str.extract(r"^(?P<model>\w+)-train-(?P<sequence>\d+)-(?P<batch>\d+)$")
    kept = parts["model"].notna() & (pd.to_numeric(table["num_layer"], errors="coerce") > 0)
    times = _times(path, table[kept], needed)
    named = parts[kept].assign(
        device=table["device"][kept],
        config=config[kept],
        num_layers=table["num_layer"][kept].astype(int),
        sequence=parts["sequence"][kept].astype(int),
        batch=parts["batch"][kept].astype(int),
    )
    columns = ["device", "config", "model", "sequence", "batch", "num_layers"]
    return pd.concat([named[columns].reset_index(drop=True), times], axis=1)


def product_flop(layers: pd.DataFrame) -> dict[bool, int]:
    """FLOP of the matrix products of one forward pass: of the block (``True``) and of all other nodes (``False``)."""
    flop = {True: 0, False: 0}
    for row in layers.to_dict("records"):
        inner = _inner_length(row["target"], row["module_class"], row["input_shapes"])
        flop[row["repeated"]] += 2 * inner * math.prod(row["output_shape"])
    return flop


def _inner_length(target: str, module_class: str, input_shapes: Any) -> int:
    """Of a product; 0 for any other node."""
    if module_class == "Linear" or re.search(r"\b(matmul|bmm)\b", target):
        return int(input_shapes[0][-1])
    return int(input_shapes[1][-1]) if re.search(r"\baddmm\b", target) else 0


def _times(path: Path, table: pd.DataFrame, columns: dict[str, str]) -> pd.DataFrame:
    """Seconds from milliseconds."""
    found = {}
    for name, column in columns.items():
        values = pd.to_numeric(table[column], errors="coerce").to_numpy(float)
        for row in np.flatnonzero(~(np.isfinite(values) & (values >= 0))):
            raise FileError(path, f"row {row}, {column}", table[column].iloc[row], "must be >= 0")
        found[name] = values * _MS
    return pd.DataFrame(found)


def _shapes(path: Path, row: int, column: str, text: object) -> tuple[tuple[int, ...], ...]:
    return tuple(_whole(path, row, column, shape) for shape in _literal(path, row, column, text))


def _shape(path: Path, row: int, column: str, text: object) -> tuple[int, ...]:
    return _whole(path, row, column, _literal(path, row, column, text))


def _literal(path: Path, row: int, column: str, text: object) -> Any:
    try:
        value = ast.literal_eval(str(text))
    except (ValueError, SyntaxError, MemoryError, RecursionError) as error:
        raise FileError(path, f"row {row}, {column}", text, "must be a shape") from error
    if not isinstance(value, list | tuple):
        raise FileError(path, f"row {row}, {column}", text, "must be a shape")
    return value


def _whole(path: Path, row: int, column: str, shape: object) -> tuple[int, ...]:
    if not isinstance(shape, list | tuple) or not all(type(size) is int and size >= 0 for size in shape):
        raise FileError(path, f"row {row}, {column}", shape, "must be whole numbers >= 0")
    return tuple(shape)
