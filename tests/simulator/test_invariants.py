"""What every simulated timeline must keep, over random plans. The numbers are those of the list of invariants.

1  no task starts before all it waits for has ended          5  memory: see tests/memory/test_memory.py
2  spans of a lane do not overlap and keep issue order       6  half of every duration is half of the makespan
3  makespan is between critical path and sum                 7  twice the same run, twice the same timeline
4  one stream: makespan is the sum                           8  less to do, or to wait for, never takes longer
"""

from dataclasses import replace
from itertools import pairwise

import numpy as np
from hypothesis import assume, given, reject, settings
from hypothesis import strategies as st
from random_plans import ANY_SECONDS, CROWDED, ON_STREAMS, busy_plans, costs_of, plans
from seeded_plans import Case, busy_case
from small_machines import spans_of

from stepsim.errors import DeadlockError
from stepsim.plan import NONE, TaskKind
from stepsim.simulator import simulate
from stepsim.simulator.problem import first_of_group
from stepsim.tables import Ragged

SHARINGS = st.sampled_from(["leftover", "fair"])


def swept(plan, prices):
    """Start and end of each row of a plan that contends for nothing: one pass in plan order, without events.

    The rows of a group stand side by side; all of them start when the last is ready.
    """
    tasks = plan.tasks
    issued_s, free_s, ready_s = {}, {}, {}  # by thread, lane, row
    spans = [(0.0, 0.0)] * len(plan)
    for row, lane in enumerate(plan.lane_of_rows().tolist()):
        kind, thread, group = tasks.kind[row], int(tasks.thread[row]), tasks.group[row]
        if kind not in (TaskKind.HOST, TaskKind.RELEASE):
            issued_s[thread] = issued_s.get(thread, 0.0) + prices.launch_s[row]
        waits_s = [spans[earlier][1] for earlier in tasks.dependencies[row].tolist()]
        ready_s[row] = max([issued_s.get(thread, 0.0), free_s.get(lane, 0.0), *waits_s])
        members = [row] if group == NONE else np.flatnonzero(tasks.group[: row + 1] == group).tolist()
        start_s = max(ready_s[member] for member in members)
        end_s = start_s + (0.0 if kind == TaskKind.RELEASE else prices.seconds[row])
        for member in members:
            spans[member] = (start_s, end_s)
            free_s[int(plan.lane_of_rows()[member])] = end_s
        if kind == TaskKind.HOST or tasks.blocks_thread[row]:
            issued_s[thread] = end_s
    return spans


@given(st.data())
def test_a_plan_that_contends_for_nothing_runs_bit_for_bit_as_one_sweep_in_plan_order(data):
    plan, machine = data.draw(plans(kinds=ON_STREAMS))
    costs = replace(data.draw(costs_of(plan, ANY_SECONDS)), fixed=True)

    timeline = simulate(plan, machine, costs)

    assert spans_of(timeline) == swept(plan, costs)


@given(busy_plans(), SHARINGS)
def test_1_no_task_starts_before_all_it_waits_for_has_ended(case, sharing):
    spans = spans_of_run(case, sharing)
    waits = case.plan.tasks.dependencies

    assert (spans.start_s[waits.owners()] >= spans.end_s[waits.values]).all()


@given(busy_plans(), SHARINGS)
def test_2_spans_of_a_lane_never_overlap_and_keep_issue_order(case, sharing):
    spans = spans_of_run(case, sharing)

    assert (spans.end_s >= spans.start_s).all()
    for lane in set(spans.lane.tolist()):
        on_lane = np.flatnonzero(spans.lane == lane)
        assert (spans.start_s[on_lane[1:]] >= spans.end_s[on_lane[:-1]]).all()


def spans_of_run(case, sharing):
    """Few of the busy plans deadlock, and there is nothing to say about those here."""
    try:
        return simulate(*case, sharing=sharing).spans
    except DeadlockError:
        reject()


@given(busy_plans(), SHARINGS)
def test_3_makespan_is_at_least_the_critical_path(case, sharing):
    """Whatever is shared, each takes at least what it takes alone. A group costs what its first row does."""
    alone_s = case.costs.task_costs(case.plan, case.machine).seconds_alone(case.plan, case.machine)
    least_s = critical_path_s(case.plan, alone_s[first_of_group(case.plan.tasks.group)])

    makespan_s = spans_of_run(case, sharing).end_s.max(initial=0.0)

    assert makespan_s >= least_s * (1 - 1e-12)


@given(st.data())
def test_3_makespan_is_between_the_critical_path_and_the_sum_of_all_durations(data):
    plan, machine = data.draw(plans())
    costs = data.draw(costs_of(plan, launches=False))
    alone_s = costs.task_costs(plan, machine).seconds_alone(plan, machine)

    makespan_s = simulate(plan, machine, costs).makespan_s

    assert critical_path_s(plan, alone_s) <= makespan_s <= alone_s.sum()


def critical_path_s(plan, seconds):
    """The longest chain of rows that wait for each other by dependency or stand in one lane."""
    last_s, end_s = {}, []
    for row, lane in enumerate(plan.lane_of_rows().tolist()):
        waits_s = [end_s[earlier] for earlier in plan.tasks.dependencies[row].tolist()]
        end_s.append(max([last_s.get(lane, 0.0), *waits_s]) + seconds[row])
        last_s[lane] = end_s[row]
    return max(end_s, default=0.0)


@settings(max_examples=50)
@given(st.data())
def test_4_with_one_stream_makespan_is_the_sum_of_durations(data):
    plan, machine = data.draw(plans())
    costs = data.draw(costs_of(plan, launches=False))
    alone_s = costs.task_costs(plan, machine).seconds_alone(plan, machine)
    busiest = np.bincount(plan.lane_of_rows(), minlength=1).argmax()
    alone = np.flatnonzero((plan.lane_of_rows() == busiest) & (plan.tasks.group == NONE))

    timeline = simulate(only(plan, alone), machine, prices_of(costs, alone))

    assert timeline.makespan_s == alone_s[alone].sum()


def only(plan, rows):
    """The rows of one lane, without what they wait for."""
    columns = {name: column[rows] for name, column in plan.tasks.columns().items() if not isinstance(column, Ragged)}
    nothing = {
        name: Ragged.from_lists([[]] * len(rows))
        for name, column in plan.tasks.columns().items()
        if isinstance(column, Ragged)
    }
    marks = replace(plan.marks, name=(), row=np.zeros(0, np.int64))
    return replace(plan, tasks=replace(plan.tasks, **columns, **nothing), marks=marks)


def prices_of(costs, rows):
    return replace(
        costs,
        seconds=[costs.seconds[row] for row in rows],
        latency_s=[costs.latency_s[row] for row in rows],
        launch_s=0.0,
    )


@given(busy_plans(), SHARINGS)
def test_6_halving_every_duration_halves_every_time_exactly(case, sharing):
    links = [replace(link, bandwidth_bytes_per_s=2 * link.bandwidth_bytes_per_s) for link in case.machine.links]
    twice_as_fast = Case(case.plan, replace(case.machine, links=tuple(links)), case.costs.scaled(0.5))

    whole, half = spans_of_run(case, sharing), spans_of_run(twice_as_fast, sharing)

    assert half.start_s.tolist() == (whole.start_s / 2).tolist()
    assert half.end_s.tolist() == (whole.end_s / 2).tolist()


@given(busy_plans(), SHARINGS)
def test_7_running_twice_gives_an_equal_timeline_bit_for_bit(case, sharing):
    assert spans_of_run(case, sharing) == spans_of_run(case, sharing)


@given(st.data())
def test_8_shortening_a_task_never_delays_any_other_on_dedicated_streams(data):
    plan, machine = data.draw(plans(kinds=ON_STREAMS))
    assume(len(plan))
    costs = data.draw(costs_of(plan))
    row = data.draw(st.integers(0, len(plan) - 1), label="row")
    seconds = list(costs.seconds)
    seconds[row] = data.draw(st.sampled_from([0.0, seconds[row] / 2]), label="shorter")

    before = simulate(plan, machine, costs).spans
    after = simulate(plan, machine, replace(costs, seconds=seconds)).spans

    assert (after.start_s <= before.start_s).all()
    assert (after.end_s <= before.end_s).all()


@given(st.data())
def test_8_dropping_a_dependency_never_delays_any_task_on_dedicated_streams(data):
    plan, machine = data.draw(plans(kinds=ON_STREAMS))
    lists = plan.tasks.dependencies.to_lists()
    waiting = [row for row, waits in enumerate(lists) if waits]
    assume(waiting)
    lists[data.draw(st.sampled_from(waiting), label="row")].pop()
    freed = replace(plan, tasks=replace(plan.tasks, dependencies=Ragged.from_lists(lists)))
    costs = data.draw(costs_of(plan))

    before = simulate(plan, machine, costs).spans
    after = simulate(freed, machine, costs).spans

    assert (after.start_s <= before.start_s).all()


@settings(max_examples=50)
@given(st.data())
def test_a_copy_engine_serves_no_more_copies_at_a_time_than_it_can(data):
    plan, machine = data.draw(plans(kinds=CROWDED))
    spans = simulate(plan, machine, data.draw(costs_of(plan, ANY_SECONDS))).spans

    for served in copies_by_engine(plan):
        for row in served:
            at_its_start = (spans.start_s[served] <= spans.start_s[row]) & (spans.end_s[served] > spans.start_s[row])
            assert at_its_start.sum() <= machine.devices[0].copy_engines


@settings(max_examples=50)
@given(st.data())
def test_a_copy_starts_when_it_is_ready_or_when_its_engine_is_given_back(data):
    plan, machine = data.draw(plans(kinds=CROWDED))
    spans = simulate(plan, machine, data.draw(costs_of(plan, launches=False))).spans
    ready_s = ready_times_s(plan, spans)

    for served in copies_by_engine(plan):
        for row in served:
            assert spans.start_s[row] in {ready_s[row], *spans.end_s[served]}


@given(st.data())
def test_a_copy_that_is_ready_earlier_starts_no_later_than_another_of_its_engine(data):
    plan, machine = data.draw(plans(kinds=CROWDED))
    spans = simulate(plan, machine, data.draw(costs_of(plan, launches=False))).spans
    ready_s = ready_times_s(plan, spans)

    for served in copies_by_engine(plan):
        in_turn = served[np.argsort(ready_s[served], kind="stable")]
        for one, two in pairwise(in_turn):
            assert spans.start_s[one] <= spans.start_s[two] or ready_s[one] == ready_s[two]


def copies_by_engine(plan):
    """In these plans a swap of one kind always takes the same engine of its gpu."""
    tasks = plan.tasks
    for gpu in range(len(plan.devices)):
        for kind in (TaskKind.SWAP_OUT, TaskKind.SWAP_IN):
            yield np.flatnonzero((tasks.device == gpu) & (tasks.kind == kind))


def ready_times_s(plan, spans):
    """When each row has been issued, at launch cost 0, is at the head of its lane, and has what it waits for."""
    free_s, issued_s, ready_s = {}, {}, []
    for row, lane in enumerate(plan.lane_of_rows().tolist()):
        thread = int(plan.tasks.thread[row])
        waits_s = spans.end_s[plan.tasks.dependencies[row]]
        ready_s.append(max(issued_s.get(thread, 0.0), free_s.get(lane, 0.0), waits_s.max(initial=0.0)))
        free_s[lane] = spans.end_s[row]
        if plan.tasks.blocks_thread[row] or plan.tasks.kind[row] == TaskKind.HOST:
            issued_s[thread] = spans.end_s[row]
    return np.array(ready_s)


def test_the_random_plans_hold_every_kind_of_row():
    """Else the properties above would say nothing about it. Plain copies are in the busy plans alone."""
    kinds, busy_kinds = set(), set()

    @given(plans())
    def look(drawn):
        kinds.update(drawn[0].tasks.kind.tolist())

    look()
    for seed in range(20):
        busy_kinds.update(busy_case(seed, 40).plan.tasks.kind.tolist())

    assert kinds == set(TaskKind) - {TaskKind.COPY}
    assert busy_kinds == set(TaskKind)


def test_many_copies_of_the_crowded_plans_wait_for_their_engine():
    waits_s = []

    @given(st.data())
    def look(data):
        plan, machine = data.draw(plans(kinds=CROWDED))
        spans = simulate(plan, machine, data.draw(costs_of(plan, launches=False))).spans
        copies = np.concatenate(list(copies_by_engine(plan)))
        waits_s.extend((spans.start_s - ready_times_s(plan, spans))[copies].tolist())

    look()

    assert np.count_nonzero(waits_s) > 50
