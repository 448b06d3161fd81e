"""Reader for Chakra traces as JSON: the graph that Chakra's linker makes of an execution trace and its Kineto trace.

Format: mlcommons/chakra, schema/protobuf/et_def.proto (kinds of nodes). Two spellings are read: ``workload_graph`` with
``Id``, ``Name``, ``runtime`` and ``is_cpu_op``, and that of protobuf's JSON, ``nodes`` with ``id``, ``name``,
``durationMicros`` and attributes. Durations are microseconds. Neither says when an op began.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from stepsim.errors import FileError
from stepsim.traces.execution_trace import read_json
from stepsim.traces.log_lines import LARGEST_BYTES, Sample, trace_of, warn_of_columns
from stepsim.traces.trace import Trace

LONGEST_US = 1e12
"""Eleven days: a longer op is a misread one."""

_FIELDS = {"Id", "Name", "NodeType", "ctrlDeps", "ctrl_deps", "data_deps", "runtime", "is_cpu_op"}
_PROTOBUF = {"id", "name", "type", "dataDeps", "startTimeMicros", "durationMicros", "inputs", "outputs", "attr"}
_PROTOBUF |= {"start_time_micros", "duration_micros"}
"""Of a node, in either spelling, whether read or not."""

_US = 1e-6


def looks_like_chakra(head: bytes) -> bool:
    spelled = b'"durationMicros"' in head or b'"duration_micros"' in head
    return head.lstrip()[:1] == b"{" and (b'"workload_graph"' in head or (b'"nodes"' in head and spelled))


def read_chakra(path: str | Path) -> Trace:
    """The nodes that took time, one behind the other: those of the GPU as kernels or collectives, the others as host.

    Raises `FileError` for a file that is no such graph, for a duration that is no number from 0 to `LONGEST_US`, and
    where no node took time. Warns once of fields of nodes that are not known.
    """
    document = read_json(path)
    listed = next((key for key in ("workload_graph", "nodes") if key in _object(document)), None)
    if listed is None or not isinstance(document[listed], list):
        raise FileError(path, "workload_graph", None, "must be a list of nodes: this is no Chakra trace")
    samples = list(_samples(path, listed, document[listed]))
    fields = (str(field) for node in document[listed] for field in node)
    warn_of_columns(path, fields, _FIELDS | _PROTOBUF, what="fields")
    timed = [sample for sample in samples if sample.duration_s > 0]
    if not timed:
        raise FileError(path, f"{listed}.runtime", 0, "must be > 0 for some node: nothing was timed")
    untimed = len(samples) - len(timed)
    left_out = {"left out": f"{untimed} nodes that took no time"} if untimed else {}
    return trace_of(path, timed, {"format": "Chakra", "gpu0": "not named in the file", **left_out})


def _samples(path: str | Path, listed: str, nodes: list[Any]) -> Iterator[Sample]:
    seen: set[object] = set()
    for number, node in enumerate(nodes):
        place = f"{listed}[{number}]"
        if not isinstance(node, dict):
            raise FileError(path, place, node, "must be an object")
        identity = node.get("Id", node.get("id"))
        if not isinstance(identity, int | str) or identity in seen:
            raise FileError(path, f"{place}.id", identity, "must be a number that no other node has")
        seen.add(identity)
        yield _sample(path, place, node)


def _sample(path: str | Path, place: str, node: Mapping[str, Any]) -> Sample:
    name = node.get("Name", node.get("name"))
    if not isinstance(name, str):
        raise FileError(path, f"{place}.name", name, "must be text")
    attributes = _attributes(node)
    microseconds = _first(node, "runtime", "durationMicros", "duration_micros", default=0)
    on_host = attributes.get("is_cpu_op", node.get("is_cpu_op", True))
    kind = "host" if on_host else "collective" if "nccl" in name.lower() else "kernel"
    return Sample(
        kind=kind,
        name=name,
        device="" if on_host else "gpu0",
        size_bytes=int(_number(path, f"{place}.comm_size", attributes.get("comm_size", 0), LARGEST_BYTES)),
        duration_s=_number(path, f"{place}.runtime", microseconds, LONGEST_US) * _US,
    )


def _first(node: Mapping[str, Any], *keys: str, default: object) -> object:
    return next((node[key] for key in keys if key in node), default)


def _attributes(node: Mapping[str, Any]) -> dict[object, object]:
    """Protobuf's attributes, each with its value under the name of its type (``boolVal``, ``int64Val``)."""
    found: dict[object, object] = {}
    entries = node.get("attr")
    for entry in entries if isinstance(entries, list) else ():
        if isinstance(entry, dict) and isinstance(entry.get("name"), str):
            values = [value for key, value in entry.items() if key not in ("name", "docString", "doc_string")]
            found[entry["name"]] = values[0] if values else None
    return found


def _object(document: object) -> Mapping[str, Any]:
    return document if isinstance(document, dict) else {}


def _number(path: str | Path, place: str, value: object, largest: float) -> float:
    """Protobuf writes 64-bit integers as text."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 20:
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= largest:
        raise FileError(path, place, value, f"must be a number from 0 to {largest:g}")
    return value
