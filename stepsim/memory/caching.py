"""``caching`` accounting: an allocator for each device serves the buffers of a plan. Loading this loads numba.

The pools are those of the streams that own the buffers. Buffers without an owner, such as parameters, are served first,
as on a stream of their own. A device without streams, such as the host, has no such allocator: it counts exactly.
"""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from stepsim.memory.allocator import CachingAllocator, no_blocks
from stepsim.memory.allocator_rules import UNLIMITED
from stepsim.memory.levels import MemoryEvents, exact_bytes
from stepsim.memory.out_of_memory import no_room
from stepsim.plan import Plan

EventBytes = NDArray[np.int64]


def serve_buffers(
    plan: Plan, events: MemoryEvents, limits: Mapping[int, int]
) -> tuple[NDArray[np.int64], EventBytes, EventBytes]:
    """What each buffer takes, and what is resident and reserved on its device after each of ``events``.

    ``limits`` are bytes to reserve, by index of the device. Raises `OutOfMemoryError` where they do not do.
    """
    buffers = plan.buffers
    held = no_blocks(len(buffers))
    exact = exact_bytes(events, buffers.size_bytes)
    after = np.column_stack([exact, exact])
    with_streams = np.unique(plan.streams.device)
    for device in with_streams.tolist():
        here = slice(int(events.starts[device]), int(events.starts[device + 1]))
        limit_bytes = limits.get(device, UNLIMITED)
        request, released = events.buffer[here], events.released[here]
        allocator = CachingAllocator(len(request) - int(released.sum()), limit_bytes=limit_bytes)
        served = allocator.serve(request, released, buffers.size_bytes, buffers.owner, held, after[here])
        if served < len(request):
            resident, reserved = after[here][served].tolist()
            failed = here.start + served
            raise no_room(plan, device, events, failed, held["size"], resident, reserved, limit_bytes)
    takes = np.where(np.isin(buffers.device, with_streams), held["size"], buffers.size_bytes)
    return takes, after[:, 0], after[:, 1]
