"""The device interface: what the CPU makes of it, and that the executor needs nothing beyond it."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
import torch
from small_plans import CPU, bound_to, plan_of, policy_of
from tiny_models import tiny_transformer

from stepsim.executor import Executor, record, use_threads
from stepsim.executor.eager import eager_step, max_abs_difference
from stepsim.executor.instructions import Instruction
from stepsim.executor.lanes import CpuLanes
from stepsim.executor.record import COPY_SIZES_BYTES, WARM_UP
from stepsim.memory import memory_profile
from stepsim.plan import TaskKind
from stepsim.strategies.memory.schedule import Action


@dataclass
class Counted:
    """Lanes with a clock of their own: each row takes one second. They are no `CpuLanes`, and note every call."""

    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    allocated_peak_bytes: int | None = None
    calls: list[str] = field(default_factory=list)
    rows: list[Instruction] = field(default_factory=list)
    copied: list[tuple[int, int]] = field(default_factory=list)
    owners: list[int] = field(default_factory=list)

    def hold(self, seconds: float) -> None:
        self.calls.append("hold")

    def start(self, num_rows: int) -> None:
        self.calls.append(f"start {num_rows}")
        self.rows.clear()

    def run(self, instruction: Instruction, values: Sequence[torch.Tensor]) -> Sequence[torch.Tensor]:
        self.calls.append("run")
        self.rows.append(instruction)
        return instruction.action(values)

    def finish(self) -> tuple[list[float], list[float]]:
        self.calls.append("finish")
        return [float(row.row) for row in self.rows], [row.row + 1.0 for row in self.rows]

    def issue_times(self) -> list[tuple[float, float]]:
        return [(float(row.row), 0.25) for row in self.rows]

    def new_host_storage(self, size_bytes: int) -> torch.Tensor:
        self.calls.append("new host storage")
        return torch.zeros(size_bytes, dtype=torch.uint8)

    def new_storage(self, size_bytes: int, lane: int) -> torch.Tensor:
        self.calls.append("new storage")
        self.owners.append(lane)
        return torch.empty(size_bytes, dtype=torch.uint8)

    def copy(self, source: torch.Tensor, target: torch.Tensor) -> None:
        self.copied.append((source.nbytes, target.nbytes))
        target.copy_(source)


def test_a_run_starts_its_lanes_once_runs_every_row_in_order_and_finishes_once() -> None:
    bound, lanes = bound_to(tiny_transformer), Counted()
    plan = plan_of(bound, policy_of(bound, Action.SWAP, Action.RECOMPUTE), memory_bytes=0)
    executor = Executor(plan, bound, lanes)
    num_swaps = int((plan.tasks.kind == TaskKind.SWAP_OUT).sum())
    assert lanes.calls == ["new host storage"] * num_swaps
    lanes.calls.clear()

    timeline = executor.run().timeline

    assert [call for call in lanes.calls if call != "new storage"] == [
        f"start {len(plan)}",
        *["run"] * len(plan),
        "finish",
    ]
    assert [row.row for row in lanes.rows] == list(range(len(plan)))
    assert timeline.makespan_s == len(plan)
    assert (timeline.spans.end_s - timeline.spans.start_s == 1.0).all()


def test_lanes_of_any_kind_give_the_same_values_and_the_same_memory() -> None:
    bound = bound_to(tiny_transformer)
    plan = plan_of(bound, policy_of(bound, Action.SWAP, Action.RECOMPUTE), memory_bytes=0)
    reference = eager_step(bound)

    execution = Executor(plan, bound, Counted()).run(metered=True)

    assert max_abs_difference(execution, reference) == 0.0
    assert execution.memory.peak_bytes(CPU) == memory_profile(plan).peak_bytes(CPU)


def test_every_swap_is_one_copy_of_all_its_bytes() -> None:
    bound, lanes = bound_to(tiny_transformer), Counted()
    plan = plan_of(bound, policy_of(bound, Action.SWAP))

    Executor(plan, bound, lanes).run()

    moved = plan.tasks.size_bytes[(plan.tasks.kind == TaskKind.SWAP_OUT) | (plan.tasks.kind == TaskKind.SWAP_IN)]
    assert len(moved)
    assert lanes.copied == [(size, size) for size in moved.tolist()]


def test_what_is_swapped_in_is_taken_from_the_lane_that_owns_it_and_not_from_that_of_the_copy() -> None:
    bound, lanes = bound_to(tiny_transformer), Counted()
    plan = plan_of(bound, policy_of(bound, Action.SWAP))
    swapped_in = plan.tasks.kind == TaskKind.SWAP_IN

    Executor(plan, bound, lanes).run()

    compute = plan.streams.name.index("compute")
    assert lanes.owners == [compute] * int(swapped_in.sum())
    assert compute not in plan.tasks.stream[swapped_in]


def test_recording_goes_through_the_same_lanes() -> None:
    lanes = Counted()

    trace = record([bound_to(tiny_transformer)], lanes, repeats=1)

    assert (trace.of("kernel", "copy")["duration_s"] == 1.0).all()
    assert (trace.of("launch")["duration_s"] == 0.25).all()
    assert {size for size, _ in lanes.copied} == set(COPY_SIZES_BYTES)


def test_each_pass_of_a_recording_gives_the_host_a_start() -> None:
    lanes = Counted()

    record([bound_to(tiny_transformer)], lanes, repeats=3)

    starts = [place for place, call in enumerate(lanes.calls) if call.startswith("start")]
    assert len(starts) == WARM_UP + 3
    assert all(lanes.calls[place - 1] == "hold" for place in starts)
    assert lanes.calls.count("hold") == len(starts)


def test_the_cpu_runs_rows_inline_in_issue_order_whatever_their_lane() -> None:
    lanes, done = CpuLanes(), []
    rows = [
        Instruction(
            row=row,
            lane=row % 3,
            waits=(),
            reads=(),
            writes=(),
            releases=(),
            action=lambda _, row=row: done.append(row),
        )
        for row in range(6)
    ]
    lanes.start(len(rows))

    for row in rows:
        lanes.run(row, ())
    starts_s, ends_s = lanes.finish()

    assert done == list(range(6))
    assert all(start <= end for start, end in zip(starts_s, ends_s, strict=True))
    assert all(end <= start for end, start in zip(ends_s, starts_s[1:], strict=False))
    assert starts_s[0] >= 0
    assert [begun_s + gap_s for begun_s, gap_s in lanes.issue_times()] == pytest.approx(starts_s, abs=1e-9)
    assert [begun_s for begun_s, _ in lanes.issue_times()] == [0.0, *ends_s[:-1]]


def test_each_run_has_a_clock_of_its_own() -> None:
    lanes = CpuLanes()
    row = Instruction(row=0, lane=0, waits=(), reads=(), writes=(), releases=(), action=lambda _: ())
    times = []

    for _ in range(2):
        lanes.start(1)
        lanes.run(row, ())
        times.append(lanes.finish())

    lanes.start(0)
    assert all(starts_s[0] >= 0 for starts_s, _ in times)
    assert times[0] is not times[1]
    assert lanes.finish() == ([], [])
    assert lanes.issue_times() == []


@pytest.mark.parametrize(("asked", "given"), [(2, 2), (1, 1), (None, max(1, (os.cpu_count() or 1) - 1))])
def test_ops_run_on_the_threads_that_are_asked_for_and_leave_a_core_free_unasked(asked, given) -> None:
    assert use_threads(asked) == given
    assert torch.get_num_threads() == given
