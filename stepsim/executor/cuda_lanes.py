"""CudaLanes: a CUDA stream for each lane, fed by one host thread that runs ahead of them.

    host      row 0 | row 1 | row 2 | ...                 enqueues and goes on
    lane 0    start | kernels of row 0 | end    start | kernels of row 2 | end
    lane 1              wait for row 0's end    start | copy of row 1    | end

Memory is safe without ``record_stream``, whose reuse depends on how far the device has come. PyTorch's allocator hands
a freed block to the next who allocates on the stream that the block came from, in the order of the host. A checked
plan orders the rest: whoever releases a buffer stands on its owner's stream and waits for all its users; a row that
makes a buffer for another lane waits for that lane's last row, and takes the block from that lane (`new_storage`).

A measured row holds, besides its work, what the events take, and the wait for the host where that lags behind.
"""

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from stepsim.errors import OutOfMemoryError

if TYPE_CHECKING:
    from stepsim.executor.instructions import Instruction

CYCLES_PER_S = 2e9
"""How fast a GPU counts while it is held: about the highest clock of an H200, 1.98 GHz. A slower one is held longer."""

MS_PER_S = 1000


class CudaLanes:
    """The lanes of the CUDA device ``device``. Events and streams are made once and used in every run."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.allocated_peak_bytes: int | None = None
        self._streams: dict[int, torch.cuda.Stream] = {}
        self._zero = _event()
        self._starts: list[torch.cuda.Event] = []
        self._ends: list[torch.cuda.Event] = []
        self._issued_s: list[float] = []

    def hold(self, seconds: float) -> None:
        with torch.cuda.device(self.device):
            torch.cuda._sleep(round(seconds * CYCLES_PER_S))  # type: ignore[no-untyped-call]

    def start(self, num_rows: int) -> None:
        """All lanes wait for the current stream: there callers make inputs, and look at what the last run gave.

        It waits for what a run that failed has left on the lanes.
        """
        torch.cuda.reset_peak_memory_stats(self.device)
        for stream in self._streams.values():
            torch.cuda.current_stream(self.device).wait_stream(stream)
        for events in (self._starts, self._ends):
            events.extend(_event() for _ in range(num_rows - len(events)))
        self._zero.record(torch.cuda.current_stream(self.device))
        for stream in self._streams.values():
            stream.wait_event(self._zero)
        self._issued_s = [time.perf_counter()]

    def run(self, instruction: "Instruction", values: Sequence[torch.Tensor]) -> Sequence[torch.Tensor]:
        """Raises `OutOfMemoryError` where the device has no memory left for the row."""
        stream = self._stream(instruction.lane)
        with torch.cuda.stream(stream):
            for row in instruction.waits:
                stream.wait_event(self._ends[row])
            self._starts[instruction.row].record(stream)
            outputs = self._act(instruction, values)
            self._ends[instruction.row].record(stream)
        self._issued_s.append(time.perf_counter())
        return outputs

    def _act(self, instruction: "Instruction", values: Sequence[torch.Tensor]) -> Sequence[torch.Tensor]:
        try:
            return instruction.action(values)
        except torch.OutOfMemoryError as error:
            torch.cuda.synchronize(self.device)  # nothing may still read what the caller now lets go
            told = str(error).partition("\n")[0]
            raise OutOfMemoryError(f"row {instruction.row}: {self.device} has no memory left: {told}") from error

    def finish(self) -> tuple[list[float], list[float]]:
        torch.cuda.synchronize(self.device)
        self.allocated_peak_bytes = torch.cuda.max_memory_allocated(self.device)
        num_rows = len(self._issued_s) - 1
        return self._seconds(self._starts[:num_rows]), self._seconds(self._ends[:num_rows])

    def _seconds(self, events: Sequence[torch.cuda.Event]) -> list[float]:
        return [self._zero.elapsed_time(event) / MS_PER_S for event in events]

    def issue_times(self) -> list[tuple[float, float]]:
        """From the end of one row's issue to the end of the next: what a row costs its host in all."""
        began_s, *done_s = self._issued_s
        return [(before - began_s, after - before) for before, after in zip(self._issued_s, done_s, strict=False)]

    def new_host_storage(self, size_bytes: int) -> torch.Tensor:
        return torch.zeros(size_bytes, dtype=torch.uint8, pin_memory=True)

    def new_storage(self, size_bytes: int, lane: int) -> torch.Tensor:
        with torch.cuda.stream(self._stream(lane)):
            return torch.empty(size_bytes, dtype=torch.uint8, device=self.device)

    def copy(self, source: torch.Tensor, target: torch.Tensor) -> None:
        target.copy_(source, non_blocking=True)

    def _stream(self, lane: int) -> torch.cuda.Stream:
        """A stream that is made within a run waits as the others did when it started."""
        if lane not in self._streams:
            self._streams[lane] = torch.cuda.Stream(self.device)  # type: ignore[no-untyped-call]
            self._streams[lane].wait_event(self._zero)
        return self._streams[lane]


def _event() -> torch.cuda.Event:
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
