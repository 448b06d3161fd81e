"""Rows as calls on tensors: what a row reads, makes and drops, and what a copy to the host brings back."""

import weakref
from dataclasses import replace

import pytest
import torch
from small_plans import UNLIMITED, bound_to, plan_of, policy_of
from tiny_models import tiny_transformer

from stepsim.executor.instructions import HostCopy, Instruction, interpret, lower
from stepsim.executor.lanes import CpuLanes
from stepsim.strategies.memory.schedule import Action
from stepsim.tables import Ragged

LAYOUTS = {
    "matrix": torch.arange(12.0).reshape(3, 4),
    "transposed": torch.arange(12.0).reshape(3, 4).t(),
    "channels last": torch.arange(24.0).reshape(1, 2, 3, 4).contiguous(memory_format=torch.channels_last),
    "repeated": torch.arange(3.0).expand(5, 3),
    "behind an offset": torch.arange(12.0)[5:9],
    "scalar": torch.tensor(7.0),
    "half": torch.arange(5, dtype=torch.float16),
    "bool": torch.tensor([True, False, True]),
    "integer": torch.arange(3),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_what_was_swapped_out_comes_back_equal_and_in_the_same_layout_in_new_memory(layout) -> None:
    value = LAYOUTS[layout].clone() if layout == "scalar" else LAYOUTS[layout]
    size_bytes = value.untyped_storage().nbytes()
    copy = HostCopy(CpuLanes(), size_bytes)

    (host,) = copy.swap_out((value,))
    (back,) = copy.swap_in((host,))

    assert torch.equal(back, value)
    assert back.dtype == value.dtype
    assert (back.stride(), back.storage_offset()) == (value.stride(), value.storage_offset())
    assert back.untyped_storage().nbytes() == host.nbytes == size_bytes
    assert len({one.untyped_storage().data_ptr() for one in (value, host, back)}) == 3


def test_a_later_swap_out_overwrites_the_host_copy_and_nothing_else() -> None:
    copy = HostCopy(CpuLanes(), 8)
    copy.swap_out((torch.tensor([1.0, 2.0]),))
    (first,) = copy.swap_in((copy.storage,))

    copy.swap_out((torch.tensor([3.0, 4.0]),))
    (second,) = copy.swap_in((copy.storage,))

    assert (first.tolist(), second.tolist()) == ([1.0, 2.0], [3.0, 4.0])


def instruction(row: int, action, **buffers: tuple[int, ...]) -> Instruction:
    numbers = {"reads": (), "writes": (), "releases": (), **buffers}
    return Instruction(row=row, lane=0, waits=(), action=action, **numbers)


def test_a_row_reads_and_writes_the_buffers_it_names_in_order() -> None:
    live = [torch.tensor(2.0), torch.tensor(5.0), None, None]
    rows = [instruction(0, lambda values: (values[0] - values[1], values[0] * 10), reads=(1, 0), writes=(3, 2))]

    interpret(rows, live, CpuLanes())

    assert [value.item() for value in live] == [2.0, 5.0, 50.0, 3.0]


def test_what_a_row_releases_is_gone_before_the_next_row_and_nothing_else_holds_it() -> None:
    made: list[weakref.ref[torch.Tensor]] = []
    alive: list[bool] = []

    def make(values):
        value = torch.zeros(3)
        made.append(weakref.ref(value))
        return (value,)

    def look(values):
        alive.append(made[0]() is not None)
        return ()

    rows = [
        instruction(0, make, writes=(0,)),
        instruction(1, look, reads=(0,), releases=(0,)),
        instruction(2, look),
    ]

    interpret(rows, [None], CpuLanes())

    assert alive == [True, False]


def test_the_watch_is_called_before_and_after_what_a_row_releases_goes() -> None:
    live: list[torch.Tensor | None] = [torch.zeros(1), torch.zeros(1)]
    seen: list[list[bool]] = []
    rows = [instruction(0, lambda values: (), releases=(0,)), instruction(1, lambda values: (), releases=(1,))]

    interpret(rows, live, CpuLanes(), lambda: seen.append([value is not None for value in live]))

    assert seen == [[True, True], [False, True], [False, True], [False, False]]


@pytest.mark.parametrize("memory_bytes", [0, UNLIMITED])
def test_a_row_waits_for_the_rows_of_other_lanes_that_it_depends_on(memory_bytes) -> None:
    """On its own lane order alone keeps the wait, even where the plan names it."""
    bound = bound_to(tiny_transformer)
    plan = plan_of(bound, policy_of(bound, Action.SWAP), memory_bytes)
    lane, needs = plan.lane_of_rows().tolist(), plan.tasks.dependencies.to_lists()
    named = Ragged.from_lists([sorted({*others, *before_on(lane, row)}) for row, others in enumerate(needs)])
    plan = replace(plan, tasks=replace(plan.tasks, dependencies=named))

    _, instructions = lower(plan, bound.program, CpuLanes(), kept=())

    assert [row.lane for row in instructions] == lane
    assert len({row.lane for row in instructions}) == 3
    assert [list(row.waits) for row in instructions] == needs


def before_on(lane: list[int], row: int) -> list[int]:
    return [other for other in range(row) if lane[other] == lane[row]][-1:]


def test_what_is_kept_is_never_dropped() -> None:
    bound = bound_to(tiny_transformer)
    plan = plan_of(bound, {})
    released = set(plan.tasks.releases.values.tolist())
    kept = set(sorted(released)[::2])

    _, instructions = lower(plan, bound.program, CpuLanes(), kept=kept)

    assert {buffer for row in instructions for buffer in row.releases} == released - kept
