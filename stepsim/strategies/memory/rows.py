"""Rows to be, before they are a plan: what runs on which copies of which tensors, and when their room is given back."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from stepsim.plan import TaskKind
from stepsim.workloads import Workload

Copy = tuple[int, int]
"""A tensor and the number of its copy: 0 is the first, each swap-in or recomputation makes the next."""

HOST_COPY = -1
"""Number of the first copy that lies in host memory; those after it count down."""


@dataclass(frozen=True, slots=True)
class Row:
    """One row to be: what it runs (an op, or a tensor to move) on which copies.

    A release row without ``releases`` asks `settle` to wait there for the swap-out of its subject and to give back its
    room. One with ``waits`` holds up computing until these copies are back from the host.
    """

    kind: TaskKind
    subject: int
    reads: tuple[Copy, ...] = ()
    writes: tuple[Copy, ...] = ()
    allocates: tuple[Copy, ...] = ()
    releases: tuple[Copy, ...] = ()
    waits: tuple[Copy, ...] = ()


def settle(workload: Workload, rows: list[Row], memory_bytes: int) -> Iterator[Row]:
    """Add to each row what it allocates and releases, and release rows where room is needed.

    A copy goes after its last use. One that was swapped out goes when its room is needed to stay within
    ``memory_bytes``, first out first (He et al., "HOME", IEEE TC 2023, Algorithm 2), and at the latest when it is
    swapped in again. The rows may still exceed ``memory_bytes``.
    """
    size_bytes = [tensor.size_bytes for tensor in workload.tensors]
    outside = {(tensor, 0) for tensor in range(len(size_bytes)) if tensor not in workload.producer}
    results = {(tensor, 0) for tensor in (workload.loss, *workload.gradients.values())}
    stay = outside | results
    last_use = {copy: number for number, row in enumerate(rows) for copy in (*row.reads, *row.writes)}
    used_bytes = resident(outside, size_bytes)
    swapped_out: dict[int, Copy] = {}
    seen = set(outside)

    for number, row in enumerate(rows):
        fresh = tuple(copy for copy in row.writes if copy not in seen)
        seen.update(fresh)
        need_bytes = resident(fresh, size_bytes)
        while swapped_out and (_asks_for(row, swapped_out) or used_bytes + need_bytes > memory_bytes):
            first = row.subject if _asks_for(row, swapped_out) else _first_idle(swapped_out, last_use, number)
            if first is None:
                break
            used_bytes -= size_bytes[first]
            yield Row(TaskKind.RELEASE, first, releases=(swapped_out.pop(first),))
        if row.kind is TaskKind.RELEASE:
            if row.waits:
                yield row
            continue
        if row.kind is TaskKind.SWAP_OUT:
            swapped_out[row.subject] = row.reads[0]
        ended = (copy for copy in dict.fromkeys((*row.reads, *row.writes)) if last_use[copy] == number)
        dead = tuple(copy for copy in ended if copy not in stay and swapped_out.get(copy[0]) != copy)
        used_bytes += need_bytes - resident(dead, size_bytes)
        yield Row(row.kind, row.subject, row.reads, row.writes, fresh, dead)
    yield Row(TaskKind.RELEASE, workload.loss, releases=tuple(sorted({*results, *swapped_out.values()})))


def resident(copies: Iterable[Copy], size_bytes: list[int]) -> int:
    """Bytes of the copies that lie on the device."""
    return sum(size_bytes[copy[0]] for copy in copies if not on_host(copy))


def on_host(copy: Copy) -> bool:
    return copy[1] <= HOST_COPY


def resident_bytes(workload: Workload, rows: list[Row]) -> list[int]:
    """Bytes on the device while each row runs: what `stepsim.memory.memory_profile` says of the lowered plan."""
    size_bytes = [tensor.size_bytes for tensor in workload.tensors]
    level = sum(size for tensor, size in enumerate(size_bytes) if tensor not in workload.producer)
    found = []
    for row in rows:
        level += resident(row.allocates, size_bytes)
        found.append(level)
        level -= resident(row.releases, size_bytes)
    return found


def _asks_for(row: Row, swapped_out: Mapping[int, Copy]) -> bool:
    """A swapped-out tensor must be gone before it comes back."""
    return row.kind in (TaskKind.SWAP_IN, TaskKind.RELEASE) and row.subject in swapped_out


def _first_idle(swapped_out: Mapping[int, Copy], last_use: Mapping[Copy, int], number: int) -> int | None:
    """The tensor swapped out first of those that no row from ``number`` on uses."""
    return next((tensor for tensor, copy in swapped_out.items() if last_use[copy] < number), None)
