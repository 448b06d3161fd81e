"""Tiny Kineto traces, written event by event. Times are microseconds, as in the files."""

import gzip
import json
from pathlib import Path

OLD = {
    "kernel": "Kernel",
    "copy": "Memcpy",
    "memset": "Memset",
    "runtime": "Runtime",
    "op": "Operator",
    "step": "Operator",
}
NEW = {
    "kernel": "kernel",
    "copy": "gpu_memcpy",
    "memset": "gpu_memset",
    "runtime": "cuda_runtime",
    "op": "cpu_op",
    "step": "user_annotation",
}

V100 = {"id": 0, "name": "Tesla V100", "totalGlobalMem": 34084028416}


class KinetoFile:
    """Collects events; `write` makes the file. ``categories`` are those of older or newer traces."""

    def __init__(self, categories=NEW):
        self.categories = categories
        self.events = []

    def add(self, what, name, at, took, thread, **args):
        category = self.categories.get(what, what)
        event = {"ph": "X", "cat": category, "name": name, "pid": 0, "tid": thread, "ts": at, "dur": took, "args": args}
        self.events.append(event)
        return event

    def op(self, at, took, *, thread=1, name="aten::op"):
        return self.add("op", name, at, took, thread)

    def step(self, number, at, took, *, thread=1):
        return self.add("step", f"ProfilerStep#{number}", at, took, thread)

    def call(self, at, took, *, thread=1, name="cudaLaunchKernel", correlation=0):
        return self.add("runtime", name, at, took, thread, correlation=correlation)

    def sync(self, at, took, *, thread=1, name="cudaStreamSynchronize", correlation=0):
        return self.call(at, took, thread=thread, name=name, correlation=correlation)

    def on_gpu(self, what, name, at, took, correlation, *, stream=7, device=0, **args):
        args |= {"device": device, "stream": stream, "correlation": correlation}
        return self.add(what, name, at, took, stream, **args)

    def kernel(self, at, took, correlation, *, name="gemm", **place):
        return self.on_gpu("kernel", name, at, took, correlation, **place)

    def copy(self, at, took, correlation, *, size_bytes, ends="HtoD (Pageable -> Device)", **place):
        return self.on_gpu("copy", f"Memcpy {ends}", at, took, correlation, bytes=size_bytes, **place)

    def launched(self, at, took, starts, runs, correlation, *, thread=1, name="gemm", **place):
        """A launch at ``at`` that takes ``took``, and its kernel."""
        self.call(at, took, thread=thread, correlation=correlation)
        self.kernel(starts, runs, correlation, name=name, **place)

    def document(self):
        return {"schemaVersion": 1, "deviceProperties": [V100], "traceEvents": self.events}

    def write(self, path: Path, *, zipped=False, bare=False):
        content = json.dumps(self.events if bare else self.document()).encode()
        path.write_bytes(gzip.compress(content) if zipped else content)
        return path
