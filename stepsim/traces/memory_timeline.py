"""The memory timeline of ``torch.profiler``, raw: which bytes came, went and changed their category.

Meaning of the numbers: pytorch/pytorch, torch/profiler/_memory_profiler.py (`Action` and the order of the categories).
The file has neither addresses nor names, so an end belongs to the oldest of the same size. Sizes of what is created are
those of the allocator's blocks; what was there before is known by its tensors.
"""

import gzip
import zlib
from collections import defaultdict, deque
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

import numpy as np
import orjson
from numpy.typing import NDArray

from stepsim.errors import FileError
from stepsim.plan import Plan
from stepsim.plan.builder import PlanBuilder
from stepsim.tables import Columns


class Action(IntEnum):
    PREEXISTING = 1
    CREATE = 2
    INCREMENT_VERSION = 3
    DESTROY = 4


CATEGORIES = (
    "parameter",
    "optimizer_state",
    "input",
    "temporary",
    "activation",
    "gradient",
    "autograd_detail",
    "unknown",
)

GPU = "gpu0"


@dataclass(frozen=True, eq=False)
class MemoryTimeline(Columns):
    """``change_bytes`` are signed; a new version leaves one category and enters another. Before time 0: from the start.

    ``category`` indexes `CATEGORIES`.
    """

    time_ns: NDArray[np.int64]
    action: NDArray[np.int64]
    change_bytes: NDArray[np.int64]
    category: NDArray[np.int64]


def read_memory_timeline(path: str | Path) -> MemoryTimeline:
    """Read what ``export_memory_timeline`` wrote as ``.raw.json.gz``, or plain. Raises `FileError` for others."""
    try:
        content = Path(path).read_bytes()
        entries = orjson.loads(gzip.decompress(content) if content.startswith(b"\x1f\x8b") else content)
        columns = np.array(entries, np.int64).reshape(-1, 4).T
    except (OSError, EOFError, ValueError, TypeError, OverflowError, zlib.error) as error:
        raise FileError(path, "file", None, f"is no list of [time, action, bytes, category]: {error}") from error
    timeline = MemoryTimeline(*columns)
    for field, column, lowest, highest in (
        ("action", timeline.action, min(Action), max(Action)),
        ("category", timeline.category, 0, len(CATEGORIES) - 1),
    ):
        for place in np.flatnonzero((column < lowest) | (column > highest))[:1].tolist():
            raise FileError(path, f"[{place}].{field}", int(column[place]), f"must be in {lowest}..{highest}")
    return timeline


def plan_of_allocations(timeline: MemoryTimeline) -> Plan:
    """A plan on one stream of one GPU: a row for each buffer that was created or destroyed, in the recorded order.

    Its rows do nothing else, so that it serves the memory pass. Raises `FileError` for an end without a beginning.
    """
    builder = PlanBuilder()
    gpu = builder.device(GPU)
    stream = builder.stream("stream", gpu)
    create = builder.work("create")
    live: dict[int, deque[int]] = defaultdict(deque)
    columns = (timeline.action.tolist(), timeline.change_bytes.tolist(), timeline.category.tolist())
    for place, (action, change_bytes, category) in enumerate(zip(*columns, strict=True)):
        if action == Action.INCREMENT_VERSION:
            continue
        if action == Action.DESTROY:
            if not live[-change_bytes]:
                raise FileError("memory timeline", f"[{place}].bytes", change_bytes, "must end what has begun")
            builder.release([live[-change_bytes].popleft()], stream)
            continue
        buffer = builder.buffer(change_bytes, gpu, owner=stream, role=CATEGORIES[category])
        live[change_bytes].append(buffer)
        if action == Action.CREATE:
            builder.compute(create, stream, writes=[buffer], allocates=[buffer])
    return builder.build()
