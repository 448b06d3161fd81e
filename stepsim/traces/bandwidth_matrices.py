"""One size between all devices of a machine: superbench's gpu_copy, and NVIDIA's nvbandwidth as text.

Neither tells the size of its buffers, so that here it is the one that the tool takes by default.
"""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from stepsim.errors import FileError
from stepsim.traces.log_lines import Line, Sample, positive, read_lines

GPU_COPY_BYTES = 256 * 2**20
"""superbenchmark, gpu_copy_bw_performance.py: default of ``--size``; 64 MiB before it copied to all GPUs at once."""

NVBANDWIDTH_BYTES = 512 * 2**20
"""nvbandwidth, README.md: default of ``--bufferSize``; 64 MiB in the first versions."""

_END = r"(cpu|gpu\d+|gpu_all)"
_LABEL = re.compile(rf"{_END}_(to|and)_{_END}(?:_(?:read|write))?_by_(?:sm|dma)(?:_under_numa\d+)?")

_ALONE = re.compile(r"(host_to_device|device_to_host|device_to_device)_memcpy(_read|_write)?_(ce|sm)")
_RUNNING = re.compile(r"Running (\w+)\.$")
_TITLE = re.compile(r"memcpy \w+ (CPU|GPU)\(row\) (<?->?) (CPU|GPU)\(column\) bandwidth \((\S+)\)")
_NVIDIA_DEVICE = re.compile(r"Device (\d+): (.+?)(?: \([0-9a-fA-F:]+\))?$")
_VERSIONS = re.compile(r"(nvbandwidth|CUDA Runtime|Driver) Version: (.+)")


def read_gpu_copy(path: str | Path, lines: Sequence[Line]) -> tuple[list[Sample], dict[str, str]]:
    """Lines such as ``cpu_to_gpu0_by_dma_under_numa0 26.2``, in GB/s; ``and`` is the sum of both ways at once.

    Left out are copies within one GPU, whose bytes versions of gpu_copy count once or twice and do not say which, and
    those from or to all GPUs at once.
    """
    samples: list[Sample] = []
    left_out: list[str] = []
    for number, text in lines:
        if not text:
            continue
        label, _, value = text.partition(" ")
        match = _LABEL.fullmatch(label)
        if match is None:
            raise FileError(path, f"line {number}", text, "must be a name such as gpu0_to_cpu_by_dma, and GB/s")
        bytes_per_s = positive(path, number, label, value.strip()) * 1e9
        one, joined, two = match.groups()
        if one == two or "gpu_all" in (one, two):
            left_out.append(label)
            continue
        samples.append(_between(label, one, two, GPU_COPY_BYTES, bytes_per_s / (1 if joined == "to" else 2)))
        if joined == "and":
            samples.append(_between(label, two, one, GPU_COPY_BYTES, bytes_per_s / 2, beside=True))
    named = {sample.device: "not named in the file" for sample in samples}
    return samples, {**_facts(GPU_COPY_BYTES, left_out), **named}


def _between(
    name: str, source: str, destination: str, size_bytes: int, bytes_per_s: float, *, beside: bool = False
) -> Sample:
    return Sample(
        kind="copy",
        name=name,
        device=destination if source == "cpu" else source,
        size_bytes=size_bytes,
        duration_s=size_bytes / bytes_per_s,
        source="pinned" if source == "cpu" else "device",
        destination="pinned" if destination == "cpu" else "device",
        beside=beside,
    )


def _facts(size_bytes: int, left_out: Sequence[str]) -> dict[str, str]:
    facts = {"size_bytes": f"not in the log: {size_bytes}, the default of the tool"}
    if left_out:
        facts["left_out"] = " ".join(left_out)
    return facts


def read_nvbandwidth(path: str | Path, lines: Sequence[Line]) -> tuple[list[Sample], dict[str, str]]:
    """The matrices of copies that ran alone, by copy engine or kernel; other tests are left out."""
    facts: dict[str, str] = {}
    samples: list[Sample] = []
    left_out: list[str] = []
    for number, text in lines:
        if match := _NVIDIA_DEVICE.match(text):
            facts[f"gpu{match[1]}"] = match[2]
        elif match := _VERSIONS.match(text):
            facts[f"{match[1].lower().replace(' ', '_')}_version"] = match[2]
        elif match := _RUNNING.match(text):
            if _ALONE.fullmatch(match[1]):
                samples += _matrix(path, match[1], lines[number:])
            else:
                left_out.append(match[1])
    return samples, {**_facts(NVBANDWIDTH_BYTES, left_out), **facts}


def _matrix(path: str | Path, test: str, lines: Sequence[Line]) -> Iterator[Sample]:
    """A title, the names of the columns, and a row for each device, up to an empty line."""
    title = _TITLE.match(lines[0][1]) if lines else None
    if lines and lines[0][1].lower().startswith("waived"):
        return
    if title is None or title[4] != "GB/s" or len(lines) < 3:
        number, text = lines[0] if lines else read_lines(path)[-1]
        raise FileError(path, f"line {number}", text, f"must be the bandwidth (GB/s) of {test}, with its matrix")
    row_end, arrow, column_end = title[1], title[2], title[3]
    columns = lines[1][1].split()
    num_rows = 0
    for number, text in lines[2:]:
        if not text:
            break
        label, *cells = text.split()
        if len(cells) != len(columns) or not label.isdigit():
            raise FileError(path, f"line {number}", text, f"must have {len(columns)} values behind its name")
        num_rows += 1
        for column, cell in zip(columns, cells, strict=True):
            row, to_column = _device(row_end, label), _device(column_end, column)
            if cell == "N/A" or row == to_column:
                continue
            source, destination = (to_column, row) if arrow == "<-" else (row, to_column)
            bytes_per_s = positive(path, number, test, cell) * 1e9
            yield _between(test, source, destination, NVBANDWIDTH_BYTES, bytes_per_s)
    if num_rows < (len(columns) if row_end == "GPU" else 1):
        raise FileError(path, f"line {lines[1][0]}: rows", num_rows, f"must be {len(columns)}: the matrix is cut off")


def _device(what: str, number: str) -> str:
    return "cpu" if what == "CPU" else f"gpu{number}"
