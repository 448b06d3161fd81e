"""The memory pass: what a plan holds at each row, and what an allocator reserves for it.

Memory belongs to the plan, not to the clock. As in PyTorch, buffers are allocated and released on the host in issue
order, so one pass over the rows gives resident bytes, their peak, and what does not fit.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, Self, get_args

import numpy as np
from numpy.typing import NDArray

from stepsim.errors import PlanError, StepsimError
from stepsim.memory.levels import Levels, exact_bytes, levels, memory_events
from stepsim.memory.out_of_memory import bytes_by_role, over_the_limit
from stepsim.plan import Plan
from stepsim.timeline import MemorySteps

Accounting = Literal["exact", "caching"]
"""``exact`` counts the bytes of every buffer; with ``caching`` PyTorch's caching allocator serves them."""


@dataclass(frozen=True, eq=False, kw_only=True)
class MemoryProfile:
    """Bytes on each device of ``plan``, row by row.

    ``resident`` is what the buffers take, ``buffer_bytes`` each (shape (buffers,)), and ``reserved`` what the device
    has given for them. In ``exact`` accounting the two are the same; in ``caching`` a buffer takes a block.
    """

    plan: Plan
    accounting: Accounting
    buffer_bytes: NDArray[np.int64]
    resident: Levels
    reserved: Levels

    @classmethod
    def exact(cls, plan: Plan, resident: Levels) -> Self:
        """The profile of ``plan`` if a buffer takes the bytes that it has."""
        size_bytes = plan.buffers.size_bytes
        return cls(plan=plan, accounting="exact", buffer_bytes=size_bytes, resident=resident, reserved=resident)

    def peak_bytes(self, device: str) -> int:
        return self.resident.peak_bytes(device_index(self.plan, device))

    def peak_reserved_bytes(self, device: str) -> int:
        return self.reserved.peak_bytes(device_index(self.plan, device))

    def peak_row(self, device: str) -> int:
        """The first row at which the peak is resident."""
        return self.resident.peak_row(device_index(self.plan, device))

    def peaks(self) -> dict[str, int]:
        return {name: self.resident.peak_bytes(index) for index, name in enumerate(self.plan.devices.name)}

    def by_row(self, device: str) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Bytes resident while each row runs, and when it is done: shape (rows,) each."""
        return self.resident.by_row(device_index(self.plan, device), len(self.plan))

    def by_role(self, device: str, row: int) -> dict[str, int]:
        """Bytes resident while ``row`` runs, by role of the buffers."""
        live = _live(self.plan, device_index(self.plan, device), row)
        return bytes_by_role(self.plan, live, self.buffer_bytes)


def device_index(plan: Plan, device: str) -> int:
    """Raises `PlanError` for a device that ``plan`` does not use."""
    if device not in plan.devices.name:
        raise PlanError(f"the plan has no device {device!r}; it has {list(plan.devices.name)}")
    return plan.devices.name.index(device)


def memory_profile(plan: Plan, accounting: Accounting = "exact") -> MemoryProfile:
    """One pass over ``plan``. ``caching`` accounting counts devices without streams, such as the host, exactly."""
    return check_memory(plan, {}, accounting)


def check_memory(plan: Plan, limits_bytes: Mapping[str, int], accounting: Accounting = "exact") -> MemoryProfile:
    """The profile of ``plan`` if every device of ``limits_bytes`` stays within its limit.

    In ``caching`` accounting that is the limit of what is reserved: an allocator that reaches it gives back what it
    caches. Raises `OutOfMemoryError` that names the first row over it, the buffer, and resident bytes by role;
    `PlanError` for a device that ``plan`` does not use; `StepsimError` for another accounting.
    """
    limits = {device_index(plan, device): limit_bytes for device, limit_bytes in limits_bytes.items()}
    match accounting:
        case "exact":
            profile = _exact(plan)
        case "caching":
            profile = _caching(plan, limits)
        case _:
            raise StepsimError(f"accounting must be one of {list(get_args(Accounting))}, got {accounting!r}")
    for device, limit_bytes in limits.items():
        row = profile.reserved.first_over(device, limit_bytes)
        if row is not None:
            used_bytes = profile.reserved.while_row(device, row)
            raise over_the_limit(plan, device, row, _live(plan, device, row), used_bytes, limit_bytes)
    return profile


def _exact(plan: Plan) -> MemoryProfile:
    events = memory_events(plan)
    return MemoryProfile.exact(plan, levels(events, exact_bytes(events, plan.buffers.size_bytes)))


def _caching(plan: Plan, limits: Mapping[int, int]) -> MemoryProfile:
    from stepsim.memory.caching import serve_buffers

    events = memory_events(plan)
    buffer_bytes, resident, reserved = serve_buffers(plan, events, limits)
    return MemoryProfile(
        plan=plan,
        accounting="caching",
        buffer_bytes=buffer_bytes,
        resident=levels(events, resident),
        reserved=levels(events, reserved),
    )


def lifetimes(plan: Plan) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """For each buffer the row that allocates it (-1: there from the start) and releases it (row count: stays)."""
    first = np.full(len(plan.buffers), -1, np.int64)
    last = np.full(len(plan.buffers), len(plan), np.int64)
    first[plan.tasks.allocates.values] = plan.tasks.allocates.owners()
    last[plan.tasks.releases.values] = plan.tasks.releases.owners()
    return first, last


def _live(plan: Plan, device: int, row: int) -> NDArray[np.bool_]:
    """The buffers that are on ``device`` while ``row`` runs."""
    first, last = lifetimes(plan)
    here: NDArray[np.bool_] = plan.buffers.device == device
    return here & (first <= row) & (row <= last)


def memory_steps(profile: MemoryProfile, start_s: NDArray[np.float64], end_s: NDArray[np.float64]) -> MemorySteps:
    """The profile over the time of a run, in issue order, so that its highest step is the peak of the plan.

    A row's bytes count from the start of the row, or of an earlier-issued row that starts later; they are given back at
    its end, or when the next-issued row starts. Only changes are kept; each device begins with a step at time 0.
    """
    begin_s = np.maximum.accumulate(start_s)
    finish_s = np.minimum(np.maximum(begin_s, end_s), np.append(begin_s[1:], np.inf))
    resident = profile.resident
    rows, num_devices = resident.rows, len(resident.initial)
    device = np.repeat(np.arange(num_devices, dtype=np.int32), 1 + 2 * np.diff(rows.starts))
    initial = np.arange(num_devices) + 2 * rows.starts[:-1]
    begin = rows.owners() + 1 + 2 * np.arange(len(rows.values))
    time_s, level = np.zeros(len(device)), np.empty(len(device), np.int64)
    level[initial], level[begin], level[begin + 1] = resident.initial, resident.during, resident.after
    time_s[begin], time_s[begin + 1] = begin_s[rows.values], finish_s[rows.values]
    kept = np.diff(level, prepend=-1) != 0
    kept[initial] = True
    return MemorySteps(device[kept], time_s[kept], level[kept])
