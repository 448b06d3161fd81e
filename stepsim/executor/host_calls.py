"""What calls to CUDA take their host: launches, synchronisation, events, and copies that hold the thread.

All by the host's clock. A copy of pageable memory goes through a buffer of the driver, and a copy to it holds the
thread: both are timed to the end of the stream. Calls of a kind are timed `CALLS` at once, for their mean.
"""

import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

Event = dict[str, Any]
"""Some columns of an event of a `Trace`."""

CALLS = 100
"""Few, so that they fit the queue of a stream: a call that finds it full waits for the device."""


class HostCalls:
    """Times calls on a stream of their own, of a device that has nothing else to do."""

    def __init__(self, device: torch.device, sizes_bytes: Sequence[int]) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._event = torch.cuda.Event()  # type: ignore[no-untyped-call]
        self._sizes_bytes = sizes_bytes
        self._host = torch.ones(max(sizes_bytes), dtype=torch.uint8)
        self._there = torch.ones(max(sizes_bytes), dtype=torch.uint8, device=device)
        self._number = torch.ones(1, device=device)

    def timed(self) -> list[Event]:
        """One event of a trace for each call and each copy, times from the start of the first."""
        torch.cuda.synchronize(self._device)
        zero_s = time.perf_counter()
        with torch.cuda.stream(self._stream), torch.no_grad():
            calls = [
                self._mean("host", "launch of an empty kernel", self._launch, 1),
                self._mean("host", "launch of an empty kernel, one of many", self._launch, CALLS),
                self._mean("host", "launch of an op on one number", lambda: self._number.add_(1), CALLS),
                self._mean("sync", "synchronize an idle stream", self._stream.synchronize, CALLS),
                self._mean("record", "record an event", lambda: self._event.record(self._stream), CALLS),
                self._mean("wait", "wait for an event", lambda: self._stream.wait_event(self._event), CALLS),
            ]
            copies = [row for size_bytes in self._sizes_bytes for row in self._copies(size_bytes)]
        return [{**row, "start_s": row["start_s"] - zero_s, "thread": 0} for row in (*calls, *copies)]

    def _launch(self) -> None:
        torch.cuda._sleep(0)  # type: ignore[no-untyped-call]

    def _mean(self, kind: str, name: str, call: Callable[[], object], times: int) -> Event:
        began_s = time.perf_counter()
        for _ in range(times):
            call()
        seconds = (time.perf_counter() - began_s) / times
        self._stream.synchronize()
        return {"kind": kind, "name": name, "start_s": began_s, "duration_s": seconds}

    def _copies(self, size_bytes: int) -> list[Event]:
        host, there = self._host[:size_bytes], self._there[:size_bytes]
        facts: Event = {"kind": "copy", "name": "pageable copy", "size_bytes": size_bytes}
        return [
            {**facts, "source": "device", "destination": "pageable", **self._copy(there, host)},
            {**facts, "source": "pageable", "destination": "device", **self._copy(host, there)},
        ]

    def _copy(self, source: torch.Tensor, target: torch.Tensor) -> Event:
        began_s = time.perf_counter()
        target.copy_(source)
        self._stream.synchronize()
        return {"start_s": began_s, "duration_s": time.perf_counter() - began_s}
