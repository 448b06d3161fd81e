"""The fast proof of order agrees with plain loops over rows, on plans in order and on plans put out of order."""

import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, event, given, settings
from hypothesis import strategies as st
from naive_check import naive_clocks, order_problem
from random_plans import plans

from stepsim.errors import PlanError
from stepsim.plan import Plan
from stepsim.plan.builder import PlanBuilder
from stepsim.plan.clocks import clocks
from stepsim.plan.order import check_order
from stepsim.tables import Ragged


def verdict(problem):
    """What is wrong, without names and numbers."""
    return "in order" if problem is None else re.sub(r"^.*?buffer '.*?' |\d+", "", problem)


USES = ("reads", "writes", "allocates", "releases")
LISTS = ("dependencies", *USES)


def found_problem(plan):
    try:
        check_order(plan)
    except PlanError as error:
        return str(error)
    return None


def with_lists(plan, name, lists):
    return replace(plan, tasks=replace(plan.tasks, **{name: Ragged.from_lists(lists)}))


def some_lists(draw, plan, names):
    """The name of a column of lists that are not all empty, and the lists."""
    filled = [name for name in names if len(getattr(plan.tasks, name).values)]
    assume(filled)
    name = draw(st.sampled_from(filled), label="column")
    return name, getattr(plan.tasks, name).to_lists()


def taken_out(draw, lists):
    """One entry, which is gone from its list."""
    row = draw(st.sampled_from([row for row, entries in enumerate(lists) if entries]), label="row")
    return lists[row].pop(draw(st.integers(0, len(lists[row]) - 1)))


def dropped(draw, plan):
    """One entry of one list is gone: a dependency, a write, an allocation ..."""
    name, lists = some_lists(draw, plan, ("dependencies", "dependencies", *LISTS))
    taken_out(draw, lists)
    return with_lists(plan, name, lists)


def moved(draw, plan):
    """One entry of one list stands in another row: a buffer is released early, read elsewhere, allocated late ..."""
    name, lists = some_lists(draw, plan, USES)
    entry = taken_out(draw, lists)
    lists[draw(st.integers(0, len(lists) - 1), label="to")].append(entry)
    return with_lists(plan, name, lists)


def swapped(draw, plan):
    """Two rows have exchanged a list."""
    name, lists = some_lists(draw, plan, USES)
    one, two = (draw(st.integers(0, len(lists) - 1)) for _ in range(2))
    lists[one], lists[two] = lists[two], lists[one]
    return with_lists(plan, name, lists)


def listed_twice(draw, plan):
    """One row has an entry of some list once more: released twice, allocated twice ..."""
    name, lists = some_lists(draw, plan, USES)
    entry = draw(st.sampled_from(getattr(plan.tasks, name).values.tolist()))
    lists[draw(st.integers(0, len(lists) - 1))].append(entry)
    return with_lists(plan, name, lists)


def owned_otherwise(draw, plan):
    """A buffer belongs to another stream, or to none."""
    owner = plan.buffers.owner.copy()
    owner[draw(st.integers(0, len(owner) - 1))] = draw(st.integers(-1, len(plan.streams) - 1))
    return replace(plan, buffers=replace(plan.buffers, owner=owner))


def put_elsewhere(draw, plan):
    """A buffer is on another device: of another process even, where there is one."""
    device = plan.buffers.device.copy()
    device[draw(st.integers(0, len(device) - 1))] = draw(st.integers(0, len(plan.devices) - 1))
    return replace(plan, buffers=replace(plan.buffers, device=device))


MUTATIONS = (dropped, moved, swapped, listed_twice, owned_otherwise, put_elsewhere)


@given(plans())
def test_a_plan_in_order_passes_both_checks(drawn):
    plan, _ = drawn

    assert order_problem(plan) is None
    assert found_problem(plan) is None


@settings(max_examples=250)
@given(st.data())
def test_a_plan_put_out_of_order_is_refused_by_both_checks_in_the_same_words(data):
    plan, _ = data.draw(plans())
    for mutate in data.draw(st.lists(st.sampled_from(MUTATIONS), min_size=1, max_size=2), label="mutations"):
        plan = mutate(data.draw, plan)

    problem = order_problem(plan)

    event(verdict(problem))
    assert found_problem(plan) == problem


@st.composite
def tangles(draw):
    """Rows on three streams and two threads that wait at random and read, write, allocate and release at random."""
    builder = PlanBuilder()
    gpu = builder.device("gpu0")
    threads, streams = [builder.thread(f"t{i}") for i in range(2)], [builder.stream(f"s{i}", gpu) for i in range(3)]
    for i in range(3):
        builder.buffer(1, gpu, owner=draw(st.sampled_from([-1, *streams])), name=f"b{i}")
    buffers = st.lists(st.sampled_from(range(3)), max_size=2)
    lists = {name: [] for name in LISTS}
    for row in range(draw(st.integers(1, 12))):
        columns = {"thread": draw(st.sampled_from(threads))}
        if draw(st.integers(0, 4)) == 0:
            builder.host(builder.work("sync"), **columns)
        else:
            columns["blocks_thread"] = draw(st.integers(0, 4)) == 0
            builder.compute(builder.work("F"), draw(st.sampled_from(streams)), **columns)
        lists["dependencies"].append(draw(st.lists(st.integers(0, row - 1), max_size=2, unique=True)) if row else [])
        for name in ("reads", "writes"):
            lists[name].append(draw(buffers))
        for name in ("allocates", "releases"):
            lists[name].append(draw(buffers) if draw(st.integers(0, 5)) == 0 else [])
    plan = builder.build()
    for name, entries in lists.items():
        plan = with_lists(plan, name, entries)
    return plan


@settings(max_examples=250)
@given(tangles())
def test_rows_that_wait_and_use_buffers_at_random_are_judged_alike_in_the_same_words(plan):
    problem = order_problem(plan)

    event(verdict(problem))
    assert found_problem(plan) == problem


@given(plans())
def test_clocks_of_some_processes_are_those_of_all_rows(drawn):
    plan, _ = drawn
    expected = naive_clocks(plan)
    for process in np.unique(plan.process_of_rows()).tolist():
        rows = np.flatnonzero(plan.process_of_rows() == process).tolist()

        assert dict(clocks(plan, rows)) == {row: expected[row] for row in rows}


def test_of_several_rows_not_waited_for_the_last_is_named():
    builder = PlanBuilder()
    gpu = builder.device("gpu0")
    streams = [builder.stream(f"s{i}", gpu) for i in range(4)]
    weights = builder.buffer(1, gpu, name="W")
    for stream in streams[:3]:
        builder.compute(builder.work("F"), stream, reads=[weights])
    builder.compute(builder.work("add"), streams[3], reads=[weights], writes=[weights])
    plan = builder.build()
    waits = plan.tasks.dependencies.to_lists()

    with pytest.raises(PlanError, match=r"row 3 .* is written without waiting for row 1, which uses it"):
        check_order(with_lists(plan, "dependencies", [*waits[:3], [2]]))


def test_a_plan_without_rows_is_in_order():
    plan = PlanBuilder().build()

    assert isinstance(plan, Plan)
    check_order(plan)
