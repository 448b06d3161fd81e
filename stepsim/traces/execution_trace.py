"""Reader for execution traces of PyTorch (``ExecutionTraceObserver``), schema 1.0.1 and later: JSON, plain or gzipped.

Format: pytorch/pytorch, torch/csrc/profiler/standalone/execution_trace_observer.cpp; up to 1.0.x a node has its fields
beside each other, from 1.1.0 (the form of Chakra) in ``inputs``, ``outputs`` and ``attrs``.
"""

import re
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import orjson
import pandas as pd

from stepsim.errors import FileError
from stepsim.traces.execution_ops import FORMULAS, OpTensor, arguments, flop, signature, tensors_of
from stepsim.traces.log_lines import LARGEST_BYTES
from stepsim.traces.whole_files import read_whole

LARGEST_FILE_BYTES = 2**27
"""Unzipped. A node takes about one kilobyte: a hundred thousand nodes; more is a bomb or no single step."""

MOST_VALUES = 2**24
"""In recorded files one stands in 8 bytes or more. One that takes two bytes in the file takes up to 70 in memory."""

NEWEST_SCHEMA = (1, 1)

NODES: dict[str, str] = {
    "id": "int64",
    "parent": "int64",  # the node that called it: its control dependency
    "name": "str",
    "thread": "int64",  # numbered by PyTorch from 1, no thread of the operating system
    "order": "int64",  # rf_id: nodes of one thread in the order in which they began; 0 for the roots
    "collective": "str",  # what is communicated (all_reduce ...); empty for the rest
    "work": "str",  # signature: name, shapes and dtypes
    "read_bytes": "int64",  # of tensors among the inputs
    "written_bytes": "int64",  # of tensors among the outputs
    "flop": "int64",  # of matrix products, convolutions and attention; only on the innermost op that does the work
}
"""Columns of `ExecutionTrace.nodes` with their dtypes."""


@dataclass(frozen=True, eq=False, kw_only=True)
class ExecutionTrace:
    """What a recorded step did, without times: ``nodes`` (columns `NODES`), ``data`` and provenance.

    ``data`` has a row ``producer``, ``consumer`` (ids) for each op that reads a storage and the last one that wrote it.
    """

    nodes: pd.DataFrame
    data: pd.DataFrame
    provenance: Mapping[str, str]


def looks_like_execution_trace(head: bytes) -> bool:
    return head.lstrip()[:1] == b"{" and b'"schema"' in head and b'"nodes"' in head and b'"rf_id"' in head


def read_execution_trace(path: str | Path) -> ExecutionTrace:
    """The graph in the file ``path``. Raises `FileError` for a file that is none, or for a node that makes no sense."""
    document = read_json(path)
    if not isinstance(document, dict) or not isinstance(document.get("nodes"), list):
        raise FileError(path, "nodes", None, "must be a list: this is no execution trace")
    _check_schema(path, document.get("schema"))
    rows, storages = [], []
    for number, node in enumerate(document["nodes"]):
        row, used = _node(path, f"nodes[{number}]", node)
        rows.append(row)
        storages.append(used)
    nodes = pd.DataFrame(rows, columns=list(NODES)).astype(NODES)
    _check_ids(path, nodes)
    inner = set(nodes.loc[nodes["flop"] > 0, "parent"])
    nodes.loc[nodes["id"].isin(inner) & nodes["name"].isin(list(FORMULAS)), "flop"] = 0
    facts = {"format": "PyTorch execution trace", "file": Path(path).name}
    facts |= {key: str(document[key]) for key in ("schema", "pid", "time") if key in document}
    return ExecutionTrace(nodes=nodes, data=_data(nodes, storages), provenance=facts)


def refuse_execution_trace(path: str | Path) -> NoReturn:
    """An execution trace alone is no measurement."""
    read_execution_trace(path)
    problem = "are not in a PyTorch execution trace: give its Kineto trace too, as in stepsim import ET KINETO"
    raise FileError(path, "times", None, problem)


def read_json(path: str | Path) -> Any:
    """Parsed JSON, plain or gzipped, of at most `LARGEST_FILE_BYTES` and about `MOST_VALUES`."""
    content = read_whole(path, LARGEST_FILE_BYTES)
    values = sum(content.count(sign) for sign in (b",", b"[", b"{"))
    if values > MOST_VALUES:
        raise FileError(path, "values", values, f"must be at most {MOST_VALUES}")
    try:
        return orjson.loads(content)
    except orjson.JSONDecodeError as error:
        raise FileError(path, "file", None, f"is not JSON: {error}") from error


def _check_schema(path: str | Path, schema: object) -> None:
    """``1.1.0-chakra.0.0.4``: version of the trace, then of the form of its nodes."""
    found = re.match(r"(\d{1,6})\.(\d{1,6})\.(\d{1,6})", schema) if isinstance(schema, str) else None
    if found is None or tuple(map(int, found.groups())) < (1, 0, 1):
        raise FileError(path, "schema", schema, "must be a version from 1.0.1 on")
    if tuple(map(int, found.groups()[:2])) > NEWEST_SCHEMA:
        warnings.warn(f"{path}: schema {schema} is newer than 1.1: read as far as it is known", stacklevel=3)


def _node(path: str | Path, place: str, node: object) -> tuple[dict[str, object], tuple[set[int], set[int]]]:
    """The row of a node, and the storages that it reads and writes."""
    if not isinstance(node, dict):
        raise FileError(path, place, node, "must be an object")
    name = node.get("name")
    if not isinstance(name, str):
        raise FileError(path, f"{place}.name", name, "must be text")
    sides = []
    for side in ("input", "output"):
        try:
            sides.append(arguments(*_lists(node, side)))
        except (TypeError, ValueError, OverflowError) as error:
            raise FileError(path, f"{place}.{side}s", None, f"make no sense: {str(error)[:80]}") from error
    inputs, outputs = sides
    read, written = (list(tensors_of(side)) for side in sides)
    attributes = {str(entry.get("name")): entry.get("value") for entry in _objects(node.get("attrs"))}
    row = {
        "id": _whole(path, f"{place}.id", node.get("id")),
        "parent": _whole(path, f"{place}.parent", node.get("parent", node.get("ctrl_deps"))),
        "name": name,
        "thread": _whole(path, f"{place}.tid", node.get("tid", attributes.get("tid"))),
        "order": _whole(path, f"{place}.rf_id", node.get("rf_id", attributes.get("rf_id"))),
        "collective": _collective(name),
        "work": signature(name, inputs, outputs),
        "read_bytes": _bytes(path, f"{place}.inputs", read),
        "written_bytes": _bytes(path, f"{place}.outputs", written),
        "flop": _whole(path, f"{place}.flop", flop(name, inputs, outputs)),
    }
    return row, ({tensor.storage for tensor in read}, {tensor.storage for tensor in written})


def _lists(node: Mapping[str, Any], side: str) -> tuple[Any, Any, Any]:
    """Values, shapes and types of one side."""
    held = node.get(f"{side}s")
    if isinstance(held, dict):
        return held.get("values"), held.get("shapes"), held.get("types")
    return held, node.get(f"{side}_shapes"), node.get(f"{side}_types")


def _objects(entries: object) -> Iterator[Mapping[str, Any]]:
    if isinstance(entries, list):
        yield from (entry for entry in entries if isinstance(entry, dict))


def _collective(name: str) -> str:
    return name.removeprefix("nccl:").lstrip("_") if name.startswith("nccl:") else ""


def _whole(path: str | Path, place: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**63:
        raise FileError(path, place, value, "must be a whole number >= 0")
    return value


def _bytes(path: str | Path, place: str, tensors: list[OpTensor]) -> int:
    size_bytes = sum(tensor.size_bytes for tensor in tensors)
    if size_bytes > LARGEST_BYTES:
        raise FileError(path, place, size_bytes, f"must be at most {LARGEST_BYTES} bytes")
    return size_bytes


def _check_ids(path: str | Path, nodes: pd.DataFrame) -> None:
    if nodes.empty:
        raise FileError(path, "nodes", 0, "must be >= 1")
    repeated = nodes.loc[nodes["id"].duplicated(), "id"]
    if not repeated.empty:
        raise FileError(path, "id", int(repeated.iloc[0]), "must be given to one node only")


def _data(nodes: pd.DataFrame, storages: list[tuple[set[int], set[int]]]) -> pd.DataFrame:
    """Between ops that call no other op, in the order in which they began."""
    callers = set(nodes["parent"])
    writer: dict[int, int] = {}
    edges: list[tuple[int, int]] = []
    for place in nodes["order"].argsort(kind="stable"):
        number = int(nodes["id"].iloc[place])
        if number not in callers:
            read, written = storages[place]
            producers = {writer[storage] for storage in read if storage in writer}
            edges += [(producer, number) for producer in sorted(producers)]
            writer |= dict.fromkeys(written, number)
    return pd.DataFrame(edges, columns=["producer", "consumer"], dtype="int64")
