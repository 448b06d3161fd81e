"""The memory pass: what a plan holds at each row, exactly.

Memory belongs to the plan, not to the clock. As in PyTorch, buffers are allocated and released on the host in issue
order, so one pass over the rows gives resident bytes, their peak, and what does not fit.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stepsim.errors import OutOfMemoryError, PlanError
from stepsim.plan import Plan
from stepsim.timeline import MemorySteps
from stepsim.units import format_bytes


@dataclass(frozen=True, eq=False, kw_only=True)
class MemoryProfile:
    """Bytes resident on each device of ``plan``, for each row.

    ``during`` and ``after`` have shape (devices, rows): resident bytes while the row runs (what it allocates is there,
    what it releases still is) and when it is done. ``initial`` is what is there before the first row.
    """

    plan: Plan
    initial: NDArray[np.int64]
    during: NDArray[np.int64]
    after: NDArray[np.int64]

    def peak_bytes(self, device: str) -> int:
        index = self._index(device)
        return int(max(self.during[index].max(initial=0), self.initial[index]))

    def peak_row(self, device: str) -> int:
        """The first row at which the peak is resident."""
        return int(self.during[self._index(device)].argmax())

    def peaks(self) -> dict[str, int]:
        return {name: self.peak_bytes(name) for name in self.plan.devices.name}

    def by_role(self, device: str, row: int) -> dict[str, int]:
        """Bytes resident while ``row`` runs, by role of the buffers."""
        buffers = self.plan.buffers
        first, last = lifetimes(self.plan)
        live = (buffers.device == self._index(device)) & (first <= row) & (row <= last)
        found: dict[str, int] = {}
        for buffer in np.flatnonzero(live):
            role = buffers.role[buffer]
            found[role] = found.get(role, 0) + int(buffers.size_bytes[buffer])
        return found

    def _index(self, device: str) -> int:
        return device_index(self.plan, device)


def device_index(plan: Plan, device: str) -> int:
    """Raises `PlanError` for a device that ``plan`` does not use."""
    if device not in plan.devices.name:
        raise PlanError(f"the plan has no device {device!r}; it has {list(plan.devices.name)}")
    return plan.devices.name.index(device)


def memory_profile(plan: Plan) -> MemoryProfile:
    """One pass over ``plan``, counting the bytes of every buffer between its allocation and its release."""
    tasks, num_rows = plan.tasks, len(plan)
    gained, lost = (np.zeros((len(plan.devices), num_rows), np.int64) for _ in range(2))
    for change, lists in ((gained, tasks.allocates), (lost, tasks.releases)):
        place = (plan.buffers.device[lists.values], lists.owners())
        np.add.at(change, place, plan.buffers.size_bytes[lists.values])
    first, _ = lifetimes(plan)
    initial = np.zeros(len(plan.devices), np.int64)
    np.add.at(initial, plan.buffers.device[first < 0], plan.buffers.size_bytes[first < 0])
    after = initial[:, np.newaxis] + np.cumsum(gained - lost, axis=1)
    return MemoryProfile(plan=plan, initial=initial, during=after + lost, after=after)


def lifetimes(plan: Plan) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """For each buffer the row that allocates it (-1: there from the start) and releases it (row count: stays)."""
    first = np.full(len(plan.buffers), -1, np.int64)
    last = np.full(len(plan.buffers), len(plan), np.int64)
    first[plan.tasks.allocates.values] = plan.tasks.allocates.owners()
    last[plan.tasks.releases.values] = plan.tasks.releases.owners()
    return first, last


def check_memory(plan: Plan, limits_bytes: Mapping[str, int]) -> MemoryProfile:
    """The profile of ``plan`` if every device of ``limits_bytes`` stays within its limit.

    Raises `OutOfMemoryError` that names the first row over it, the buffer, and resident bytes by role; `PlanError` for
    a device that ``plan`` does not use.
    """
    profile = memory_profile(plan)
    for device, limit_bytes in limits_bytes.items():
        index = device_index(plan, device)
        if profile.initial[index] > limit_bytes:
            raise OutOfMemoryError(_message(profile, device, limit_bytes, NO_ROW))
        over = np.flatnonzero(profile.during[index] > limit_bytes)
        if len(over):
            raise OutOfMemoryError(_message(profile, device, limit_bytes, int(over[0])))
    return profile


NO_ROW = -1


def _message(profile: MemoryProfile, device: str, limit_bytes: int, row: int) -> str:
    plan, index = profile.plan, device_index(profile.plan, device)
    if row == NO_ROW:
        subject, used_bytes = "before the first task", profile.initial[index]
    else:
        here = [b for b in plan.tasks.allocates[row].tolist() if plan.buffers.device[b] == index]
        largest = max(here, key=lambda buffer: int(plan.buffers.size_bytes[buffer]))
        size = format_bytes(plan.buffers.size_bytes[largest])
        subject = f"row {row} ({plan.row_names()[row]}) allocates buffer {plan.buffers.name[largest]!r} of {size}"
        used_bytes = profile.during[index, row]
    roles = ", ".join(f"{role} {format_bytes(size)}" for role, size in profile.by_role(device, row).items())
    used, limit = format_bytes(used_bytes), format_bytes(limit_bytes)
    return f"out of memory on {device}: {subject}: {used} resident ({roles}), limit {limit}"


def memory_steps(profile: MemoryProfile, start_s: NDArray[np.float64], end_s: NDArray[np.float64]) -> MemorySteps:
    """The profile over the time of a run, in issue order, so that its highest step is the peak of the plan.

    A row's bytes count from the start of the row, or of an earlier-issued row that starts later; they are given back at
    its end, or when the next-issued row starts. Only changes are kept; each device begins with a step at time 0.
    """
    begin_s = np.maximum.accumulate(start_s)
    finish_s = np.minimum(np.maximum(begin_s, end_s), np.append(begin_s[1:], np.inf))
    time_s = np.concatenate([[0.0], np.column_stack([begin_s, finish_s]).ravel()])
    level = np.stack([profile.during, profile.after], axis=2).reshape(len(profile.initial), 2 * len(start_s))
    resident = np.concatenate([profile.initial[:, np.newaxis], level], axis=1)
    changes = np.diff(resident, axis=1, prepend=-1) != 0
    device, step = np.nonzero(changes)
    return MemorySteps(device.astype(np.int32), time_s[step], resident[changes])
