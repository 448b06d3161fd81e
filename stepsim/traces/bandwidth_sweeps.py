"""Sweeps over sizes on one GPU: CUDA's bandwidthTest, as text or as CSV lines, and AMD's hipBusBandwidth."""

import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path

from stepsim.errors import FileError
from stepsim.traces.log_lines import LARGEST_BYTES, Line, Sample, positive, size_in_bytes, warn_of_columns

UNIT_BYTES_PER_S = {"GB/s": 1e9, "MB/s": 1024e3}
"""Newer versions of bandwidthTest print GB/s; older ones divide bytes by milliseconds and by 1024, and call it MB/s.

CUDA samples, bandwidthTest.cu: ``(1 << 10) * memSize / (elapsedTimeInMs * (1 << 20))``.
"""

_MEMORIES = {"pinned": "pinned", "pageable": "pageable", "paged": "pageable", "unpinned": "pageable"}

_CSV = re.compile(r"bandwidthTest-(H2D|D2H|D2D)(?:-(\w+))?\S*, Bandwidth = (\S+) (\S+), .*Size = (\S+) bytes, (.*)")
_CSV_END = re.compile(r"NumDevsUsed = (\d+)(?:, \w+ = [^,]+)*")
_CSV_FIELDS = ("Bandwidth", "Time", "Size", "NumDevsUsed")
_DIRECTION = re.compile(r"(Host|Device) to (Host|Device) Bandwidth, (\d+) Device\(s\)")
_MEMORY = re.compile(r"(\w+) Memory Transfers")
_HEADER = re.compile(r"Transfer Size \(Bytes\)\s+Bandwidth\((\S+)\)")
_DEVICE = re.compile(r"Device (\d+): (.+)")

_HIP_ROW = re.compile(r"(H2D|D2H)_(Bandwidth|Time)_?(pinned|unpinned)\b")
_HIP_SIZE = re.compile(r"\+?(\d+)(By|kB)")
_HIP_DEVICE = re.compile(r"Device:(.+?)\s+Mem=")
_HIP_CELLS = 8


def read_bandwidth_test(path: str | Path, lines: Sequence[Line]) -> tuple[list[Sample], dict[str, str]]:
    """Of a copy within the device the tool counts each byte twice, as read and as written.

    Warns once of fields of CSV lines that are not known.
    """
    facts: dict[str, str] = {}
    samples: list[Sample] = []
    direction, memory, unit = "", "", ""
    for number, text in lines:
        if match := _DEVICE.match(text):
            facts[f"gpu{match[1]}"] = match[2]
        elif text.startswith("bandwidthTest-"):
            samples.append(_csv_sample(path, number, text))
        elif match := _DIRECTION.search(text):
            _one_device(path, number, match[3])
            direction, unit = f"{match[1][0]}2{match[2][0]}", ""
        elif match := _MEMORY.search(text):
            memory = match[1]
        elif match := _HEADER.search(text):
            unit = match[1]
        elif not text and unit:
            direction, memory, unit = "", "", ""
        elif unit:
            size, _, bandwidth = text.partition("\t" if "\t" in text else " ")
            samples.append(_sample(path, number, direction, memory, size.strip(), bandwidth.strip(), unit))
        elif text == "Result = FAIL":
            raise FileError(path, f"line {number}", text, "must be Result = PASS")
    _check_end(path, lines)
    told = [text for _, text in lines if text.startswith("bandwidthTest-")]
    warn_of_columns(
        path, chain.from_iterable(re.findall(r", (\w+) =", text) for text in told), _CSV_FIELDS, what="fields"
    )
    devices = list(facts)
    if len(devices) > 1:
        raise FileError(path, "devices", len(devices), "must be 1: the bandwidths are sums over all of them")
    device = devices[0] if devices else "gpu0"
    return [replace(sample, device=device) for sample in samples], {device: "not named in the file", **facts}


def _check_end(path: str | Path, lines: Sequence[Line]) -> None:
    if not any(text == "Result = PASS" for _, text in lines):
        raise FileError(path, f"line {lines[-1][0]}", lines[-1][1], "the log is cut off: 'Result = PASS' must follow")


def _one_device(path: str | Path, number: int, text: str) -> None:
    if text != "1":
        raise FileError(path, f"line {number}: devices", text, "must be 1: the bandwidths are sums over all of them")


def _csv_sample(path: str | Path, number: int, text: str) -> Sample:
    match = _CSV.match(text)
    end = _CSV_END.fullmatch(match[6]) if match else None
    if match is None or end is None:
        raise FileError(path, f"line {number}", text, "must have Bandwidth, Time, Size and NumDevsUsed")
    _one_device(path, number, end[1])
    direction, memory, bandwidth, unit, size, _ = match.groups()
    return _sample(path, number, direction, memory or "", size, bandwidth, unit)


def _sample(path: str | Path, number: int, direction: str, memory: str, size: str, bandwidth: str, unit: str) -> Sample:
    size_bytes = size_in_bytes(path, number, "size", size)
    if unit not in UNIT_BYTES_PER_S:
        raise FileError(path, f"line {number}: unit", unit, f"must be {' or '.join(UNIT_BYTES_PER_S)}")
    bytes_per_s = positive(path, number, "bandwidth", bandwidth) * UNIT_BYTES_PER_S[unit]
    times = 2 if direction == "D2D" else 1
    return _copy(path, number, direction, memory, size_bytes, times * size_bytes / bytes_per_s)


def _copy(path: str | Path, number: int, direction: str, memory: str, size_bytes: int, duration_s: float) -> Sample:
    host = _MEMORIES.get(memory.lower(), "")
    if direction != "D2D" and not host:
        raise FileError(path, f"line {number}: memory", memory, f"must be one of {', '.join(_MEMORIES)}")
    if not direction:
        raise FileError(path, f"line {number}: direction", None, "must be told before the sizes")
    ends = {"H": host, "D": "device"}
    if size_bytes == 0:
        raise FileError(path, f"line {number}: size", 0, "must be > 0")
    return Sample(
        kind="copy",
        name="-".join(filter(None, (direction, memory))),
        device="gpu0",
        size_bytes=size_bytes,
        duration_s=duration_s,
        source=ends[direction[0]],
        destination=ends[direction[2]],
    )


def read_hip_bandwidth(path: str | Path, lines: Sequence[Line]) -> tuple[list[Sample], dict[str, str]]:
    """The median times, which have more digits than the bandwidths. Both directions at once are left out."""
    facts = {"gpu0": "not named in the file"}
    samples: list[Sample] = []
    timed: list[tuple[str, ...]] = []
    swept: list[tuple[str, ...]] = []
    for number, text in lines:
        if match := _HIP_DEVICE.match(text):
            facts["gpu0"] = match[1]
        elif match := _HIP_ROW.match(text):
            cells = text.split()
            if len(cells) != _HIP_CELLS:
                raise FileError(path, f"line {number}", text, f"must have {_HIP_CELLS} values, has {len(cells)}")
            direction, quantity, memory = match.groups()
            (timed if quantity == "Time" else swept).append((direction, memory, cells[1]))
            if quantity == "Time":
                median_s = positive(path, number, "median", cells[3]) * _seconds(path, number, cells[2])
                samples.append(_copy(path, number, direction, memory, _hip_bytes(path, number, cells[1]), median_s))
    if sorted(timed) != sorted(swept):
        problem = f"the log is cut off: {len(swept)} bandwidths, but {len(timed)} times"
        raise FileError(path, f"line {lines[-1][0]}", lines[-1][1], problem)
    return samples, facts


def _seconds(path: str | Path, number: int, unit: str) -> float:
    if unit != "ms":
        raise FileError(path, f"line {number}: unit", unit, "must be ms")
    return 1e-3


def _hip_bytes(path: str | Path, number: int, text: str) -> int:
    """``+064By`` is 64 bytes and ``2kB`` 2,048, as the bandwidths beside the times say."""
    match = _HIP_SIZE.fullmatch(text)
    size = int(match[1]) * (1024 if match[2] == "kB" else 1) if match and len(match[1]) < 20 else -1
    if not 0 < size <= LARGEST_BYTES:
        raise FileError(path, f"line {number}: size", text, "must be like +064By or 2kB")
    return size
