"""Readers for logs of bandwidth sweeps: CUDA's bandwidthTest, hipBusBandwidth, superbench's gpu_copy, nvbandwidth.

Such logs tell bytes per second. Each becomes a copy that takes its size divided by that, and nothing on top: the time
to start a copy is in the bandwidth of small sizes already. Where the host's memory is not told as pageable, it is
pinned.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from stepsim.errors import FileError
from stepsim.traces.bandwidth_matrices import read_gpu_copy, read_nvbandwidth
from stepsim.traces.bandwidth_sweeps import read_bandwidth_test, read_hip_bandwidth
from stepsim.traces.log_lines import Line, Sample, read_lines, trace_of
from stepsim.traces.trace import Trace

Parse = Callable[[str | Path, Sequence[Line]], tuple[list[Sample], dict[str, str]]]
"""Samples and facts of the lines of a log."""

FORMATS: Mapping[str, tuple[re.Pattern[str], Parse]] = {
    "bandwidthTest": (re.compile(r"^\[CUDA Bandwidth Test\]|^bandwidthTest-|\bMemory Transfers$"), read_bandwidth_test),
    "hipBusBandwidth": (re.compile(r"^(H2D|D2H)_(Bandwidth|Time)"), read_hip_bandwidth),
    "nvbandwidth": (re.compile(r"^nvbandwidth Version"), read_nvbandwidth),
    "superbench gpu_copy": (re.compile(r"^(cpu|gpu\d+|gpu_all)_(to|and)_(cpu|gpu)\w* "), read_gpu_copy),
}
"""By name: a line that only such a log has, and what reads it."""


def looks_like_bandwidth_log(head: bytes) -> bool:
    return _format(head.decode(errors="replace").splitlines()) is not None


def read_bandwidth_log(path: str | Path) -> Trace:
    """The log ``path`` as copies with source, destination, size and duration.

    Provenance tells the tool, GPUs, versions, what was left out, and a size that the log does not tell. Raises
    `FileError` for a log that is cut off, of no known tool, of several GPUs at once, or with a value that is no
    number > 0.
    """
    lines = read_lines(path)
    form = _format(text for _, text in lines)
    if form is None:
        raise FileError(path, "line 1", lines[0][1], f"must be a log of {', '.join(FORMATS)}")
    samples, facts = FORMATS[form][1](path, lines)
    if not samples:
        raise FileError(path, f"line {lines[-1][0]}", lines[-1][1], f"the log of {form} ends without a copy")
    return trace_of(path, samples, {"format": form, **facts})


def _format(texts: Iterable[str]) -> str | None:
    for text in texts:
        for form, (pattern, _) in FORMATS.items():
            if pattern.search(text.strip()):
                return form
    return None
