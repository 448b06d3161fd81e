"""Public tables of collectives over many sizes and groups, as one frame of samples for cost models.

Read by `read_aiconfigurator`, `read_vidur_network`, `read_vidur_history` and `read_aws_all_reduce`; `of_logs` has the
same of logs of nccl-tests that `stepsim.traces.nccl_tests` has read. Columns of every frame:

==============================  ===================================================================================
machine                         as the table calls the GPU, or as the reader was told
collective                      ``all_reduce``, ``all_gather``, ``reduce_scatter``, ``broadcast``, ``all_to_all``,
                                ``send_receive``
ranks, nodes                    of the group
dtype                           of the elements; empty where the table does not tell
size_bytes                      what each member contributes, as everywhere in stepsim
seconds                         measured, of one operation
least_seconds, most_seconds     of the repeats, where the table tells; else NaN
==============================  ===================================================================================
"""

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pandas as pd

from stepsim.errors import FileError
from stepsim.traces.csv_tables import need_columns, read_table
from stepsim.traces.trace import Trace

COLUMNS = (
    "machine",
    "collective",
    "ranks",
    "nodes",
    "dtype",
    "size_bytes",
    "seconds",
    "least_seconds",
    "most_seconds",
)

_KINDS = {
    "all_reduce": "all_reduce",
    "all_gather": "all_gather",
    "reduce_scatter": "reduce_scatter",
    "alltoall": "all_to_all",
    "send_recv": "send_receive",
}
"""By what a table calls it."""

_ELEMENT_BYTES = {"half": 2, "bfloat16": 2, "float": 4, "int8": 1}

_VIDUR_BYTES = 2
"""vidur's profiler sends float16 (vidur, profiling/collectives)."""


def array_bytes(samples: pd.DataFrame) -> pd.Series:
    """Bytes of the whole array, which nccl-tests calls the size: of an all_gather, what all members contribute."""
    gathers = samples["collective"] == "all_gather"
    return samples["size_bytes"] * samples["ranks"].where(gathers, 1)


def read_aiconfigurator(path: Path) -> pd.DataFrame:
    """A table of ai-dynamo/aiconfigurator, ``comm/nccl``: elements of the whole array, latency in milliseconds.

    All its groups lie within one node. Raises `FileError` for a missing column, an unknown collective or dtype, or a
    value that is no positive number.
    """
    table = read_table(path, ("device", "op_name", "nccl_dtype", "num_gpus", "message_size", "latency"))
    kinds = _known(path, table["op_name"], _KINDS)
    element_bytes = _known(path, table["nccl_dtype"], _ELEMENT_BYTES).astype(int)
    parts = table["num_gpus"].where(kinds == "all_gather", 1)
    return _finished(
        path,
        machine=table["device"],
        collective=kinds,
        ranks=table["num_gpus"],
        nodes=1,
        dtype=table["nccl_dtype"],
        size_bytes=table["message_size"] * element_bytes / parts,
        seconds=table["latency"] * 1e-3,
    )


def read_vidur_network(path: Path, machine: str) -> pd.DataFrame:
    """A table of microsoft/vidur, ``data/profiling/network``: size in bytes, median of few repeats in milliseconds.

    Raises `FileError` as `read_aiconfigurator`.
    """
    table = read_table(path, ("collective", "num_workers", "devices_per_node", "size"))
    name = str(table["collective"].iloc[0])
    return _finished(
        path,
        machine=machine,
        collective=_known(path, table["collective"], _KINDS),
        ranks=table["num_workers"],
        nodes=table["num_workers"] // table["devices_per_node"],
        dtype="",
        size_bytes=table["size"],
        **_vidur_seconds(path, table, name),
    )


def read_vidur_history(path: Path, machine: str) -> pd.DataFrame:
    """An earlier table of all_reduce of microsoft/vidur, float16: tokens x width of the model, milliseconds, one node.

    Rows of no tokens are left out. Raises `FileError` as `read_aiconfigurator`.
    """
    table = read_table(path, ("num_workers", "n_embd", "num_tokens"))
    table = table[table["num_tokens"] > 0].reset_index(drop=True)
    return _finished(
        path,
        machine=machine,
        collective="all_reduce",
        ranks=table["num_workers"],
        nodes=1,
        dtype="half",
        size_bytes=table["n_embd"] * table["num_tokens"] * _VIDUR_BYTES,
        **_vidur_seconds(path, table, "all_reduce"),
    )


def read_aws_all_reduce(path: Path, machine: str, *, ranks: int, nodes: int) -> pd.DataFrame:
    """all_reduce of aws-samples/awsome-distributed-training: bytes and microseconds, out of place and in place.

    The table does not tell its group. Raises `FileError` as `read_aiconfigurator`.
    """
    table = read_table(path, ("bytes", "time_us_out", "time_us_in"))
    both = pd.concat([table["time_us_out"], table["time_us_in"]])
    return _finished(
        path,
        machine=machine,
        collective="all_reduce",
        ranks=ranks,
        nodes=nodes,
        dtype="",
        size_bytes=table["bytes"].loc[both.index],
        seconds=both * 1e-6,
    )


def of_logs(traces: Iterable[Trace], machine: str) -> pd.DataFrame:
    """The collectives of ``traces`` of nccl-tests; sizes of no bytes and all but ``out_of_place`` are left out."""
    frames = []
    for trace in traces:
        rows = trace.of("collective")
        rows = rows[(rows["size_bytes"] > 0) & (rows["work"] == "out_of_place")]
        facts = {"ranks": int(trace.provenance["ranks"]), "nodes": int(trace.provenance["nodes"])}
        columns = {"name": "collective", "duration_s": "seconds"}
        frames.append(rows[["name", "size_bytes", "duration_s"]].rename(columns=columns).assign(**facts))
    joined = pd.concat(frames, ignore_index=True)
    return joined.assign(machine=machine, dtype="", least_seconds=np.nan, most_seconds=np.nan)[list(COLUMNS)]


def _vidur_seconds(path: Path, table: pd.DataFrame, name: str) -> dict[str, pd.Series]:
    parts = {"seconds": "median", "least_seconds": "min", "most_seconds": "max"}
    need_columns(path, table, [f"time_stats.{name}.{part}" for part in parts.values()])
    return {column: table[f"time_stats.{name}.{part}"] * 1e-3 for column, part in parts.items()}


def _known(path: Path, values: pd.Series, known: dict[str, str] | dict[str, int]) -> pd.Series:
    for value in sorted(set(values.astype(str)) - set(known)):
        raise FileError(path, str(values.name), value, f"must be one of {', '.join(known)}")
    return values.map(known)


def _finished(path: Path, **columns: object) -> pd.DataFrame:
    samples = pd.DataFrame({"least_seconds": np.nan, "most_seconds": np.nan, **columns}).reset_index(drop=True)
    for column in ("ranks", "nodes", "size_bytes", "seconds"):
        values = pd.to_numeric(samples[column], errors="coerce").to_numpy(float)
        for place in np.flatnonzero(~(np.isfinite(values) & (values > 0))):
            raise FileError(path, f"row {place}, {column}", samples[column].iloc[place], "must be > 0")
    return samples[list(COLUMNS)]
