from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from random_plans import plans

from stepsim.errors import FileError, PlanError
from stepsim.plan import NONE, Plan, Task, TaskKind
from stepsim.plan.builder import PlanBuilder


def swapped():
    """Forward keeps x on the host until backward needs it again.

    row      0   1     2        3    4        5
    compute  F0                 F1            B
    d2h          out x
    h2d                                in x'
    """
    builder = PlanBuilder()
    gpu, host = builder.device("gpu0"), builder.device("host")
    compute = builder.stream("compute", gpu)
    d2h, h2d = builder.stream("d2h", gpu, role="d2h"), builder.stream("h2d", gpu, role="h2d")
    x, again = (builder.buffer(8, gpu, owner=compute, name=name, tensor=3) for name in ("x", "x'"))
    h = builder.buffer(8, host, name="x on host", tensor=3)
    builder.compute(builder.work("F"), compute, writes=[x], allocates=[x])
    builder.swap_out(x, h, d2h)
    builder.release([x], compute)
    builder.compute(builder.work("F"), compute)
    builder.swap_in(h, again, h2d)
    builder.compute(builder.work("B"), compute, reads=[again], releases=[again])
    return builder.build()


# --- what a plan says of itself -------------------------------------------------------------------------------------


def test_a_task_is_a_row_in_names():
    task = swapped().task(1)

    assert task == Task(
        row=1,
        name="swap out x on host",
        kind=TaskKind.SWAP_OUT,
        device="gpu0",
        stream="d2h",
        thread="main",
        blocks_thread=False,
        work=None,
        size_bytes=8,
        group=None,
        dependencies=(0,),
        reads=("x",),
        writes=("x on host",),
        allocates=("x on host",),
        releases=(),
    )


def test_rows_are_named_after_their_work_and_the_buffer_they_are_about():
    assert swapped().row_names() == ["F x", "swap out x on host", "release x", "F", "swap in x'", "B x'"]


def test_a_host_row_stands_in_line_on_its_thread_behind_the_streams():
    builder = PlanBuilder()
    main, other = builder.thread("main"), builder.thread("autograd")
    stream = builder.stream("compute", builder.device("gpu0"))
    builder.host(builder.work("gap"), thread=other)
    builder.compute(builder.work("F"), stream, thread=main)
    plan = builder.build()

    assert plan.lane_names() == ("gpu0 compute", "main", "autograd")
    assert plan.lane_of_rows().tolist() == [2, 0]


def test_the_process_of_a_row_is_that_of_its_thread():
    builder = PlanBuilder()
    for process in range(2):
        thread = builder.thread(f"rank {process}", process=process)
        stream = builder.stream("compute", builder.device(f"gpu{process}", process=process))
        builder.compute(builder.work("F"), stream, thread=thread)

    assert builder.build().process_of_rows().tolist() == [0, 1]


def test_plans_with_equal_content_are_equal_and_hash_alike():
    one, two = swapped(), swapped()

    assert one == two
    assert hash(one) == hash(two)
    assert one.content_hash == two.content_hash


def test_plans_differ_when_one_buffer_differs():
    builder, other = PlanBuilder(), PlanBuilder()
    for each, size_bytes in ((builder, 8), (other, 9)):
        each.buffer(size_bytes, each.device("gpu0"))

    assert builder.build() != other.build()


def test_a_plan_is_no_equal_of_something_else():
    assert swapped() != "plan"


@given(plans())
def test_every_row_of_a_plan_can_be_shown(drawn):
    plan, _ = drawn

    names = [plan.task(row).name for row in range(len(plan))]

    assert names == plan.row_names()
    assert all(names)


# --- what the builder adds ------------------------------------------------------------------------------------------


def waits(plan, row):
    return plan.tasks.dependencies[row].tolist()


def two_streams():
    builder = PlanBuilder()
    gpu = builder.device("gpu0")
    return builder, gpu, builder.stream("s0", gpu), builder.stream("s1", gpu)


def test_a_reader_on_another_stream_waits_for_the_writer():
    builder, gpu, s0, s1 = two_streams()
    x = builder.buffer(1, gpu, owner=s0)
    builder.compute(builder.work("F"), s0, writes=[x], allocates=[x])
    reader = builder.compute(builder.work("G"), s1, reads=[x])

    assert waits(builder.build(), reader) == [0]


def test_a_reader_on_the_same_stream_needs_no_dependency():
    builder, gpu, s0, _ = two_streams()
    x = builder.buffer(1, gpu, owner=s0)
    builder.compute(builder.work("F"), s0, writes=[x], allocates=[x])
    reader = builder.compute(builder.work("G"), s0, reads=[x])

    assert waits(builder.build(), reader) == []


def test_who_writes_in_place_waits_for_earlier_readers():
    builder, gpu, s0, s1 = two_streams()
    x = builder.buffer(1, gpu, role="parameter")
    reader = builder.compute(builder.work("F"), s0, reads=[x])
    writer = builder.compute(builder.work("add"), s1, reads=[x], writes=[x])

    assert waits(builder.build(), writer) == [reader]


def test_a_release_waits_for_the_last_user_of_each_stream():
    builder, gpu, s0, s1 = two_streams()
    x = builder.buffer(1, gpu, owner=s0)
    builder.compute(builder.work("F"), s0, writes=[x], allocates=[x])
    builder.compute(builder.work("G"), s1, reads=[x])
    last = builder.compute(builder.work("G"), s1, reads=[x])
    release = builder.release([x], s0)

    assert waits(builder.build(), release) == [last]


def test_who_allocates_for_another_stream_waits_for_the_last_row_of_that_stream():
    """Its memory may be what that row has just given back."""
    builder, gpu, s0, s1 = two_streams()
    earlier = builder.compute(builder.work("F"), s0)
    x = builder.buffer(1, gpu, owner=s0)
    foreign = builder.compute(builder.work("G"), s1, writes=[x], allocates=[x])

    assert waits(builder.build(), foreign) == [earlier]


def test_what_is_given_with_after_comes_on_top_once():
    builder, gpu, s0, s1 = two_streams()
    x = builder.buffer(1, gpu, owner=s0)
    writer = builder.compute(builder.work("F"), s0, writes=[x], allocates=[x])
    other = builder.host(builder.work("gap"))
    reader = builder.compute(builder.work("G"), s1, reads=[x], after=[other, writer])

    assert waits(builder.build(), reader) == [writer, other]


def test_equal_work_is_listed_once():
    builder, _, s0, s1 = two_streams()
    for stream in (s0, s1):
        builder.compute(builder.work("F", flop=10, ops=[1, 2]), stream)
    builder.compute(builder.work("F", flop=11, ops=[1, 2]), s0)
    plan = builder.build()

    assert plan.work.flop.tolist() == [10, 11]
    assert plan.work.ops.to_lists() == [[1, 2], [1, 2]]
    assert plan.tasks.work.tolist() == [0, 0, 1]


def test_a_send_may_carry_a_part_of_its_buffer():
    builder = PlanBuilder()
    one, two = builder.device("gpu0"), builder.device("gpu1")
    out, into = builder.stream("send", one), builder.stream("receive", two)
    group = builder.group()
    half = builder.work("narrow", shapes="[8] -> [4]")
    builder.send(builder.buffer(8, one), two, out, group, work=half, size_bytes=4)
    builder.receive(builder.buffer(4, two), one, into, group)

    assert builder.build().tasks.size_bytes.tolist() == [4, 4]


def test_without_a_thread_the_builder_makes_one():
    builder, _, s0, _ = two_streams()
    builder.compute(builder.work("F"), s0)

    assert builder.build().threads.name == ("main",)


def test_what_the_builder_cannot_mend_is_refused_with_row_name_and_buffer():
    builder, gpu, s0, s1 = two_streams()
    x = builder.buffer(1, gpu, owner=s0, name="x")
    builder.compute(builder.work("F"), s0, writes=[x], allocates=[x])
    builder.release([x], s1)

    with pytest.raises(PlanError) as caught:
        builder.build()

    assert str(caught.value) == "row 1 (release x): buffer 'x' is released on a stream that does not own it"


# --- files ----------------------------------------------------------------------------------------------------------


@settings(max_examples=20)
@given(plans())
def test_a_plan_survives_its_file(tmp_path_factory, drawn):
    plan, _ = drawn
    path = tmp_path_factory.getbasetemp() / "plan"

    plan.save(path)

    assert Plan.load(path) == plan


def test_an_empty_plan_survives_its_file(tmp_path):
    plan = PlanBuilder().build()

    plan.save(tmp_path / "plan")

    assert Plan.load(tmp_path / "plan") == plan


def test_equal_plans_give_equal_files(tmp_path):
    swapped().save(tmp_path / "one")
    swapped().save(tmp_path / "two")

    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


def test_a_file_of_a_plan_that_fails_its_self_check_is_refused(tmp_path):
    plan = swapped()
    kind = np.where(np.arange(len(plan)) == 0, TaskKind.HOST, plan.tasks.kind).astype(np.int8)
    replace(plan, tasks=replace(plan.tasks, kind=kind)).save(tmp_path / "plan")

    with pytest.raises(PlanError, match=r"row 0 .*: is host work, which stands on no stream"):
        Plan.load(tmp_path / "plan")


def test_a_file_of_something_else_is_refused(tmp_path):
    (tmp_path / "plan").write_text("not a plan")

    with pytest.raises(
        FileError, match=r"plan: format: must be stepsim-plan: the file is no zip, it begins with b'not"
    ):
        Plan.load(tmp_path / "plan")


def test_index_columns_say_none_where_nothing_applies():
    tasks = swapped().tasks

    assert np.flatnonzero(tasks.work == NONE).tolist() == [1, 2, 4]
    assert np.flatnonzero(tasks.route != NONE).tolist() == [1, 4]
