"""Lanes: where the rows of a plan run. One small interface, so that CUDA streams fit behind it beside the CPU."""

import ctypes
import os
import platform
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

import torch

if TYPE_CHECKING:
    from stepsim.executor.instructions import Instruction


class Lanes(Protocol):
    """A device with its queues."""

    @property
    def device(self) -> torch.device: ...

    @property
    def allocated_peak_bytes(self) -> int | None:
        """What PyTorch's allocator had handed out at most in the last run; ``None`` where it does not count."""

    def hold(self, seconds: float) -> None:
        """Keep the device busy for about so long, so that the host gets ahead; nothing where the host runs the rows."""

    def start(self, num_rows: int) -> None:
        """Begin a run of that many rows; its time starts at the first row."""

    def run(self, instruction: "Instruction", values: Sequence[torch.Tensor]) -> Sequence[torch.Tensor]:
        """Put the instruction on its lane, after the rows it waits for, and note when it starts and ends."""

    def finish(self) -> tuple[list[float], list[float]]:
        """Wait for all lanes. Start and end of each row, in seconds from the start of the run."""

    def issue_times(self) -> list[tuple[float, float]]:
        """When the host began to issue each row of the last run, and the seconds that this took it."""

    def new_host_storage(self, size_bytes: int) -> torch.Tensor:
        """Bytes in host memory that `copy` is fast with."""

    def new_storage(self, size_bytes: int, lane: int) -> torch.Tensor:
        """Bytes on the device, which `lane` owns: a row of it is to release them."""

    def copy(self, source: torch.Tensor, target: torch.Tensor) -> None:
        """Copy bytes between device and host, on the lane of the row that calls it."""


class CpuLanes:
    """All rows run inline in issue order, whatever their lane: order alone keeps every wait."""

    device = torch.device("cpu")
    allocated_peak_bytes = None

    def __init__(self) -> None:
        keep_freed_memory()
        self._starts_s: list[float] = []
        self._ends_s: list[float] = []

    def hold(self, seconds: float) -> None:
        pass

    def start(self, num_rows: int) -> None:
        self._starts_s = [0.0] * num_rows
        self._ends_s = [0.0] * num_rows
        self._zero_s = time.perf_counter()

    def run(self, instruction: "Instruction", values: Sequence[torch.Tensor]) -> Sequence[torch.Tensor]:
        self._starts_s[instruction.row] = time.perf_counter()
        outputs = instruction.action(values)
        self._ends_s[instruction.row] = time.perf_counter()
        return outputs

    def finish(self) -> tuple[list[float], list[float]]:
        zero_s = self._zero_s
        return [time_s - zero_s for time_s in self._starts_s], [time_s - zero_s for time_s in self._ends_s]

    def issue_times(self) -> list[tuple[float, float]]:
        """The gap before each row: rows run on the host itself."""
        before_s = [self._zero_s, *self._ends_s[:-1]]
        return [(end - self._zero_s, start - end) for end, start in zip(before_s, self._starts_s, strict=False)]

    def new_host_storage(self, size_bytes: int) -> torch.Tensor:
        return torch.zeros(size_bytes, dtype=torch.uint8)

    def new_storage(self, size_bytes: int, lane: int) -> torch.Tensor:
        return torch.empty(size_bytes, dtype=torch.uint8)

    def copy(self, source: torch.Tensor, target: torch.Tensor) -> None:
        target.copy_(source)


def use_threads(number: int | None = None) -> int:
    """Let each op run on ``number`` threads of this CPU, by default on all cores but one; how many it is.

    The threads of an op wait for each other, so that on a machine with every core in use, one that is needed elsewhere
    for a moment makes the op several times slower. A spare core keeps times steady.
    """
    threads = max(1, (os.cpu_count() or 1) - 1) if number is None else number
    torch.set_num_threads(threads)
    return threads


M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_MAX = -1, -2, -4
"""Parameters of glibc's mallopt(3)."""


def keep_freed_memory() -> None:
    """Let the C library keep freed memory, so that an op pays for page faults in its first run only.

    A step allocates the same sizes again and again; by default glibc maps and unmaps large ones each time. Where the
    library is another one this does nothing.
    """
    if platform.libc_ver()[0] != "glibc":
        return
    libc = ctypes.CDLL(None)
    libc.mallopt(M_MMAP_MAX, 0)
    libc.mallopt(M_TRIM_THRESHOLD, 2**31 - 1)
    libc.mallopt(M_TOP_PAD, 2**28)
