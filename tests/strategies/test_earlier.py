"""Swap-ins move up as far as time and room ask for, and no further."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st
from random_workloads import steps
from small_workloads import chain
from test_accesses import prices

from stepsim.plan import TaskKind
from stepsim.strategies.memory.earlier import in_time, live_bytes, moved_up
from stepsim.strategies.memory.rows import Row, resident_bytes, settle
from stepsim.strategies.memory.schedule import Action, Policy, order, schedule
from stepsim.workloads import Workload

UNLIMITED = 10**9
NO_HASTE: dict[int, float] = {}


def before_which(workload: Workload, rows: list[Row]) -> dict[int, str]:
    """Swapped tensor to the op that its swap-in stands before."""
    found: dict[int, str] = {}
    waiting: list[int] = []
    for row in rows:
        if row.kind is TaskKind.SWAP_IN:
            waiting.append(row.subject)
        elif row.kind in (TaskKind.COMPUTE, TaskKind.RECOMPUTE):
            found |= dict.fromkeys(waiting, workload.ops[row.subject].name)
            waiting = []
    return found


def swapped(workload: Workload, *tensors: int) -> list[Row]:
    return order(workload, dict.fromkeys(tensors, Action.SWAP), 0)


def test_a_tensor_is_asked_for_as_late_as_it_can_be_in_time() -> None:
    """x0 takes a second and B0 reads it: with ops of one second it comes beside B1, with half of one from B2 on."""
    workload = chain(4)
    rows = swapped(workload, 1)

    places = {op_s: in_time(rows, prices(workload, op_s), NO_HASTE) for op_s in (1.0, 0.5)}

    assert before_which(workload, rows) == {1: "B0"}
    assert before_which(workload, moved_up(workload, rows, places[1.0], UNLIMITED)) == {1: "B1"}
    assert before_which(workload, moved_up(workload, rows, places[0.5], UNLIMITED)) == {1: "B2"}


def test_haste_moves_it_up_by_the_op_that_it_does_not_fit_beside() -> None:
    workload = chain(4)
    rows = swapped(workload, 1)

    places = in_time(rows, prices(workload), {1: 0.05})

    assert before_which(workload, moved_up(workload, rows, places, UNLIMITED)) == {1: "B2"}


def test_tensors_that_come_by_one_lane_make_room_for_each_other() -> None:
    """A copy takes as long as two ops: x0 beside B2 and B1, so that x1 comes beside B4 and B3."""
    workload = chain(6)
    rows = swapped(workload, 1, 2)

    places = in_time(rows, prices(workload, 0.5), NO_HASTE)

    assert before_which(workload, moved_up(workload, rows, places, UNLIMITED)) == {1: "B2", 2: "B4"}


def test_none_comes_before_it_is_out() -> None:
    """x2 leaves after F3, at 2 s, until 3 s; B2 begins at 3 s. It is out when B2 begins, not before."""
    workload = chain(4)
    rows = swapped(workload, 3)

    places = in_time(rows, prices(workload, 0.5), NO_HASTE)

    assert before_which(workload, moved_up(workload, rows, places, UNLIMITED)) == {3: "B2"}


def test_a_full_memory_stops_it() -> None:
    """B3 and B2 are the fullest, with 51 bytes; beside B1 there are 41, and the 10 of x0 fit."""
    workload = chain(4)
    rows = swapped(workload, 1)

    peak_bytes = int(live_bytes(workload, rows).max())

    up = dict.fromkeys([number for number, row in enumerate(rows) if row.kind is TaskKind.SWAP_IN], 0)
    assert peak_bytes == 51
    assert before_which(workload, moved_up(workload, rows, up, UNLIMITED)) == {1: "F2"}
    assert before_which(workload, moved_up(workload, rows, up, peak_bytes)) == {1: "B1"}
    assert moved_up(workload, rows, up, 0) == rows


def test_none_comes_before_the_last_use_of_the_copy_that_goes_out() -> None:
    """x0 goes out as soon as it was made, and F1 still reads it then."""
    workload = chain(4)
    made, used, out, *others = swapped(workload, 1)

    rows = [made, out, used, *others]
    up = dict.fromkeys([number for number, row in enumerate(rows) if row.kind is TaskKind.SWAP_IN], 0)

    assert before_which(workload, moved_up(workload, rows, up, UNLIMITED)) == {1: "F2"}


@given(step=steps(Action.SWAP, Action.RECOMPUTE))
def test_only_swap_ins_move_and_no_limit_is_passed_on_the_way(step: tuple[Workload, Policy, int]) -> None:
    workload, policy, memory_bytes = step
    rows = order(workload, policy, 0)
    up = dict.fromkeys([number for number, row in enumerate(rows) if row.kind is TaskKind.SWAP_IN], 0)

    moved = moved_up(workload, rows, up, memory_bytes)

    assert Counter(moved) == Counter(rows)
    others = [[row for row in each if row.kind is not TaskKind.SWAP_IN] for each in (rows, moved)]
    assert others[0] == others[1]
    before, after = (live_bytes(workload, each).max() for each in (rows, moved))
    assert after <= max(before, memory_bytes)


@given(step=steps(Action.RECOMPUTE), memory_bytes=st.integers(0, 100))
def test_where_nothing_is_swapped_live_bytes_are_those_of_the_plan(
    step: tuple[Workload, Policy, int], memory_bytes: int
) -> None:
    workload, policy, _ = step

    found = live_bytes(workload, order(workload, policy, 0)).tolist()

    assert found == resident_bytes(workload, schedule(workload, policy, memory_bytes))[:-1]


@given(step=steps(Action.SWAP))
def test_live_bytes_are_at_most_those_of_the_plan(step: tuple[Workload, Policy, int]) -> None:
    workload, policy, _ = step
    rows = order(workload, policy, 0)

    assert live_bytes(workload, rows).max() <= max(resident_bytes(workload, list(settle(workload, rows, 0))))
