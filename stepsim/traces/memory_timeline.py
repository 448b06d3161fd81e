"""The memory timeline of ``torch.profiler``, raw: which bytes came, went and changed their category.

Meaning of the numbers: pytorch/pytorch, torch/profiler/_memory_profiler.py (`Action` and the order of the categories).
The file has neither addresses nor names, so an end belongs to the oldest of the same size. Sizes of what is created are
those of the allocator's blocks; what was there before is known by its tensors.
"""

import re
import warnings
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
from stepsim.traces.log_lines import LARGEST_BYTES
from stepsim.traces.whole_files import read_whole


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

FIELDS = 4
"""Time, action, bytes and category."""

GPU = "gpu0"

LARGEST_FILE_BYTES = 2**26
"""Unzipped: two million entries. A step of ResNet-50 has some 8,000."""


@dataclass(frozen=True, eq=False)
class MemoryTimeline(Columns):
    """``change_bytes`` are signed; a new version leaves one category and enters another. Before time 0: from the start.

    ``category`` indexes `CATEGORIES`.
    """

    time_ns: NDArray[np.int64]
    action: NDArray[np.int64]
    change_bytes: NDArray[np.int64]
    category: NDArray[np.int64]


def looks_like_memory_timeline(head: bytes) -> bool:
    return re.match(rb"\s*\[\s*\[\s*-?\d+\s*,\s*[1-4]\s*,", head) is not None


def read_memory_timeline(path: str | Path) -> MemoryTimeline:
    """Read what ``export_memory_timeline`` wrote as ``.raw.json.gz``, or plain. Raises `FileError` for others.

    Warns, once of each, of more numbers an entry than are known, and of times that go back: the order counts.
    """
    timeline = MemoryTimeline(*_columns(path))
    for field, column, lowest, highest in (
        ("action", timeline.action, min(Action), max(Action)),
        ("bytes", timeline.change_bytes, -LARGEST_BYTES, LARGEST_BYTES),
        ("category", timeline.category, 0, len(CATEGORIES) - 1),
    ):
        for place in np.flatnonzero((column < lowest) | (column > highest))[:1].tolist():
            raise FileError(path, f"[{place}].{field}", int(column[place]), f"must be in {lowest}..{highest}")
    early = np.flatnonzero(np.diff(timeline.time_ns) < 0)
    if len(early):
        problem = f"{len(early)} of {len(timeline)} entries are earlier than the one before them: read in their order"
        warnings.warn(f"{path}: [{early[0] + 1}].time: {problem}", stacklevel=2)
    return timeline


def _columns(path: str | Path) -> NDArray[np.int64]:
    problem = "is no list of [time, action, bytes, category], in whole numbers"
    content = read_whole(path, LARGEST_FILE_BYTES)
    try:
        columns = np.array(orjson.loads(content)).T
    except ValueError as error:
        raise FileError(path, "file", None, f"{problem}: {error}") from error
    if columns.dtype != np.int64 or columns.ndim != 2 or not FIELDS <= len(columns) < 2 * FIELDS:
        raise FileError(path, "file", None, problem)
    if len(columns) > FIELDS:
        warnings.warn(f"{path}: entries have {len(columns)} numbers: the first {FIELDS} are read", stacklevel=3)
    return columns[:FIELDS]


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
