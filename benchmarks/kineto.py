"""Reading Kineto traces: events a second, and memory beside the size of the file, on synthetic training steps."""

import gzip
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.figures import Figure, figure

READ = """
import sys, time
from benchmarks.figures import peak_rss_bytes
from stepsim.traces.kineto import read_kineto
imported_bytes = peak_rss_bytes()
began_s = time.perf_counter()
read_kineto(sys.argv[1])
print(time.perf_counter() - began_s, peak_rss_bytes() - imported_bytes)
"""

KERNEL = """  {
    "ph": "X", "cat": "cpu_op", "name": "aten::op%(kind)d", "pid": 7, "tid": 7, "ts": %(op_us)d.123, "dur": 15.25,
    "args": {"External id": %(id)d, "Record function id": 0, "Concrete Inputs": ["", "1"], "Input type": ["float", ""],
      "Input Strides": [[%(kind)d, 1], []], "Input Dims": [[64, %(kind)d], []], "Ev Idx": %(id)d}
  },
  {
    "ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 7, "tid": 7, "ts": %(launch_us)d.5, "dur": 6,
    "args": {"External id": %(id)d, "cbid": 211, "correlation": %(id)d}
  },
  {
    "ph": "X", "cat": "kernel", "pid": 0, "tid": 7, "ts": %(kernel_us)d.25, "dur": 12.5,
    "name": "void at::native::vectorized_elementwise_kernel<4, at::native::Functor<%(kind)d>>(int, {lambda()#1})",
    "args": {"External id": %(id)d, "queued": 0, "device": 0, "context": 1, "stream": 7, "correlation": %(id)d,
      "registers per thread": 32, "shared memory": 0, "blocks per SM": 1.85, "warps per SM": 7.4, "grid": [200, 1, 1],
      "block": [128, 1, 1], "est. achieved occupancy %%": 12}
  },
  {"ph": "s", "id": %(id)d, "pid": 7, "tid": 7, "ts": %(launch_us)d.5, "cat": "ac2g", "name": "ac2g"},
  {"ph": "f", "id": %(id)d, "pid": 0, "tid": 7, "ts": %(kernel_us)d.25, "cat": "ac2g", "name": "ac2g", "bp": "e"}"""
"""An op, its launch, its kernel, and both ends of the arrow between them, laid out as Kineto does: 5 events."""

SIZES_BYTES = {"64 MiB": 2**26, "64 MiB in gzip": 2**26, "1 GiB": 2**30}


def kineto_figures() -> Iterator[Figure]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        for size, size_bytes in SIZES_BYTES.items():
            num_events = write_trace(path, size_bytes, zipped="gzip" in size)
            output = subprocess.run([sys.executable, "-c", READ, str(path)], check=True, capture_output=True, text=True)
            seconds, taken_bytes = map(float, output.stdout.split())
            yield figure(f"Kineto trace of {size}", "events/s", [num_events / seconds], at_least=200_000)
            yield figure(
                f"Kineto trace of {size}, memory beyond imports", "of its size", [taken_bytes / size_bytes], at_most=3
            )


def write_trace(path: Path, size_bytes: int, *, zipped: bool = False) -> int:
    """A trace of ``size_bytes`` before zipping. Returns the number of its events."""
    number, written = 0, 0
    with gzip.open(path, "wb", compresslevel=1) if zipped else path.open("wb") as file:
        file.write(b'{\n  "schemaVersion": 1,\n  "traceEvents": [\n')
        while written < size_bytes:
            written += file.write((",\n" if number else "").encode() + _kernel(number).encode())
            number += 1
        file.write(b'\n  ],\n  "traceName": "synthetic"\n}\n')
    return 5 * number


def _kernel(number: int) -> str:
    at_us = 20 * number
    return KERNEL % {
        "id": number + 1,
        "kind": number % 97,
        "op_us": at_us,
        "launch_us": at_us + 5,
        "kernel_us": at_us + 9,
    }
