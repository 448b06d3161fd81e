"""What to say when a plan needs more than a device has."""

import numpy as np
from numpy.typing import NDArray

from stepsim.errors import OutOfMemoryError
from stepsim.memory.levels import NO_ROW, MemoryEvents
from stepsim.plan import Plan
from stepsim.units import format_bytes


def over_the_limit(
    plan: Plan, device: int, row: int, live: NDArray[np.bool_], used_bytes: int, limit_bytes: int
) -> OutOfMemoryError:
    """The bytes of the buffers ``live`` at ``row`` are more than ``limit_bytes``."""
    subject = "before the first task"
    if row != NO_ROW:
        here = [b for b in plan.tasks.allocates[row].tolist() if plan.buffers.device[b] == device]
        largest = max(here, key=lambda buffer: int(plan.buffers.size_bytes[buffer]))
        subject = _allocation(plan, row, largest)
    held = _held(plan, live, plan.buffers.size_bytes, used_bytes)
    return _error(plan, device, f"{subject}: {held}", limit_bytes)


def no_room(
    plan: Plan,
    device: int,
    events: MemoryEvents,
    failed: int,
    buffer_bytes: NDArray[np.int64],
    resident_bytes: int,
    reserved_bytes: int,
    limit_bytes: int,
) -> OutOfMemoryError:
    """Event ``failed`` found neither a free block nor room for a segment, while buffers took ``buffer_bytes`` each."""
    before = slice(int(events.starts[device]), failed)
    live = np.zeros(len(plan.buffers), np.bool_)
    live[events.buffer[before]] = True
    live[events.buffer[before][events.released[before]]] = False
    subject = _allocation(plan, int(events.row[failed]), int(events.buffer[failed]))
    held = _held(plan, live, buffer_bytes, resident_bytes)
    free = format_bytes(reserved_bytes - resident_bytes)
    reserved = f"{format_bytes(reserved_bytes)} reserved, {free} of it in free blocks that cannot serve it"
    return _error(plan, device, f"{subject}: {held}, {reserved}", limit_bytes)


def bytes_by_role(plan: Plan, live: NDArray[np.bool_], buffer_bytes: NDArray[np.int64]) -> dict[str, int]:
    """Bytes of the buffers that are ``live``, by their role."""
    found: dict[str, int] = {}
    for buffer in np.flatnonzero(live).tolist():
        role = plan.buffers.role[buffer]
        found[role] = found.get(role, 0) + int(buffer_bytes[buffer])
    return found


def _allocation(plan: Plan, row: int, buffer: int) -> str:
    who = "before the first task," if row == NO_ROW else f"row {row} ({plan.row_names()[row]}) allocates"
    return f"{who} buffer {plan.buffers.name[buffer]!r} of {format_bytes(plan.buffers.size_bytes[buffer])}"


def _held(plan: Plan, live: NDArray[np.bool_], buffer_bytes: NDArray[np.int64], used_bytes: int) -> str:
    by_role = bytes_by_role(plan, live, buffer_bytes)
    roles = ", ".join(f"{role} {format_bytes(size)}" for role, size in by_role.items())
    return f"{format_bytes(used_bytes)} resident ({roles})" if roles else "nothing resident"


def _error(plan: Plan, device: int, problem: str, limit_bytes: int) -> OutOfMemoryError:
    limit = format_bytes(limit_bytes)
    return OutOfMemoryError(f"out of memory on {plan.devices.name[device]}: {problem}, limit {limit}")
