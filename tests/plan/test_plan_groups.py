"""The fast check of groups agrees with plain loops over rows, on plans whose groups meet and on plans put wrong."""

import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st
from naive_check import group_problem
from random_plans import plans

from stepsim.errors import PlanError
from stepsim.plan import NONE
from stepsim.plan.builder import PlanBuilder
from stepsim.plan.groups import check_groups


def found_problem(plan):
    try:
        check_groups(plan)
    except PlanError as error:
        return str(error)
    return None


def verdict(problem):
    """What is wrong, without names and numbers."""
    return "good" if problem is None else re.sub(r"^.*?: |[\d\[].*", "", problem)


@st.composite
def meetings(draw):
    """Collectives over two or three of four devices, and messages."""
    builder = PlanBuilder()
    gpus = [builder.device(f"gpu{i}") for i in range(4)]
    streams = [[builder.stream(name, gpu) for name in ("a", "b")] for gpu in gpus]
    for _ in range(draw(st.integers(1, 7), label="groups")):
        group = builder.group()
        if draw(st.booleans(), label="collective"):
            team = draw(st.sampled_from([gpus[:2], gpus[1:]]), label="team")
            for gpu in draw(st.permutations(team)):
                builder.collective("all_reduce", team, streams[gpu][0], group, size_bytes=8)
        else:
            source, target = draw(st.sampled_from([(0, 1), (2, 3)]), label="message")
            sent, received = (builder.buffer(8, gpus[gpu]) for gpu in (source, target))
            builder.send(sent, gpus[target], streams[source][1], group)
            builder.receive(received, gpus[source], streams[target][1], group)
    return builder.build()


def column_changed(name, table, low):
    def mutate(draw, plan):
        column = getattr(plan.tasks, name).copy()
        high = len(getattr(plan, table)) - 1 if table else 3
        column[draw(st.integers(0, len(column) - 1))] = draw(st.integers(low, max(low, high)))
        return replace(plan, tasks=replace(plan.tasks, **{name: column}))

    return mutate


def rows_exchanged(draw, plan):
    """Two rows of one stream have exchanged their groups."""
    group, stream = plan.tasks.group.copy(), plan.tasks.stream
    one = draw(st.integers(0, len(group) - 1), label="one")
    two = draw(st.sampled_from(np.flatnonzero(stream == stream[one]).tolist()), label="two")
    group[[one, two]] = group[[two, one]]
    return replace(plan, tasks=replace(plan.tasks, group=group))


def moved_to_a_stream(draw, plan):
    """A row stands on another stream, and on its device."""
    row, stream = draw(st.integers(0, len(plan) - 1)), draw(st.integers(0, len(plan.streams) - 1))
    columns = {"stream": plan.tasks.stream.copy(), "device": plan.tasks.device.copy()}
    columns["stream"][row], columns["device"][row] = stream, plan.streams.device[stream]
    return replace(plan, tasks=replace(plan.tasks, **columns))


MUTATIONS = (
    column_changed("group", None, NONE),
    column_changed("size_bytes", None, 0),
    column_changed("route", "routes", NONE),
    column_changed("collective", "collectives", NONE),
    moved_to_a_stream,
    rows_exchanged,
    rows_exchanged,
    rows_exchanged,
)


@given(plans(kinds=["all_reduce", "message", "kernel"]))
def test_groups_of_a_good_plan_pass_both_checks(drawn):
    plan, _ = drawn

    assert group_problem(plan) is None
    assert found_problem(plan) is None


@settings(max_examples=250)
@given(st.data())
def test_groups_put_wrong_are_refused_by_both_checks_in_the_same_words(data):
    plan = data.draw(meetings())
    for mutate in data.draw(st.lists(st.sampled_from(MUTATIONS), min_size=1, max_size=2)):
        plan = mutate(data.draw, plan)

    problem = group_problem(plan)

    event(verdict(problem))
    assert found_problem(plan) == problem


def reductions(team, places):
    """One all-reduce over ``team`` with a member on each of ``places``."""
    builder = PlanBuilder()
    streams = [builder.stream("reduce", builder.device(f"gpu{i}")) for i in range(4)]
    group = builder.group()
    for place in places:
        builder.collective("all_reduce", team, streams[place], group, size_bytes=8)
    return builder


def test_members_on_the_devices_of_the_team_meet_in_whatever_order_they_are_issued():
    assert len(reductions([2, 0, 3], [3, 0, 2]).build()) == 3


def test_a_member_on_a_device_outside_its_team_is_refused():
    with pytest.raises(PlanError, match=r"^row 0 \(collective\): no member of its group is on 'gpu1', which is in its"):
        reductions([0, 1], [0, 2]).build()


def test_teams_of_the_same_size_with_other_devices_are_different_collectives():
    plan = reductions([0, 1], [0, 1])
    group = plan.group()
    for team in ([0, 1], [0, 2]):
        plan.collective("all_reduce", team, 0 if team[1] == 1 else 2, group, size_bytes=8)

    with pytest.raises(PlanError, match=r"row 2 .* members of its group differ in collective: \[0, 1\]"):
        plan.build()


def test_a_thousand_members_agree_or_not():
    """Two all-reduces over 1,000 devices; on one of them they come the other way round."""
    builder = PlanBuilder()
    streams = [builder.stream("reduce", builder.device(f"gpu{i}")) for i in range(1000)]
    groups = [builder.group(), builder.group()]
    for place, stream in enumerate(streams):
        for group in groups[::-1] if place == 617 else groups:
            builder.collective("all_reduce", range(1000), stream, group, size_bytes=8)

    with pytest.raises(PlanError, match=r"^row 0 \(collective\): members disagree in order: group 0 here, 1 there$"):
        builder.build()


def test_group_numbers_may_be_any():
    plan = reductions([0, 1], [0, 1]).build()
    renumbered = replace(plan, tasks=replace(plan.tasks, group=np.full(2, -7, np.int32)))

    check_groups(renumbered)
