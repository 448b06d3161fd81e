"""Checkmate's program against every table of a small problem, and what its schedules become."""

import ctypes
import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from proposing import count, propose
from random_workloads import workloads
from small_workloads import chain

from stepsim.memory import memory_profile
from stepsim.plan import TaskKind
from stepsim.strategies import Greedy, KeepAll
from stepsim.strategies.memory.remat.checkmate import Solution, _silenced, solve, solve_rounded
from stepsim.strategies.memory.remat.chen import Chen
from stepsim.strategies.memory.remat.problem import (
    Recomputation,
    Schedule,
    keep_everything,
    peak_bytes,
    recomputation_of,
    rows_of,
    with_least_work,
)
from stepsim.strategies.memory.remat.strategy import Checkmate
from stepsim.strategies.memory.rows import resident_bytes, settle
from stepsim.strategies.memory.schedule import Action, schedule
from stepsim.workloads import Phase, Workload


def problem_of(layers: int, size_bytes: int = 10) -> Recomputation:
    """A chain of ``layers`` and a loss, forward and back, each node one second."""
    workload = chain(layers, size_bytes)
    return recomputation_of(workload, [1.0] * len(workload.ops))


def keep_nothing(problem: Recomputation) -> Schedule:
    return with_least_work(problem, np.zeros((len(problem),) * 2, np.bool_))


def keep_all(problem: Recomputation) -> Schedule:
    return with_least_work(problem, np.ones((len(problem),) * 2, np.bool_))


def tables(problem: Recomputation) -> list[Schedule]:
    """The least work of every table of what is kept."""
    places = [(t, i) for t in range(len(problem)) for i in range(t)]
    found = []
    for bits in itertools.product((False, True), repeat=len(places)):
        kept = np.zeros((len(problem),) * 2, np.bool_)
        for place, bit in zip(places, bits, strict=True):
            kept[place] = bit
        found.append(with_least_work(problem, kept))
    return found


def test_keeping_everything_runs_each_node_once() -> None:
    problem = problem_of(4)

    assert keep_all(problem).seconds(problem) == len(problem)


def test_keeping_nothing_runs_all_that_a_node_stands_on_again() -> None:
    """A chain of two: F0, F0 F1, F0 F1 L, B1 on F0 F1 L, then B0 on F0 F1 L and B1; the loss itself stays."""
    problem = problem_of(2)

    runs = [np.flatnonzero(row).tolist() for row in keep_nothing(problem).computed]

    assert runs[:3] == [[0], [0, 1], [0, 1, 2]]
    assert runs[3] == [0, 1, 3]
    assert runs[4] == [0, 1, 3, 4]


@pytest.mark.parametrize("budget_bytes", range(30, 70, 4))
def test_the_program_finds_the_best_of_all_tables(budget_bytes: int) -> None:
    problem = problem_of(2)
    fitting = [s.seconds(problem) for s in tables(problem) if peak_bytes(problem, s) <= budget_bytes]

    found = solve(problem, budget_bytes, time_limit_s=60)

    assert found.complete
    assert (found.schedule is None) == (not fitting)
    if found.schedule is not None:
        assert found.schedule.seconds(problem) == pytest.approx(min(fitting))
        assert found.bound_s == pytest.approx(min(fitting))
        assert peak_bytes(problem, found.schedule) <= budget_bytes


def test_one_byte_too_little_counts_though_the_solver_would_not_see_it() -> None:
    """Six tensors of 10 GB and the loss of one byte are there at once when nothing runs twice."""
    problem = problem_of(4, 10**10)
    one_short = 6 * 10**10

    found = solve(problem, one_short, time_limit_s=60)

    assert found.schedule is not None
    assert peak_bytes(problem, found.schedule) <= one_short
    assert found.schedule.seconds(problem) == len(problem) + 1


@pytest.mark.parametrize("search", [solve, solve_rounded])
def test_with_room_for_everything_nothing_runs_twice(search: type) -> None:
    problem = problem_of(5)

    found: Solution = search(problem, 10**6, time_limit_s=60)

    assert found.schedule is not None
    assert found.schedule.seconds(problem) == len(problem)


def test_rounding_fits_the_budget_and_is_no_better_than_the_optimum() -> None:
    problem = problem_of(6)
    for budget_bytes in (45, 51, 61, 71, 81):
        rounded, exact = (search(problem, budget_bytes, time_limit_s=60) for search in (solve_rounded, solve))
        if rounded.schedule is not None:
            assert exact.schedule is not None
            assert peak_bytes(problem, rounded.schedule) <= budget_bytes
            assert rounded.schedule.seconds(problem) >= exact.schedule.seconds(problem) - 1e-9
            assert rounded.bound_s <= exact.schedule.seconds(problem) + 1e-9


def test_what_is_kept_in_full_is_kept_at_any_threshold() -> None:
    problem = problem_of(5)

    found = solve_rounded(problem, 10**6, time_limit_s=60, cuts=(0.0,), thresholds=(1.0,))

    assert found.schedule is not None
    assert found.schedule.seconds(problem) == len(problem)


@pytest.mark.parametrize("budget_bytes", [53, 61, 85])
def test_further_relaxations_never_give_more_work_and_only_the_uncut_one_proves_a_bound(budget_bytes: int) -> None:
    problem = problem_of(6)

    exact = solve(problem, budget_bytes, time_limit_s=60).schedule
    once = solve_rounded(problem, budget_bytes, time_limit_s=60, cuts=(0.1,))
    several = solve_rounded(problem, budget_bytes, time_limit_s=60)

    assert exact is not None
    assert once.bound_s == len(problem)
    assert once.bound_s - 1e-9 <= several.bound_s <= exact.seconds(problem) + 1e-9
    if once.schedule is not None:
        assert several.schedule is not None
        assert several.schedule.seconds(problem) <= once.schedule.seconds(problem)


def test_less_room_never_takes_less_work() -> None:
    problem = problem_of(4)

    found = [solve(problem, budget, time_limit_s=60).schedule for budget in range(40, 90, 5)]
    seconds = [schedule.seconds(problem) for schedule in found if schedule is not None]

    assert len(seconds) > 3
    assert seconds == sorted(seconds, reverse=True)


@settings(max_examples=40, deadline=None)
@given(workload=workloads(max_layers=4), data=st.data())
def test_rows_of_any_table_stay_within_the_peak_of_the_table(workload: Workload, data: st.DataObject) -> None:
    problem = recomputation_of(workload, [1.0] * len(workload.ops))
    size = len(problem)
    bits = data.draw(st.lists(st.booleans(), min_size=size * size, max_size=size * size))
    table = with_least_work(problem, np.array(bits).reshape(size, size))

    rows = list(settle(workload, rows_of(workload, table), 0))

    updates = sum(op.phase is Phase.UPDATE for op in workload.ops)
    runs = sum(row.kind in (TaskKind.COMPUTE, TaskKind.RECOMPUTE) for row in rows)
    assert runs == int(table.computed.sum()) + updates
    assert max(resident_bytes(workload, rows)) <= peak_bytes(problem, table)


def has_single_outputs(workload: Workload) -> bool:
    return all(len(op.outputs) == 1 for op in workload.ops if op.phase is Phase.FORWARD)


@given(workload=workloads(max_layers=4))
def test_keeping_everything_until_its_last_reader_is_what_plain_pytorch_does(workload: Workload) -> None:
    """Gradients of parameters stay, what was made together with them does not."""
    assume(has_single_outputs(workload))
    problem = recomputation_of(workload, [1.0] * len(workload.ops))

    rows = schedule(workload, {}, 0)

    before_update = [row.kind is TaskKind.COMPUTE and row.subject < len(problem) for row in rows]
    levels = [level for level, counts in zip(resident_bytes(workload, rows), before_update, strict=True) if counts]
    assert peak_bytes(problem, keep_everything(problem)) == max(levels)


@settings(max_examples=60, deadline=None)
@given(workload=workloads(max_layers=4), share=st.floats(0.5, 1.0))
def test_nothing_that_only_recomputes_is_faster_than_what_is_proven(workload: Workload, share: float) -> None:
    """Of ops with one output, because of several all are kept or none."""
    assume(has_single_outputs(workload))
    limit_bytes = int(share * propose(KeepAll(), workload, 10**6).predicted_peak_bytes)

    proven = propose(Checkmate(), workload, limit_bytes)

    assert proven.complete
    for rival in (Greedy(actions=(Action.RECOMPUTE,)), Chen(), Chen(square_root=True)):
        theirs = propose(rival, workload, limit_bytes)
        assert proven.feasible >= theirs.feasible
        assert proven.predicted_s <= theirs.predicted_s + 1e-6 or not theirs.feasible


@pytest.mark.parametrize("rounded", [False, True])
def test_a_step_without_ops_has_a_plan(rounded: bool) -> None:
    workload = chain(1)
    nothing = replace(workload, tensors=workload.tensors[:1], ops=(), loss=0)

    assert propose(Checkmate(rounded=rounded), nothing, 100).feasible


@pytest.mark.parametrize("rounded", [False, True])
def test_a_plan_recomputes_and_meets_its_limit(rounded: bool) -> None:
    proposal = propose(Checkmate(rounded=rounded), chain(6), 61)

    assert proposal.feasible
    assert proposal.complete
    assert count(proposal, TaskKind.RECOMPUTE) > 0
    assert count(proposal, TaskKind.SWAP_OUT) == 0
    assert memory_profile(proposal.plan).peak_bytes("gpu0") == proposal.predicted_peak_bytes


def test_a_limit_that_nothing_meets_gives_a_plan_that_says_so() -> None:
    proposal = propose(Checkmate(), chain(4), 12)

    assert not proposal.feasible
    assert proposal.predicted_peak_bytes > 12


def test_what_writes_in_place_is_kept() -> None:
    proposal = propose(Checkmate(), chain(6, in_place=frozenset({2})), 61)

    kinds = proposal.plan.tasks.kind == TaskKind.RECOMPUTE
    again = {proposal.plan.work.kind[work] for work in proposal.plan.tasks.work[kinds].tolist()}
    assert "F2" not in again


def test_what_draws_random_numbers_runs_again_like_anything_else() -> None:
    """It draws the same numbers the second time."""
    workload = chain(6)
    drawing = replace(workload, ops=tuple(replace(op, random=op.phase is Phase.FORWARD) for op in workload.ops))

    found = propose(Checkmate(), drawing, 61)

    assert count(found, TaskKind.RECOMPUTE) > 0
    assert found.predicted_s == propose(Checkmate(), workload, 61).predicted_s


def test_what_the_solver_writes_does_not_reach_standard_output(capfd: pytest.CaptureFixture[str]) -> None:
    """Not even when the buffers of C are written out, which may be as late as the end of the process."""
    c = ctypes.CDLL(None)

    with _silenced():
        c.printf(b"HighsMipSolverData\n")

    c.fflush(None)
    assert capfd.readouterr().out == ""
