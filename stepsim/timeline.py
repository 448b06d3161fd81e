"""Timeline and Span: when each task of a plan ran, simulated or measured."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Self

import numpy as np
from numpy.typing import NDArray

from stepsim.errors import FileError
from stepsim.plan import Plan, TaskKind
from stepsim.plan.names import distinct_row_names
from stepsim.tables import Columns, read_zip, write_zip

FORMAT = "stepsim-timeline"
Source = Literal["simulated", "measured"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """One task with its start and end, as people see it."""

    row: int
    name: str
    kind: TaskKind
    lane: str
    start_s: float
    end_s: float

    @property
    def duration_s(self) -> float:
        return self.end_s - self.start_s


@dataclass(frozen=True, eq=False)
class Spans(Columns):
    """One row a task, in plan order. ``name`` and ``lane`` index the names of the timeline.

    From ``ready_s`` to ``start_s`` a simulated row waits for a busy engine, or for the others of its group; a measured
    row is ready when it starts.
    """

    kind: NDArray[np.int8]
    name: NDArray[np.int32]
    lane: NDArray[np.int32]
    ready_s: NDArray[np.float64]
    start_s: NDArray[np.float64]
    end_s: NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class MemorySteps(Columns):
    """Bytes resident on a device from ``time_s`` on, in the order in which the host issued the tasks."""

    device: NDArray[np.int32]
    time_s: NDArray[np.float64]
    resident_bytes: NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Marks(Columns):
    """Named instants: the borders of steps."""

    name: tuple[str, ...]
    time_s: NDArray[np.float64]


def end_mark(step: str) -> str:
    """The mark at the end of a step, where it does not last until the next one; at its begin is ``step``."""
    return f"{step} end"


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """Spans, memory and marks of one run of a plan. Times are seconds from the start of the run.

    A lane is a stream, or a host thread for host work. ``source`` says whether it was simulated or measured.
    """

    source: Source
    plan_hash: str
    lanes: tuple[str, ...]
    names: tuple[str, ...]
    devices: tuple[str, ...]
    spans: Spans
    memory: MemorySteps
    marks: Marks

    @classmethod
    def of(
        cls,
        plan: Plan,
        start_s: NDArray[np.float64],
        end_s: NDArray[np.float64],
        source: Source,
        memory: MemorySteps | None = None,
        ready_s: NDArray[np.float64] | None = None,
    ) -> Self:
        """The timeline of ``plan`` whose row ``i`` ran from ``start_s[i]`` to ``end_s[i]``.

        Without ``ready_s`` each row was ready when it started. A mark is the start of its row.
        """
        names, name = distinct_row_names(plan)
        return cls(
            source=source,
            plan_hash=plan.content_hash,
            lanes=plan.lane_names(),
            names=names,
            devices=plan.devices.name,
            spans=Spans(
                kind=plan.tasks.kind,
                name=name,
                lane=plan.lane_of_rows(),
                ready_s=start_s if ready_s is None else ready_s,
                start_s=start_s,
                end_s=end_s,
            ),
            memory=no_memory_steps() if memory is None else memory,
            marks=Marks(plan.marks.name, start_s[plan.marks.row]),
        )

    def __len__(self) -> int:
        return len(self.spans)

    def __iter__(self) -> Iterator[Span]:
        return (self.span(row) for row in range(len(self)))

    def span(self, row: int) -> Span:
        spans = self.spans
        return Span(
            row=row,
            name=self.names[spans.name[row]],
            kind=TaskKind(int(spans.kind[row])),
            lane=self.lanes[spans.lane[row]],
            start_s=float(spans.start_s[row]),
            end_s=float(spans.end_s[row]),
        )

    @property
    def makespan_s(self) -> float:
        """From time 0 to the last end."""
        return float(self.spans.end_s.max(initial=0.0))

    def save(self, path: str | Path) -> None:
        meta = {
            "format": FORMAT,
            "source": self.source,
            "plan_hash": self.plan_hash,
            "lanes": self.lanes,
            "names": self.names,
            "devices": self.devices,
        }
        write_zip(path, meta, {"spans": self.spans, "memory": self.memory, "marks": self.marks})

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Raises `FileError` if ``path`` holds no timeline."""
        kinds = {"spans": Spans, "memory": MemorySteps, "marks": Marks}
        meta, tables = read_zip(path, FORMAT, kinds)
        try:
            timeline = cls(
                source=meta["source"],
                plan_hash=meta["plan_hash"],
                lanes=tuple(meta["lanes"]),
                names=tuple(meta["names"]),
                devices=tuple(meta["devices"]),
                **tables,
            )
        except (KeyError, TypeError) as error:
            raise FileError(path, "meta", None, f"cannot be read: {error!r}") from error
        timeline._check_indices(path)
        return timeline

    def _check_indices(self, path: str | Path) -> None:
        """Raises `FileError` for a span or memory step that names something the file does not have."""
        for field, column, size in (
            ("kind", self.spans.kind, len(TaskKind)),
            ("name", self.spans.name, len(self.names)),
            ("lane", self.spans.lane, len(self.lanes)),
            ("device", self.memory.device, len(self.devices)),
        ):
            for place in np.flatnonzero((column < 0) | (column >= size)).tolist():
                raise FileError(path, field, int(column[place]), f"must be in 0..{size - 1}")


def no_memory_steps() -> MemorySteps:
    return MemorySteps(np.zeros(0, np.int32), np.zeros(0, np.float64), np.zeros(0, np.int64))
