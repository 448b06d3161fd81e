"""Reader for the graph files of PipeDream's profiler (``graph.txt``).

Format: msr-fiddle/pipedream, graph/graph.py (`Node.__str__`, `Graph.__str__`). A line a layer, with milliseconds and
bytes; then, indented, a line an edge. GPU and batch are not told.
"""

import heapq
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from stepsim.errors import FileError
from stepsim.tables import Ragged
from stepsim.traces.layers import LayerProfile, layer_samples
from stepsim.traces.log_lines import LARGEST_BYTES, amount, read_lines, trace_of, warn_of_columns
from stepsim.traces.trace import Trace

LONGEST_MS = 1e9
"""Eleven days: a longer layer is a misread one."""

_MS = 1e-3
_LAYER = re.compile(
    r"(?P<layer>\S+) -- (?P<name>.*) -- forward_compute_time=(?P<forward>[^,]*),"
    r" backward_compute_time=(?P<backward>[^,]*), activation_size=(?P<activation>[^,]*),"
    r" parameter_size=(?P<parameter>[^,]*?)(?P<more>(?: -- \w+=[^ ,]*)*)"
)
_EDGE = re.compile(r"(\S+) -- (\S+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Layer:
    line: int
    name: str
    forward_s: float
    backward_s: float
    activation_bytes: int
    parameter_bytes: int


def looks_like_pipedream(head: bytes) -> bool:
    return b" -- forward_compute_time=" in head and b", backward_compute_time=" in head


def read_pipedream(path: str | Path) -> LayerProfile:
    """The layers of the graph ``path``, each behind its inputs; of those that could be next, the lowest number first.

    A layer with several outputs has the bytes of all of them, as PipeDream adds them up. Raises `FileError` for a line
    that is neither layer nor edge, for a value that is no number or negative, for an edge to an unknown layer and for a
    cycle. Warns once of fields that are not known.
    """
    layers: dict[str, _Layer] = {}
    fields: set[str] = set()
    edges: list[tuple[int, str, str]] = []
    for number, text in read_lines(path):
        if layer := _LAYER.fullmatch(text):
            if layer["layer"] in layers:
                raise FileError(path, f"line {number}: layer", layer["layer"], "must be given once")
            layers[layer["layer"]] = _read_layer(path, number, layer)
            fields.update(re.findall(r" -- (\w+)=", layer["more"]))
        elif edge := _EDGE.fullmatch(text):
            edges.append((number, edge[1], edge[2]))
        elif text:
            raise FileError(path, f"line {number}", text, "must be a layer of PipeDream's profiler, or an edge")
    if not layers:
        raise FileError(path, "layers", 0, "must be >= 1: the graph has edges only")
    warn_of_columns(path, fields, ("stage_id",), what="fields")
    return _profile(layers, _inputs(path, layers, edges), path)


def read_pipedream_trace(path: str | Path) -> Trace:
    """The layers of ``path`` as a trace: all forward, then all backward; raises as `read_pipedream` does."""
    samples = layer_samples(read_pipedream(path), "gpu0")
    if not samples:
        raise FileError(path, "forward_compute_time", 0, "must be > 0 for some layer: nothing was timed")
    return trace_of(path, samples, {"format": "PipeDream graph", "gpu0": "not named in the file"})


def _read_layer(path: str | Path, line: int, found: re.Match[str]) -> _Layer:
    return _Layer(
        line=line,
        name=found["name"],
        forward_s=amount(path, line, "forward_compute_time", found["forward"], LONGEST_MS) * _MS,
        backward_s=amount(path, line, "backward_compute_time", found["backward"], LONGEST_MS) * _MS,
        activation_bytes=_sum_of_bytes(path, line, "activation_size", found["activation"]),
        parameter_bytes=_sum_of_bytes(path, line, "parameter_size", found["parameter"]),
    )


def _sum_of_bytes(path: str | Path, line: int, field: str, text: str) -> int:
    """Bytes, or a list of them like ``[6291456.0; 131072.0]``. The profiler writes them as decimals."""
    parts = text[1:-1].split(";") if text[:1] == "[" and text[-1:] == "]" else [text]
    size_bytes = sum(round(amount(path, line, field, part.strip(), LARGEST_BYTES)) for part in parts)
    if size_bytes > LARGEST_BYTES:
        raise FileError(path, f"line {line}: {field}", text, f"must add up to at most {LARGEST_BYTES} bytes")
    return size_bytes


def _inputs(
    path: str | Path, layers: Mapping[str, _Layer], edges: Iterable[tuple[int, str, str]]
) -> dict[str, list[str]]:
    inputs: dict[str, list[str]] = {layer: [] for layer in layers}
    for number, source, target in edges:
        for end in (source, target):
            if end not in layers:
                raise FileError(path, f"line {number}: edge", end, "must join layers of this file")
        inputs[target].append(source)
    return inputs


def _profile(layers: Mapping[str, _Layer], inputs: Mapping[str, Sequence[str]], path: str | Path) -> LayerProfile:
    order = _sorted(path, layers, inputs)
    row = {layer: number for number, layer in enumerate(order)}
    rows = [layers[layer] for layer in order]
    return LayerProfile(
        layer=tuple(order),
        name=tuple(layer.name for layer in rows),
        forward_s=np.array([layer.forward_s for layer in rows], np.float64),
        backward_s=np.array([layer.backward_s for layer in rows], np.float64),
        activation_bytes=np.array([layer.activation_bytes for layer in rows], np.int64),
        parameter_bytes=np.array([layer.parameter_bytes for layer in rows], np.int64),
        inputs=Ragged.from_lists([sorted({row[source] for source in inputs[layer]}) for layer in order]),
    )


def _sorted(path: str | Path, layers: Mapping[str, _Layer], inputs: Mapping[str, Sequence[str]]) -> list[str]:
    """Kahn's algorithm with a heap."""
    waits = {layer: len(inputs[layer]) for layer in layers}
    readers: dict[str, list[str]] = {layer: [] for layer in layers}
    for layer, sources in inputs.items():
        for source in sources:
            readers[source].append(layer)
    ready = [_rank(layer) for layer, count in waits.items() if count == 0]
    heapq.heapify(ready)
    order: list[str] = []
    while ready:
        order.append(heapq.heappop(ready)[1])
        for reader in readers[order[-1]]:
            waits[reader] -= 1
            if waits[reader] == 0:
                heapq.heappush(ready, _rank(reader))
    if len(order) < len(layers):
        stuck = min((layer for layer, count in waits.items() if count), key=_rank)
        raise FileError(path, f"line {layers[stuck].line}: layer", stuck, "is in or behind a cycle")
    return order


def _rank(layer: str) -> tuple[int, str]:
    """Layers of the profiler are numbered in the order in which they ran: ``node1``, ``node2`` ..."""
    digits = re.search(r"[0-9]{0,18}$", layer)
    return int(digits[0] or 0) if digits else 0, layer
