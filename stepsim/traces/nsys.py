"""Reader for Nsight Systems: the SQLite file that ``nsys export --type sqlite`` writes.

Tables, columns and enumerations: NVIDIA, Nsight Systems, "SQLite Export Schema Reference"
(docs.nvidia.com/nsight-systems/2021.5/nsys-exporter/exported_data.html). Times are nanoseconds. Tables are written only
where something was recorded.
"""

import re
import warnings
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pandas as pd

from stepsim.errors import FileError
from stepsim.traces.kineto_checks import clip_overlaps
from stepsim.traces.nsys_calls import CALLS, read_calls
from stepsim.traces.nsys_checks import check_numbers, check_processes, check_times, warn_of_clocks, without_duplicates
from stepsim.traces.nsys_tables import Export, opened
from stepsim.traces.trace import ABSENT, COLUMNS, Trace

NEWEST_SCHEMA = 3
"""Major version of the export's schema that the documentation describes."""

_NS = 1e-9
_KERNELS = "CUPTI_ACTIVITY_KIND_KERNEL"
_COPIES = "CUPTI_ACTIVITY_KIND_MEMCPY"
_MEMSETS = "CUPTI_ACTIVITY_KIND_MEMSET"
_GRAPHS = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"

_ON_DEVICE = ["start", "end", "deviceId", "streamId", "correlationId"]
_PUSH_POP = 59
"""NVTX event type of a range that a thread pushed and popped."""

_STEP = re.compile(r"(ProfilerStep#|(step|iteration|iter)[ _#:]*)\d+", re.IGNORECASE)
"""Names under which frameworks and people mark the steps of a run."""

_HOST, _DEVICE = "host", "device"
_COPY_ENDS = {
    1: ("HtoD", _HOST, _DEVICE),
    2: ("DtoH", _DEVICE, _HOST),
    3: ("HtoA", _HOST, _DEVICE),
    4: ("AtoH", _DEVICE, _HOST),
    9: ("HtoH", _HOST, _HOST),
    10: ("PtoP", _DEVICE, _DEVICE),
    11: ("HtoD, unified", _HOST, _DEVICE),
    12: ("DtoH, unified", _DEVICE, _HOST),
}
"""By ``copyKind``; all the others stay within one device."""

_HOST_MEMORIES = {0: "pageable", 1: "pinned"}
"""By ``srcKind`` and ``dstKind``, of the end that is on the host."""


def looks_like_nsys(head: bytes) -> bool:
    return head.startswith(b"SQLite format 3\0")


def read_nsys(path: str | Path) -> Trace:
    """The trace in the export ``path``. Times are seconds from its first event.

    NVTX ranges become host events, and steps where their name is one with a number (``step 3``). Raises `FileError` for
    a file that is no export, for a missing table or column, for kernels that were recorded as whole CUDA graphs, for
    numbers that make no sense, for several processes on one GPU, and for rows of a stream that overlap. Warns, once of
    each, of a newer schema, events that stand there twice, and clocks that disagree.
    """
    with opened(path) as export:
        _check_tables(export)
        names = export.names()
        calls, on_device = read_calls(export, names), _on_device(export, names)
        check_processes(path, on_device)
        events = pd.concat([on_device, calls, _ranges(export, names)], ignore_index=True)
        facts = _provenance(export, sorted(on_device["device"].unique()))
    check_times(path, events)
    events = without_duplicates(path, events)
    warn_of_clocks(path, events)
    frame = _frame(events)
    return Trace(events=clip_overlaps(path, frame, frame["device"] != ""), provenance=facts)


def _check_tables(export: Export) -> None:
    if not export.integers(_GRAPHS, ["start"]).empty:
        problem = "must be absent: record with --cuda-graph-trace=node, so that the kernels within graphs are there"
        raise FileError(export.path, _GRAPHS, None, problem)
    for table in ("StringIds", _KERNELS, CALLS):
        if table not in export.tables:
            raise FileError(export.path, table, None, "is missing: this is no export with CUDA kernels and calls")
    schema = _facts(export).get("EXPORT_SCHEMA_VERSION", str(NEWEST_SCHEMA))
    major = schema.partition(".")[0]
    if major.isdigit() and int(major[:9]) > NEWEST_SCHEMA:
        warning = f"{export.path}: schema {schema} is newer than {NEWEST_SCHEMA}: read as far as it is known"
        warnings.warn(warning, stacklevel=4)


def _facts(export: Export) -> dict[str, str]:
    rows = export.integers("META_DATA_EXPORT", [], texts=["name", "value"])
    return dict(zip(rows["name"], rows["value"], strict=True))


def _on_device(export: Export, names: Mapping[int, str]) -> pd.DataFrame:
    """Kernels, copies and memsets, with the process that each was issued by."""
    name = "demangledName" if "demangledName" in export.tables[_KERNELS] else "shortName"
    kernels = export.integers(_KERNELS, [*_ON_DEVICE, name], {"globalPid": 0})
    if kernels.empty:
        raise FileError(export.path, _KERNELS, 0, "must have a row: nothing was recorded on a GPU")
    kernels["name"] = export.named(f"{_KERNELS}.{name}", kernels[name], names)
    kernels["kind"] = np.where(kernels["name"].str.contains("nccl", case=False), "collective", "kernel")
    sizes = {"bytes": "size_bytes"}
    copies = export.integers(_COPIES, [*_ON_DEVICE, "bytes", "copyKind"], {"globalPid": 0, "srcKind": 7, "dstKind": 7})
    memsets = export.integers(_MEMSETS, [*_ON_DEVICE, "bytes"], {"globalPid": 0})
    for table, rows in ((_KERNELS, kernels), (_COPIES, copies), (_MEMSETS, memsets)):
        check_numbers(export.path, table, rows)
    memsets = memsets.rename(columns=sizes).assign(kind="memset", name="Memset (Device)")
    rows = pd.concat([kernels, _with_ends(copies).rename(columns=sizes), memsets], ignore_index=True)
    gpus = _gpus(export)
    places = zip(_process(rows["globalPid"]), rows["deviceId"], strict=True)
    rows["device"] = [f"gpu{gpus.get((process, device), device)}" for process, device in places]
    return rows.rename(columns={"streamId": "stream", "correlationId": "correlation"})


def _with_ends(copies: pd.DataFrame) -> pd.DataFrame:
    """What a copy is called, and where it comes from and goes to, with the words of Kineto."""
    ends = [_COPY_ENDS.get(kind, ("DtoD", _DEVICE, _DEVICE)) for kind in copies["copyKind"]]
    sides = {}
    for place, (side, kinds) in enumerate((("source", copies["srcKind"]), ("destination", copies["dstKind"])), start=1):
        sides[side] = [
            _HOST_MEMORIES.get(kind, _HOST) if end[place] == _HOST else _DEVICE
            for end, kind in zip(ends, kinds, strict=True)
        ]
    return copies.assign(kind="copy", name=[f"Memcpy {end[0]}" for end in ends], **sides)


def _process(identity: pd.Series) -> pd.Series:
    """The process within a serialised global id; the lowest 24 bits are the thread."""
    return (identity // 2**24) % 2**24


def _gpus(export: Export) -> dict[tuple[int, int], int]:
    """The GPU behind the number that a process knows it by (``CUDA_VISIBLE_DEVICES``)."""
    rows = export.integers("TARGET_INFO_CUDA_DEVICE", ["pid", "cudaId", "gpuId"])
    return {(pid % 2**24, cuda): gpu for pid, cuda, gpu in rows.itertuples(index=False)}


def _ranges(export: Export, names: Mapping[int, str]) -> pd.DataFrame:
    """Closed NVTX ranges of a thread; their text is in the row or in StringIds."""
    optional = {"end": -1, "textId": -1, "globalTid": 0}
    ranges = export.integers("NVTX_EVENTS", ["start", "eventType"], optional, texts=["text"])
    by_id = ranges["textId"].map(names).fillna("")
    ranges["name"] = ranges["text"].where(ranges["text"] != "", by_id).astype("str")
    ranges = ranges[(ranges["eventType"] == _PUSH_POP) & (ranges["end"] >= 0) & (ranges["name"] != "")]
    is_step = [_STEP.fullmatch(name) is not None for name in ranges["name"]]
    return ranges.assign(kind=np.where(is_step, "step", "host"), thread=ranges["globalTid"] % 2**24)


def _frame(events: pd.DataFrame) -> pd.DataFrame:
    """Columns of a trace. A call with something on a device is its launch; correlations are unique over processes."""
    first = events["start"].min()
    filled = events.copy()
    for column, value in ABSENT.items():
        filled[column] = events[column].where(events[column].notna(), value) if column in events else value
    on_device = filled["device"] != ""
    if filled.loc[on_device, "globalPid"].nunique() > 1:
        known = filled["correlation"] >= 0
        keys = filled.loc[known, ["globalPid", "correlation"]].astype("int64")
        filled.loc[known, "correlation"] = keys.groupby(["globalPid", "correlation"]).ngroup() + 1
    launched = filled["correlation"].isin(filled.loc[on_device, "correlation"]) & (filled["kind"] == "host")
    filled.loc[launched, "kind"] = "launch"
    filled["start_s"] = (filled["start"] - first) * _NS
    filled["duration_s"] = (filled["end"] - filled["start"]) * _NS
    frame = filled[list(COLUMNS)].astype(COLUMNS)
    return frame.sort_values(["start_s", "correlation"], kind="stable", ignore_index=True)


def _provenance(export: Export, devices: list[str]) -> dict[str, str]:
    facts = {"format": "nsys", "file": Path(export.path).name}
    facts["schema"] = _facts(export).get("EXPORT_SCHEMA_VERSION", "not told")
    facts |= dict.fromkeys(devices, "not named in the file")
    gpus = export.integers("TARGET_INFO_GPU", ["id"], {"totalMemory": 0}, texts=["name"])
    for number, memory_bytes, name in gpus[["id", "totalMemory", "name"]].itertuples(index=False):
        if f"gpu{number}" in devices:
            facts[f"gpu{number}"] = name
            facts |= {f"gpu{number} memory_bytes": str(memory_bytes)} if memory_bytes > 0 else {}
    return facts
