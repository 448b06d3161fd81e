"""What people call a row: its kind, the work, and the buffer that it is about."""

from collections.abc import Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from stepsim.errors import PlanError
from stepsim.plan import NONE, Plan, TaskKind

T = TypeVar("T", int, str)


def row_error(plan: Plan, row: int, problem: str) -> PlanError:
    return PlanError(f"row {row} ({row_name(plan, row)}): {problem}")


def row_name(plan: Plan, row: int) -> str:
    """The work, and the first buffer that the row writes, else reads, else releases."""
    tasks = plan.tasks
    about = next((lists[row][0] for lists in (tasks.writes, tasks.reads, tasks.releases) if len(lists[row])), NONE)
    buffer = "" if about == NONE else plan.buffers.name[about]
    kind = TaskKind(int(tasks.kind[row]))
    return (_head(plan, kind, int(tasks.work[row])) + buffer).strip() or kind.label


def _head(plan: Plan, kind: TaskKind, work: int) -> str:
    """The name of a row up to that of its buffer."""
    label = "" if kind in (TaskKind.COMPUTE, TaskKind.HOST) else f"{kind.label} "
    return label if work == NONE else f"{label}{plan.work.kind[work]} "


def distinct_row_names(plan: Plan) -> tuple[tuple[str, ...], NDArray[np.int32]]:
    """The names of rows, each once, in order of appearance; and for each row which of them is its own."""
    buffers, name_of_buffer = _numbered(("", *plan.buffers.name))
    subject = (plan.tasks.work.astype(np.int64) + 1) * len(TaskKind) + plan.tasks.kind
    # There are far fewer pairs of a subject and a buffer name than rows.
    pairs, pair_of_row = _numbered((subject * len(buffers) + name_of_buffer[_abouts(plan) + 1]).tolist())
    subjects, names = np.divmod(np.array(pairs, np.int64), len(buffers))
    kinds = {key: TaskKind(key % len(TaskKind)) for key in np.unique(subjects).tolist()}
    heads = {key: _head(plan, kind, key // len(TaskKind) - 1) for key, kind in kinds.items()}
    labels = [
        (heads[key] + buffers[name]).strip() or kinds[key].label
        for key, name in zip(subjects.tolist(), names.tolist(), strict=True)
    ]
    distinct, label_of_pair = _numbered(labels)
    return distinct, label_of_pair[pair_of_row]


def _abouts(plan: Plan) -> NDArray[np.int32]:
    """For each row the first buffer that it writes, else reads, else releases; NONE without one."""
    about = np.full(len(plan), NONE, np.int32)
    for lists in (plan.tasks.releases, plan.tasks.reads, plan.tasks.writes):
        has_some = np.diff(lists.starts) > 0
        about[has_some] = lists.values[lists.starts[:-1][has_some]]
    return about


def _numbered(values: Sequence[T]) -> tuple[tuple[T, ...], NDArray[np.int32]]:
    """``values``, each once, in order of appearance; and for each of ``values`` its place among them."""
    place: dict[T, int] = {}
    places = np.fromiter((place.setdefault(value, len(place)) for value in values), np.int32, len(values))
    return tuple(place), places
