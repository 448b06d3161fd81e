"""PacedLanes: a CPU with copy lanes of their own, as slow as a link would be. An emulated link, and called so.

    host      row 0 | row 1 | row 2 | ...     computes in issue order, and waits for copies where the plan does
    copies        copy of row 1 .......       a thread for each copy lane, in order; sleeps till a link would be done

Computing runs inline, as with `CpuLanes`. A copy begins when it is issued and its lane is free, and takes ``latency_s +
bytes / bytes_per_s``, or what memory takes, if that is longer. Memory for what comes back is taken when the row is
issued, in the order of the host, so that the bytes are those of the plan.
"""

import time
from collections.abc import Sequence
from queue import SimpleQueue
from threading import Event, Thread
from typing import TYPE_CHECKING

import torch

from stepsim.errors import StepsimError
from stepsim.executor.lanes import CpuLanes

if TYPE_CHECKING:
    from stepsim.executor.instructions import Instruction

Job = tuple["Instruction", torch.Tensor, torch.Tensor]


class PacedLanes(CpuLanes):
    """Lanes of this CPU, and an emulated link of ``bytes_per_s`` each way. Raises `StepsimError` unless that is > 0."""

    def __init__(self, bytes_per_s: float, latency_s: float = 0.0) -> None:
        super().__init__()
        if not bytes_per_s > 0 or not latency_s >= 0:
            told = f"bytes_per_s must be > 0 and latency_s >= 0, got {bytes_per_s} and {latency_s}"
            raise StepsimError(f"emulated link: {told}")
        self.bytes_per_s, self.latency_s = bytes_per_s, latency_s
        self._queues: dict[int, SimpleQueue[Job]] = {}
        self._done: list[Event] = []
        self._issuing: Instruction | None = None

    def start(self, num_rows: int) -> None:
        self._done = [Event() for _ in range(num_rows)]
        super().start(num_rows)

    def run(self, instruction: "Instruction", values: Sequence[torch.Tensor]) -> Sequence[torch.Tensor]:
        if instruction.copies:
            self._issuing = instruction
            return instruction.action(values)
        for row in instruction.waits:
            self._done[row].wait()
        outputs = super().run(instruction, values)
        self._done[instruction.row].set()
        return outputs

    def copy(self, source: torch.Tensor, target: torch.Tensor) -> None:
        """Hand the copy of the row that is being issued to its lane."""
        assert self._issuing is not None, "only rows that copy call this"
        self._queue(self._issuing.lane).put((self._issuing, source, target))

    def finish(self) -> tuple[list[float], list[float]]:
        for done in self._done:
            done.wait()
        return super().finish()

    def _queue(self, lane: int) -> "SimpleQueue[Job]":
        if lane not in self._queues:
            self._queues[lane] = SimpleQueue()
            Thread(target=self._serve, args=(self._queues[lane],), daemon=True, name=f"copy lane {lane}").start()
        return self._queues[lane]

    def _serve(self, queue: "SimpleQueue[Job]") -> None:
        while True:
            instruction, source, target = queue.get()
            for row in instruction.waits:
                self._done[row].wait()
            self._starts_s[instruction.row] = start_s = time.perf_counter()
            target.copy_(source)
            time.sleep(max(0.0, start_s + self.latency_s + source.numel() / self.bytes_per_s - time.perf_counter()))
            self._ends_s[instruction.row] = time.perf_counter()
            # Before anybody hears of it: a name here would keep memory alive that the plan has given back.
            del source, target
            self._done[instruction.row].set()
