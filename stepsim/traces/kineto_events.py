"""The events of a Kineto trace as columns.

Kineto writes complete events (``"ph": "X"``) with times in microseconds. Its categories changed names over the years;
both generations are read. Categories that no reader of steps needs (Python frames, the profiler's own overhead,
annotations that Kineto projects onto the GPU) are ignored, and so are unknown ones.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stepsim.traces.kineto_block import Block
from stepsim.traces.kineto_sizes import size_bytes

CATEGORIES = {
    "kernel": "kernel",
    "memcpy": "copy",
    "gpu_memcpy": "copy",
    "memset": "memset",
    "gpu_memset": "memset",
    "runtime": "call",
    "cuda_runtime": "call",
    "cuda_driver": "call",
    "operator": "host",
    "cpu_op": "host",
    "user_annotation": "host",
    "cuda_sync": "note",
}
"""Lower-cased category to what it holds; a ``note`` says what the call of the same correlation waited for."""


class EventReader:
    """Takes the entries of the file ``path``, one list after the other; what many events share is kept once, here.

    Attributes
    ----------
    labels
        What an event is, by what its category holds and its name: a number for each.
    notes
        Arguments of notes, by correlation; 0 is none.
    odd_sizes
        Places in the file of what can be no size.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = path
        self.labels: dict[tuple[str, str], int] = {}
        self.notes: dict[int, Mapping[str, Any]] = {}
        self.odd_sizes: list[int] = []
        self._num_entries = 0

    def columns(self, entries: list[Any]) -> dict[str, NDArray[Any]]:
        """The complete events of known categories, one row each, times in microseconds.

        ``place`` is the index in the file, ``label`` a number of `labels`. ``correlation`` (of host work ``external``),
        ``device``, ``stream`` and ``thread`` are -1 where there is none. Raises `FileError` for a field of a wrong type
        or an absurd value.
        """
        block = Block(self.path, entries, self._num_entries, CATEGORIES)
        self._num_entries += len(entries)
        on_device, on_host = block.rows_of("kernel", "copy", "memset"), block.rows_of("call", "host")
        correlation = block.ids("correlation")
        notes = [row for row in block.rows_of("note") if correlation[row] > 0]
        self.notes |= {int(correlation[row]): block.args[row] for row in notes}
        return {
            "place": np.array(block.places, dtype=np.int64),
            "label": np.array(self._labels(block), dtype=np.int64),
            "start_us": block.times_us("ts"),
            "duration_us": block.durations_us("dur"),
            "device": block.integers(on_device, "args.device", block.arguments(on_device, "device", "pid")),
            "stream": block.integers(on_device, "args.stream", block.arguments(on_device, "stream", "tid")),
            "thread": block.integers(on_host, "tid", [block.events[row].get("tid") for row in on_host]),
            "correlation": correlation,
            "external": block.ids("External id"),
            "size_bytes": self._sizes_bytes(block),
        }

    def _labels(self, block: Block) -> list[int]:
        labels = self.labels
        return [labels.setdefault(label, len(labels)) for label in zip(block.kinds, block.names, strict=True)]

    def _sizes_bytes(self, block: Block) -> NDArray[np.int64]:
        sizes_bytes = np.zeros(len(block.events), dtype=np.int64)
        for row in block.rows_of("kernel", "copy", "memset", "call"):
            moved_bytes = size_bytes(block.kinds[row], block.args[row])
            if moved_bytes is None:
                self.odd_sizes.append(block.places[row])
            elif moved_bytes:
                sizes_bytes[row] = moved_bytes
        return sizes_bytes
