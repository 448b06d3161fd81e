"""The self-check: for each rule a plan that breaks just this rule, made from one that keeps them all."""

from contextlib import suppress
from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_plans import plans
from small_machines import RowCosts, gpus

from stepsim.errors import PlanError, StepsimError
from stepsim.plan import NONE, Plan, TaskKind
from stepsim.plan.builder import PlanBuilder
from stepsim.plan.check import check_plan
from stepsim.simulator import simulate
from stepsim.tables import Ragged


def good():
    """Two processes, each with a gpu: swap x out and in, send y over, reduce.

    row      0      1   2      3    4  5     6     7      8    9
    thread 0 begin
    s0 0            F0  r x             B          reduce
    copies                out x  in x'
    talk                                 send recv
    s0 1                                                  F1   reduce
    """
    builder = PlanBuilder()
    zero, one = (builder.thread(f"rank {process}", process=process) for process in range(2))
    gpu0, gpu1 = (builder.device(f"gpu{process}", process=process) for process in range(2))
    host = builder.device("host")
    s0, s1 = (builder.stream("compute", gpu) for gpu in (gpu0, gpu1))
    copies, side = builder.stream("copies", gpu0, role="d2h"), builder.stream("side", gpu0)
    out, into = builder.stream("send", gpu0, role="send"), builder.stream("receive", gpu1, role="receive")
    x, again = (builder.buffer(8, gpu0, owner=s0, name=name) for name in ("x", "x'"))
    h = builder.buffer(8, host, name="h")
    y, z = builder.buffer(4, gpu0, name="y"), builder.buffer(4, gpu1, owner=into, name="z")
    message, reduction = builder.group(), builder.group()

    builder.mark("step", builder.host(builder.work("begin"), thread=zero))
    builder.compute(builder.work("F"), s0, writes=[x], allocates=[x], thread=zero)
    builder.swap_out(x, h, copies, thread=zero)
    builder.release([x], s0, thread=zero)
    builder.swap_in(h, again, copies, thread=zero)
    builder.compute(builder.work("B"), s0, reads=[again], writes=[y], releases=[again], thread=zero)
    builder.send(y, gpu1, out, message, thread=zero)
    builder.receive(z, gpu0, into, message, allocates=[z], thread=one)
    builder.compute(builder.work("F"), s1, reads=[z], thread=one)
    builder.collective("all_reduce", [0, 1], side, reduction, size_bytes=4, thread=zero)
    builder.collective("all_reduce", [0, 1], s1, reduction, size_bytes=4, thread=one)
    return builder.build()


BEGIN, F, OUT, RELEASE, IN, B, SEND, RECEIVE, F_THERE, REDUCE, REDUCE_THERE = range(11)
X, AGAIN, H, Y, Z = range(5)


def put(plan, table, column, place, value):
    """``plan`` with one entry of one column replaced; a list replaces a list."""
    old = getattr(getattr(plan, table), column)
    if isinstance(old, Ragged):
        lists = old.to_lists()
        lists[place] = value
        new = Ragged.from_lists(lists)
    elif isinstance(old, tuple):
        new = (*old[:place], value, *old[place + 1 :])
    else:
        new = old.copy()
        new[place] = value
    return replace(plan, **{table: replace(getattr(plan, table), **{column: new})})


def refusal(plan):
    with pytest.raises(PlanError) as caught:
        check_plan(plan)
    return str(caught.value)


def problem(plan):
    try:
        check_plan(plan)
    except PlanError as error:
        return str(error)
    return None


def test_the_plan_that_these_tests_break_is_good():
    check_plan(good())


def test_a_buffer_that_no_row_allocates_is_there_from_the_start():
    check_plan(put(good(), "tasks", "allocates", F, []))


ROWS = {
    "an unknown kind": ("kind", F, 99, "row 1: kind must be in 0..9, got 99"),
    "an unknown device": ("device", F, 3, "row 1: device must be in -1..2, got 3"),
    "an unknown stream": ("stream", F, 6, "row 1: stream must be in -1..5, got 6"),
    "no thread": ("thread", F, NONE, "row 1: thread must be in 0..1, got -1"),
    "an unknown work": ("work", F, 3, "row 1: work must be in -1..2, got 3"),
    "an unknown route": ("route", OUT, 9, "row 2: route must be in -1..2, got 9"),
    "an unknown collective": ("collective", REDUCE, 1, "row 9: collective must be in -1..0, got 1"),
    "an unknown buffer": ("reads", B, [5], f"row {B}: reads must be in 0..4, got 5"),
    "a kernel without a stream": ("stream", F, NONE, "row 1 (F x): needs a stream: only host work has none"),
    "host work on a stream": ("kind", F, TaskKind.HOST, "row 1 (F x): is host work, which stands on no stream"),
    "a device other than its stream's": ("device", F, 1, "row 1 (F x): is on another device than its stream"),
    "a thread of another process": (
        "thread",
        F,
        1,
        "row 1 (F x): is issued by a thread of another process than its device's",
    ),
    "a kernel without work": ("work", F, NONE, "row 1 (x): needs work"),
    "host work without work": ("work", BEGIN, NONE, "row 0 (host): needs work"),
    "a swap without a route": ("route", OUT, NONE, "row 2 (swap out h): needs a route"),
    "a collective of no kind": ("collective", REDUCE, NONE, "row 9 (collective): needs a collective"),
    "a send without a group": ("group", SEND, NONE, "row 6 (send y): needs a group"),
    "a negative size": ("size_bytes", OUT, -1, "row 2 (swap out h): size_bytes must be >= 0"),
    "a wait for a later row": ("dependencies", F, [B], "row 1 (F x): depends on row 5, which is not an earlier row"),
    "a wait for itself": ("dependencies", F, [F], "row 1 (F x): depends on row 1, which is not an earlier row"),
    "a wait for nothing there is": (
        "dependencies",
        F,
        [-1],
        "row 1 (F x): depends on row -1, which is not an earlier row",
    ),
    "a wait for another process": (
        "dependencies",
        F_THERE,
        [SEND, RECEIVE],
        "row 8 (F z): depends on row 6 of another process: processes meet only in groups",
    ),
    "a send that nobody receives": (
        "group",
        RECEIVE,
        7,
        "row 6 (send y): a group is a send and a receive, or collectives; this one is ['send']",
    ),
    "a kernel in a group": (
        "group",
        F,
        5,
        "row 1 (F x): a group is a send and a receive, or collectives; this one is ['compute']",
    ),
    "a swap that writes nothing": ("writes", OUT, [], "row 2 (swap out x): must read one buffer and write one"),
    "a swap of other bytes than its buffers have": (
        "size_bytes",
        OUT,
        3,
        "row 2 (swap out h): moves 3 bytes, and buffer 'x' has 8",
    ),
    "a send and a receive of different sizes": (
        "size_bytes",
        SEND,
        3,
        "row 6 (send y): members of its group differ in size_bytes: [3, 4]",
    ),
    "a send and a receive of different routes": (
        "route",
        SEND,
        0,
        "row 6 (send y): members of its group differ in route: [0, 2]",
    ),
    "a collective with a member too few": (
        "group",
        REDUCE_THERE,
        7,
        "row 9 (collective): its collective has 2 members, the plan has rows for 1",
    ),
    "members that contribute different sizes": (
        "size_bytes",
        REDUCE,
        5,
        "row 9 (collective): members of its group differ in size_bytes: [4, 5]",
    ),
    "a buffer allocated twice": ("allocates", B, [X], "row 5 (B y): buffer 'x' is allocated twice"),
    "a buffer read after its release": ("reads", B, [X], "row 5 (B y): buffer 'x' is used after its release"),
    "a buffer read before its allocation": (
        "reads",
        F,
        [AGAIN],
        'row 1 (F x): buffer "x\'" is used before it is allocated',
    ),
    "a buffer allocated and never written": (
        "writes",
        F,
        [],
        "row 2 (swap out h): buffer 'x' is read before it is written",
    ),
    "a buffer of another process": ("reads", F_THERE, [Y], "row 8 (F y): works on gpu1, and buffer 'y' is on gpu0"),
    "a read that does not wait for the writer": (
        "dependencies",
        OUT,
        [],
        "row 2 (swap out h): buffer 'x' is read without waiting for row 1, which writes it",
    ),
    "a release that does not wait for a user": (
        "dependencies",
        RELEASE,
        [],
        "row 3 (release x): buffer 'x' is released without waiting for row 2, which uses it",
    ),
    "an allocation that does not wait for the owner stream": (
        "dependencies",
        IN,
        [],
        "row 4 (swap in x'): buffer \"x'\" is allocated on a foreign stream before row 3 of its owner stream",
    ),
    "a release on a foreign stream": (
        "releases",
        IN,
        [AGAIN],
        "row 4 (swap in x'): buffer \"x'\" is released on a stream that does not own it",
    ),
    "a buffer released twice": ("releases", B, [AGAIN, X], "row 5 (B y): buffer 'x' is used after its release"),
}


@pytest.mark.parametrize("fault", ROWS)
def test_a_row_with_this_fault_is_named_with_its_problem(fault):
    column, row, value, message = ROWS[fault]

    assert refusal(put(good(), "tasks", column, row, value)) == message


OTHER_TABLES = {
    "a buffer on no device": ("buffers", "device", X, NONE, "buffer 0: device must be in 0..2, got -1"),
    "a buffer of negative size": ("buffers", "size_bytes", X, -8, "buffer 'x': size_bytes must be >= 0, got -8"),
    "an unknown owner": ("buffers", "owner", X, 6, "buffer 0: owner must be in -1..5, got 6"),
    "an owner on another device": ("buffers", "owner", X, 1, "buffer 'x': its owner is a stream of another device"),
    "a stream on no device": ("streams", "device", 0, NONE, "stream 0: device must be in 0..2, got -1"),
    "a route from nowhere": ("routes", "source", 0, NONE, "route 0: source must be in 0..2, got -1"),
    "a route to an unknown device": ("routes", "destination", 0, 3, "route 0: destination must be in 0..2, got 3"),
    "a mark on no row": ("marks", "row", 0, 11, "mark 'step': must be on a row in 0..10, got 11"),
    "work of negative FLOP": ("work", "flop", 1, -5, "row 1 (F x): work: flop must be >= 0, got -5"),
    "work that writes negative bytes": (
        "work",
        "bytes_written",
        0,
        -1,
        "row 0 (begin): work: bytes_written must be >= 0, got -1",
    ),
    "a team with an unknown device": ("collectives", "team", 0, [0, 3], "collective 0: team must be in 0..2, got 3"),
    "a team with a device twice": (
        "collectives",
        "team",
        0,
        [1, 1],
        "row 9 (collective): collective: device 'gpu1' is twice in its team",
    ),
    "a team with a device on which no member stands": (
        "collectives",
        "team",
        0,
        [0, 2],
        "row 9 (collective): no member of its group is on 'host', which is in its team",
    ),
    "a team of more devices than members": (
        "collectives",
        "team",
        0,
        [0, 1, 2],
        "row 9 (collective): its collective has 3 members, the plan has rows for 2",
    ),
    "an unknown kind of collective": (
        "collectives",
        "kind",
        0,
        "gossip",
        "row 9 (collective): collective: kind must be one of all_reduce, all_gather, reduce_scatter, broadcast, "
        "all_to_all, got 'gossip'",
    ),
    "an unknown algorithm": (
        "collectives",
        "algorithm",
        0,
        "star",
        "row 9 (collective): collective: algorithm must be one of auto, ring, rings, tree, hierarchical, got 'star'",
    ),
}


@pytest.mark.parametrize("fault", OTHER_TABLES)
def test_a_table_with_this_fault_is_named_with_its_problem(fault):
    table, column, place, value, message = OTHER_TABLES[fault]

    assert refusal(put(good(), table, column, place, value)) == message


def test_columns_of_different_lengths_are_refused():
    plan = good()
    short = replace(plan, threads=replace(plan.threads, name=("rank 0",)))

    assert refusal(short) == "threads: columns differ in length: {'name': 1, 'process': 2}"


def test_lists_that_do_not_end_where_their_values_end_are_refused():
    plan = good()
    reads = plan.tasks.reads
    torn = replace(plan, tasks=replace(plan.tasks, reads=Ragged(reads.starts, reads.values[:-1])))

    assert refusal(torn) == "tasks: the starts of reads do not divide its values into lists"


def test_a_mark_may_stand_on_any_row():
    check_plan(put(good(), "marks", "row", 0, F))


def test_a_recorded_kernel_is_a_collective_of_one_whose_kind_is_its_name():
    builder = PlanBuilder()
    gpu = builder.device("gpu0")
    kernel = "ncclDevKernel_AllReduce_Sum_f32_RING_LL"
    builder.collective(kernel, [gpu], builder.stream("nccl", gpu), builder.group(), size_bytes=8)

    assert builder.build().collectives.kind == (kernel,)


def test_a_fault_of_an_entry_that_no_row_points_to_is_named_by_its_table():
    builder = PlanBuilder()
    builder.device("gpu0")
    builder.work("F", flop=-1)

    with pytest.raises(PlanError, match=r"^work 0: flop must be >= 0, got -1$"):
        builder.build()


# --- what takes two rows to break -----------------------------------------------------------------------------------


def test_members_of_a_group_on_one_stream_are_refused():
    builder = PlanBuilder()
    one, two = builder.device("gpu0"), builder.device("gpu1")
    stream, group = builder.stream("talk", one), builder.group()
    builder.send(builder.buffer(1, one), two, stream, group)
    builder.add(TaskKind.RECEIVE, stream=stream, group=group, size_bytes=1, route=(one, two))

    with pytest.raises(PlanError, match=r"row 0 .* two members of its group stand on one stream"):
        builder.build()


def test_members_that_disagree_in_order_are_refused():
    """gpu0 reduces a then b, gpu1 b then a, each on one stream."""
    builder = PlanBuilder()
    streams = [builder.stream("reduce", builder.device(f"gpu{i}")) for i in range(2)]
    a, b = builder.group(), builder.group()
    for stream, order in zip(streams, [(a, b), (b, a)], strict=True):
        for group in order:
            builder.collective("all_reduce", [0, 1], stream, group, size_bytes=1)

    with pytest.raises(PlanError, match=r"^row 0 \(collective\): members disagree in order: group 0 here, 1 there$"):
        builder.build()


def test_a_write_in_place_that_does_not_wait_for_a_reader_is_refused():
    builder = PlanBuilder()
    gpu = builder.device("gpu0")
    s0, s1 = builder.stream("s0", gpu), builder.stream("s1", gpu)
    weights = builder.buffer(1, gpu, name="W")
    builder.compute(builder.work("F"), s0, reads=[weights])
    builder.compute(builder.work("add"), s1, reads=[weights], writes=[weights])

    hasty = put(builder.build(), "tasks", "dependencies", 1, [])

    assert refusal(hasty) == "row 1 (add W): buffer 'W' is written without waiting for row 0, which uses it"


# --- order is proved over streams, threads and dependencies ---------------------------------------------------------


class Between:
    """What happens between the row that writes x, on s0, and the row that reads it, on s1 and the main thread."""

    def __init__(self):
        self.builder = PlanBuilder()
        self.main, self.other = self.builder.thread("main"), self.builder.thread("other")
        gpu = self.builder.device("gpu0")
        self.s0, self.s1, self.s2 = (self.builder.stream(f"s{i}", gpu) for i in range(3))
        self.x = self.builder.buffer(1, gpu, owner=self.s0, name="x")
        self.writer = self.builder.compute(self.builder.work("F"), self.s0, writes=[self.x], allocates=[self.x])

    def kernel(self, stream, **columns):
        return self.builder.compute(self.builder.work("H"), stream, **columns)

    def sync(self, **columns):
        return self.builder.host(self.builder.work("sync"), **columns)

    def read(self, after=()):
        """The plan whose reader waits for ``after`` and nothing else."""
        reader = self.builder.compute(self.builder.work("G"), self.s1, reads=[self.x])
        return put(self.builder.build(), "tasks", "dependencies", reader, list(after))


def test_a_reader_may_wait_for_the_writer_through_a_row_on_a_third_stream():
    between = Between()
    hop = between.kernel(between.s2, after=[between.writer])

    check_plan(between.read(after=[hop]))


def test_a_reader_may_stand_behind_a_row_of_its_stream_that_waited_for_the_writer():
    between = Between()
    between.kernel(between.s1, after=[between.writer])
    between.kernel(between.s1)

    check_plan(between.read())


def test_a_reader_may_be_launched_by_a_thread_that_synchronised_with_the_writer():
    between = Between()
    between.sync(after=[between.writer])

    check_plan(between.read())


def test_a_reader_may_be_launched_by_a_thread_that_was_held_until_the_writer_was_done():
    between = Between()
    between.kernel(between.s2, after=[between.writer], blocks_thread=True)

    check_plan(between.read())


def test_a_reader_behind_a_row_that_waits_for_nothing_is_refused():
    between = Between()
    hop = between.kernel(between.s2)

    assert "is read without waiting for row 0, which writes it" in refusal(between.read(after=[hop]))


def test_a_reader_that_does_not_wait_for_the_row_that_waited_is_refused():
    between = Between()
    between.kernel(between.s2, after=[between.writer])

    assert "is read without waiting for row 0, which writes it" in refusal(between.read())


def test_a_reader_whose_thread_waits_for_nothing_is_refused():
    between = Between()
    between.sync()

    assert "is read without waiting for row 0, which writes it" in refusal(between.read())


def test_a_reader_is_refused_when_another_thread_than_its_own_has_waited():
    between = Between()
    between.sync(after=[between.writer], thread=between.other)

    assert "is read without waiting for row 0, which writes it" in refusal(between.read())


# --- whatever is in the columns -------------------------------------------------------------------------------------


def corrupted(draw, plan):
    """``plan`` with one to three entries, anywhere, replaced by small numbers."""
    for _ in range(draw(st.integers(1, 3), label="faults")):
        table = draw(st.sampled_from([field.name for field in fields(Plan)]), label="table")
        columns = {
            name: column
            for name, column in getattr(plan, table).columns().items()
            if not isinstance(column, tuple) and len(column)
        }
        if not columns:
            continue
        column = draw(st.sampled_from(sorted(columns)), label="column")
        place = draw(st.integers(0, len(columns[column]) - 1), label="place")
        number = st.integers(-3, 12)
        is_list = isinstance(columns[column], Ragged)
        plan = put(plan, table, column, place, draw(st.lists(number, max_size=3) if is_list else number))
    return plan


@settings(max_examples=250)
@given(st.data())
def test_a_corrupted_plan_is_refused_with_one_line_or_is_still_a_plan(data):
    plan = corrupted(data.draw, good())

    message = problem(plan)

    if message is None:
        assert_it_can_be_asked_everything(plan)
    else:
        assert "\n" not in message


@given(st.data())
def test_a_corrupted_random_plan_is_refused_with_one_line_or_is_still_a_plan(data):
    plan = corrupted(data.draw, data.draw(plans())[0])

    message = problem(plan)

    if message is None:
        assert_it_can_be_asked_everything(plan)
    else:
        assert "\n" not in message


def assert_it_can_be_asked_everything(plan):
    for row in range(len(plan)):
        assert plan.task(row).row == row
    with suppress(StepsimError):  # it may deadlock, or lack a route; anything else would be our slip
        assert len(simulate(plan, gpus(2), RowCosts(seconds=1.0))) == len(plan)


def torn(draw, lists):
    """The same values, cut at other places."""
    starts = np.array(draw(st.lists(st.integers(-2, 9), max_size=len(lists.starts) + 1)), dtype=np.int64)
    return Ragged(starts, lists.values)


@given(st.data())
def test_lists_cut_anywhere_are_refused_or_still_lists(data):
    plan = good()
    column = data.draw(st.sampled_from(["dependencies", "reads", "writes", "allocates", "releases"]))
    lists = torn(data.draw, getattr(plan.tasks, column))
    plan = replace(plan, tasks=replace(plan.tasks, **{column: lists}))

    message = problem(plan)

    assert lists.is_whole if message is None else "\n" not in message


def test_two_lanes_of_one_name_are_refused_because_reports_could_not_tell_them_apart():
    builder = PlanBuilder()
    gpu = builder.device("gpu0")
    builder.stream("compute", gpu)
    builder.stream("compute", gpu)

    with pytest.raises(PlanError, match="two streams or threads are called 'gpu0 compute'"):
        builder.build()


def test_the_columns_of_a_plan_cannot_be_written():
    builder = PlanBuilder()
    builder.compute(builder.work("F"), builder.stream("compute", builder.device("gpu0")))
    plan = builder.build()

    with pytest.raises(ValueError, match="read-only"):
        plan.tasks.kind[0] = TaskKind.HOST
