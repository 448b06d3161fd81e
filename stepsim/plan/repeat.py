"""Joins copies of a step, so that input loading, deferred updates and asynchronous pipelines run into the next one.

::

    step 0   the rows of the plan
    step 1   releases of what step 0 left behind, the rows of the plan
    step 2   releases of what step 1 left behind, the rows of the plan

What a step has to do with the one before it, `stepsim.plan.joint` says; here columns are laid end to end.
"""

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stepsim.errors import PlanError
from stepsim.plan import NONE, BufferTable, MarkTable, Plan, TaskTable
from stepsim.plan.check import check_plan
from stepsim.plan.joint import Numbers, left_behind, taken_from, waits_across, with_releases
from stepsim.tables import Ragged


def repeat(plan: Plan, steps: int) -> Plan:
    """``steps`` copies of ``plan``, which is one step, joined. They begin at the marks ``step 0``, ``step 1``, ...

    Other marks are dropped. Raises `PlanError` for less than one step, for a plan without rows, for a buffer that is
    there from the start and released while the step leaves no other in its place, and for one left behind that no
    stream could release.
    """
    if steps < 1:
        raise PlanError(f"repeat: steps must be >= 1, got {steps}")
    if not len(plan):
        raise PlanError("repeat: the plan has no rows")
    if steps == 1:
        return replace(plan, marks=_marks(np.zeros(1, np.int64)))
    source = taken_from(plan)
    block = with_releases(plan, left_behind(plan, source))
    num_releases = len(block) - len(plan)
    joined = replace(
        plan,
        tasks=_joined_tasks(block, source, steps, num_rows=len(block) * steps - num_releases),
        buffers=_joined_buffers(plan.buffers, source, steps),
        marks=_marks(np.maximum(np.arange(steps) * len(block) - num_releases, 0)),
    )
    check_plan(joined)
    return joined


def _marks(rows: Numbers) -> MarkTable:
    return MarkTable(tuple(f"step {step}" for step in range(len(rows))), rows)


def _joined_buffers(buffers: BufferTable, source: Numbers, steps: int) -> BufferTable:
    """All buffers of the plan, then for each further step those that a step allocates."""
    index = np.concatenate([np.arange(len(buffers)), np.tile(np.flatnonzero(source == NONE), steps - 1)])
    columns: dict[str, Any] = {
        name: column[index] if isinstance(column, np.ndarray) else tuple(map(column.__getitem__, index.tolist()))
        for name, column in buffers.columns().items()
    }
    return BufferTable(**columns)


def _buffer_numbers(source: Numbers, steps: int) -> list[Numbers]:
    """For each step, where each buffer of the plan is in the table of `_joined_buffers`."""
    allocated = np.flatnonzero(source == NONE)
    numbers = [np.arange(len(source))]
    for step in range(steps - 1):
        number = numbers[-1][source]
        number[allocated] = len(source) + len(allocated) * step + np.arange(len(allocated))
        numbers.append(number)
    return numbers


def _joined_tasks(block: Plan, source: Numbers, steps: int, num_rows: int) -> TaskTable:
    """The first ``num_rows`` of ``steps`` times ``block``: what the last step leaves behind, nobody releases."""
    numbers = _buffer_numbers(source, steps)
    columns: dict[str, Any] = {"dependencies": _joined_dependencies(block, source, steps)}
    for name in BUFFER_LISTS:
        lists: Ragged = getattr(block.tasks, name)
        columns[name] = Ragged.chained([Ragged(lists.starts, number[lists.values]) for number in numbers])
    for name, column in block.tasks.columns().items():
        if isinstance(column, np.ndarray):
            columns[name] = np.tile(column, steps)
    columns["group"] = _joined_groups(block.tasks.group, steps)
    return TaskTable(**{name: _first(num_rows, column) for name, column in columns.items()})


BUFFER_LISTS = ("reads", "writes", "allocates", "releases")


def _first(size: int, column: Any) -> Any:
    if isinstance(column, Ragged):
        return Ragged(column.starts[: size + 1], column.values[: column.starts[size]])
    return column[:size]


def _joined_groups(group: NDArray[np.int32], steps: int) -> NDArray[np.int32]:
    """Each step has groups of its own."""
    shift = np.arange(steps, dtype=np.int32)[:, np.newaxis] * (group.max() + np.int32(1))
    return np.where(group == NONE, group, group + shift).ravel()


def _joined_dependencies(block: Plan, source: Numbers, steps: int) -> Ragged:
    """Those of the block in the first step; in each further step also those on the step before."""
    own, size = block.tasks.dependencies, len(block)
    rows, waits = waits_across(block, source)
    # Of a further step, counted from the first row of the step before it.
    both = Ragged.from_pairs(np.append(own.owners(), rows), np.append(own.values + size, waits), size)
    return Ragged.chained([own, *(Ragged(both.starts, both.values + step * size) for step in range(steps - 1))])
