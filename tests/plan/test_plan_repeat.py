from collections import defaultdict
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from random_plans import EIGHTHS, EVERYTHING, Draft
from small_machines import RowCosts, gpus, spans_of

from stepsim.errors import PlanError
from stepsim.memory import memory_profile
from stepsim.plan import NONE, TaskKind
from stepsim.plan.builder import PlanBuilder
from stepsim.plan.check import check_plan
from stepsim.report import report
from stepsim.simulator import simulate


class Step:
    """A builder with a gpu, its host, two compute streams, a copy stream and two threads at hand."""

    def __init__(self):
        self.builder = builder = PlanBuilder()
        self.gpu, self.host = builder.device("gpu0"), builder.device("host")
        self.main, self.loader = builder.thread("main"), builder.thread("loader")
        self.s0, self.s1 = builder.stream("s0", self.gpu), builder.stream("s1", self.gpu)
        self.h2d = builder.stream("h2d", self.gpu, role="h2d")

    def buffer(self, name, owner=None, size_bytes=1, **columns):
        return self.builder.buffer(
            size_bytes, self.gpu, owner=self.s0 if owner is None else owner, name=name, **columns
        )

    def compute(self, kind="F", stream=None, **columns):
        return self.builder.compute(self.builder.work(kind), self.s0 if stream is None else stream, **columns)

    def build(self):
        return self.builder.build()


def simulated(plan, **seconds):
    """Each row takes the seconds of its kind of work, and others none."""
    of_row = [seconds[plan.work.kind[work]] if work != NONE else 0.0 for work in plan.tasks.work.tolist()]
    return simulate(plan, gpus(2), RowCosts(seconds=of_row, fixed=True))


def dependencies(plan):
    return plan.tasks.dependencies.to_lists()


def released(plan, row):
    """Numbers of the buffers that a row releases."""
    return plan.tasks.releases[row].tolist()


# --- what overlaps ----------------------------------------------------------------------------------------------------

LONGER = [(3.0, 2.0), (2.0, 3.0), (2.5, 2.5)]


@pytest.mark.parametrize(("load_s", "compute_s"), LONGER, ids=["load", "compute", "even"])
def test_a_loader_runs_ahead_and_the_period_is_the_longer_of_loading_and_computing(load_s, compute_s):
    """L + C at first, then max(L, C) a step.

    loader   LLLLLLLLLLLLLLLLLL
    h2d            c     c     c
    s0             CCCC  CCCC  CCCC
    """
    step = Step()
    builder = step.builder
    batch, x = builder.buffer(0, step.host, name="batch"), step.buffer("x", step.h2d, size_bytes=0)
    builder.host(builder.work("load"), thread=step.loader, writes=[batch], allocates=[batch])
    builder.copy(batch, x, step.h2d, allocates=[x], releases=[batch])
    step.compute("compute", reads=[x])
    builder.release([x], step.h2d)
    plan = step.build().repeat(5)

    timeline = simulated(plan, load=load_s, compute=compute_s)

    assert timeline.makespan_s == load_s + compute_s + 4 * max(load_s, compute_s)
    assert report(timeline, plan).period_s == max(load_s, compute_s)


@pytest.mark.parametrize(("load_s", "compute_s"), LONGER, ids=["load", "compute", "even"])
def test_a_batch_loaded_ahead_is_taken_by_the_next_step(load_s, compute_s):
    """Step 0 finds a batch. max(L, C) a step, from the first one on.

    loader   LLLLLLLLLLLL
    s0       CCCC  CCCC
    """
    step = Step()
    builder = step.builder
    batch, ahead = (builder.buffer(0, step.host, name="batch") for _ in range(2))
    x = step.buffer("x", step.h2d, size_bytes=0)
    builder.host(builder.work("load"), thread=step.loader, writes=[ahead], allocates=[ahead])
    builder.copy(batch, x, step.h2d, allocates=[x], releases=[batch])
    step.compute("compute", reads=[x])
    builder.release([x], step.h2d)
    plan = step.build().repeat(5)

    timeline = simulated(plan, load=load_s, compute=compute_s)

    assert timeline.makespan_s == 5 * max(load_s, compute_s)
    assert report(timeline, plan).period_s == max(load_s, compute_s)


@pytest.mark.parametrize(("backward_s", "update_s"), LONGER, ids=["backward", "update", "even"])
def test_an_update_by_the_gradient_of_the_step_before_hides_behind_the_backward_pass(backward_s, update_s):
    """F reads the weights that U writes, and U the gradient of the step before: F + max(B, U) a step.

    s0   FFBBBBFFBBBBFFBBBB
    s1     UUU   UUU   UUU
    """
    step = Step()
    weights, gradient, following = (step.buffer(name) for name in ("weights", "gradient", "gradient"))
    step.compute("F", reads=[weights])
    step.compute("U", step.s1, reads=[weights, gradient], writes=[weights])
    step.compute("B", writes=[following], allocates=[following])
    step.builder.release([gradient], step.s0)
    plan = step.build().repeat(5)

    timeline = simulated(plan, F=1.0, B=backward_s, U=update_s)

    assert report(timeline, plan).period_s == 1.0 + max(backward_s, update_s)


def test_stages_of_two_processes_work_on_different_steps_at_once():
    """Stage b works on what a sent it in the step before; the joint keeps dependencies within each process.

    a   AAAS AAAS AAAS
    b   BBBB BBBB BBBB      without the joint, A + B a step
    """
    builder = PlanBuilder()
    a, b = (builder.device(f"gpu{process}", process=process) for process in range(2))
    for process in range(2):
        builder.thread("main", process=process)
    on_a, to, on_b, into = (builder.stream(name, at) for name, at in [("s", a), ("to", a), ("s", b), ("from", b)])
    x = builder.buffer(1, a, owner=on_a, name="x")
    old, new = (builder.buffer(1, b, owner=into, name="y") for _ in range(2))
    group = builder.group()
    builder.compute(builder.work("A"), on_a, writes=[x], allocates=[x])
    builder.send(x, b, to, group)
    builder.release([x], on_a)
    builder.compute(builder.work("B"), on_b, thread=1, reads=[old])
    builder.release([old], into, thread=1)
    builder.receive(new, a, into, group, allocates=[new], thread=1)
    plan = builder.build().repeat(6)

    timeline = simulated(plan, A=3.0, B=4.0)

    assert report(timeline, plan).period_s == 4.0
    assert len(set(plan.tasks.group[plan.tasks.group != NONE].tolist())) == 6


# --- the joint --------------------------------------------------------------------------------------------------------


def test_parameters_stay_one_buffer_whose_readers_and_writers_wait_for_those_of_the_step_before():
    """
    step     0   0     1   1
    s0       F -.   .- F -.
    s1           U -'      U
    """
    step = Step()
    weights = step.buffer("weights")
    step.compute(reads=[weights])
    step.compute("U", step.s1, reads=[weights], writes=[weights])

    plan = step.build().repeat(2)

    assert len(plan.buffers) == 1
    assert dependencies(plan) == [[], [0], [1], [2]]


def test_a_row_in_place_waits_for_the_last_writer_of_the_step_before():
    """
    step     0   0   0     1   1   1
    s0       R -.    W     R -.    W
    s1           W -'  `------ W -'
    """
    step = Step()
    weights = step.buffer("weights")
    step.compute("R", step.s0, reads=[weights])
    step.compute("W", step.s1, reads=[weights], writes=[weights])
    step.compute("W", step.s0, reads=[weights], writes=[weights])

    plan = step.build().repeat(2)

    assert dependencies(plan) == [[], [0], [1], [], [2, 3], [4]]


def test_what_a_step_leaves_behind_is_released_on_its_owner_when_the_next_begins_after_all_its_users():
    """
    step     0   0     1     1   1
    s0       F -.  .- release F -.
    s1           G                G
    """
    step = Step()
    x = step.buffer("x", size_bytes=5)
    step.compute(writes=[x], allocates=[x])
    step.compute("G", step.s1, reads=[x])

    plan = step.build().repeat(3)

    kinds = [TaskKind(kind).label for kind in plan.tasks.kind.tolist()]
    assert kinds == ["compute", "compute", "release", "compute", "compute", "release", "compute", "compute"]
    assert dependencies(plan) == [[], [0], [1], [], [3], [4], [], [6]]
    assert [released(plan, row) for row in (2, 5)] == [[0], [1]]
    assert memory_profile(plan).by_row("gpu0")[0].tolist() == [5] * 8


def test_a_host_buffer_left_behind_is_released_on_the_stream_that_touched_it_last():
    step = Step()
    builder = step.builder
    x, copy = step.buffer("x"), builder.buffer(1, step.host, name="copy")
    builder.swap_out(x, copy, step.h2d)
    step.compute()

    plan = step.build().repeat(2)

    assert plan.task(2).kind is TaskKind.RELEASE
    assert (plan.task(2).stream, plan.task(2).releases) == ("h2d", ("copy",))


def test_a_release_is_issued_by_the_thread_that_issues_to_its_stream():
    step = Step()
    x, y = step.buffer("x", step.h2d), step.buffer("y", step.s1)
    step.compute(stream=step.h2d, thread=step.loader, writes=[x], allocates=[x])
    step.compute(thread=step.main, reads=[x], writes=[y], allocates=[y])

    plan = step.build().repeat(2)

    assert [(plan.task(row).stream, plan.task(row).thread) for row in (2, 3)] == [("s1", "main"), ("h2d", "loader")]


def test_a_row_that_allocates_for_another_stream_waits_for_its_last_row_in_the_step_before():
    """G on s1 allocates for s0, where F comes later: it waits for the F of the step before."""
    step = Step()
    x = step.buffer("x")
    step.compute("G", step.s1, writes=[x], allocates=[x])
    step.compute(reads=[x], releases=[x])

    plan = step.build().repeat(2)

    assert dependencies(plan) == [[], [0], [1], [2]]


def test_of_several_buffers_that_could_take_a_place_the_first_takes_the_first():
    step = Step()
    old = [step.buffer("x") for _ in range(2)]
    new = [step.buffer("x") for _ in range(3)]
    step.compute(reads=old, releases=old)
    step.compute(writes=new, allocates=new)

    plan = step.build().repeat(2)

    assert released(plan, 2) == [new[2]]
    assert released(plan, 3) == new[:2]


def test_a_buffer_of_a_tensor_is_taken_over_whatever_the_names():
    step = Step()
    old, new = step.buffer("x", tensor=3), step.buffer("x#1", tensor=3)
    step.compute(reads=[old], releases=[old])
    step.compute(writes=[new], allocates=[new])

    plan = step.build().repeat(2)

    assert released(plan, 2) == [new]


def test_steps_begin_at_their_marks_and_other_marks_are_dropped():
    step = Step()
    x = step.buffer("x")
    step.builder.mark("begin", step.compute(writes=[x], allocates=[x]))

    plan = step.build().repeat(3)

    assert plan.marks.name == ("step 0", "step 1", "step 2")
    assert plan.marks.row.tolist() == [0, 1, 3]


# --- refusals ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("steps", [0, -1])
def test_less_than_one_step_is_refused(steps):
    step = Step()
    step.compute()

    with pytest.raises(PlanError, match=f"steps must be >= 1, got {steps}"):
        step.build().repeat(steps)


def test_a_plan_without_rows_is_refused():
    with pytest.raises(PlanError, match="no rows"):
        Step().build().repeat(1)


@pytest.mark.parametrize(
    "other",
    [{"name": "y"}, {"tensor": 1}, {"microbatch": 1}, {"part": (0, 0, 1)}, {"size_bytes": 2}, {"owner": 1}],
    ids=lambda other: next(iter(other)),
)
def test_a_released_buffer_without_a_successor_of_its_place_is_named(other):
    step = Step()
    old, new = step.buffer("x"), step.buffer(**{"name": "x"} | other)
    step.compute(reads=[old], releases=[old])
    step.compute(stream=other.get("owner"), writes=[new], allocates=[new])

    with pytest.raises(PlanError, match="buffer 'x' is there from the start and released, and the step leaves no"):
        step.build().repeat(2)


def test_a_buffer_that_the_step_itself_releases_hands_nothing_over():
    step = Step()
    old, new = step.buffer("x"), step.buffer("x")
    step.compute(reads=[old], releases=[old])
    step.compute(writes=[new], allocates=[new], releases=[new])

    with pytest.raises(PlanError, match="leaves no other"):
        step.build().repeat(2)


def test_a_buffer_left_behind_that_no_stream_touches_is_named():
    step = Step()
    log = step.builder.buffer(1, step.host, name="log")
    step.builder.host(step.builder.work("write"), writes=[log], allocates=[log])

    with pytest.raises(PlanError, match="buffer 'log' is left behind, and no stream touches it"):
        step.build().repeat(2)


# --- whatever the step ------------------------------------------------------------------------------------------------

ALONE = ["kernel", "kernel", "in_place", "drop", "host_work"]
"""Rows that occupy nothing but their own stream or thread: a later step cannot slow an earlier one."""


@st.composite
def steps_with_heirs(draw, kinds=EVERYTHING):
    """A random plan in which some buffers are there from the start; those it drops are made again at its end."""
    draft = Draft(draw, num_gpus=draw(st.integers(1, 2), label="gpus"))
    builder = draft.builder
    early = {}
    for gpu in draw(st.lists(st.sampled_from(range(draft.num_gpus)), max_size=3), label="there from the start"):
        owner = draw(st.sampled_from(draft.compute[gpu]))
        number = builder.buffer(2, draft.gpu[gpu], owner=owner, name="early")
        draft.place[number], draft.size_bytes[number] = (gpu, owner), 2
        early[number] = (gpu, owner)
    draft.written |= set(early)
    for kind in draw(st.lists(st.sampled_from([*kinds, "drop"]), min_size=1, max_size=15)):
        draft.add_row(kind)
    for gpu, owner in [place for number, place in early.items() if number not in draft.written]:
        heir = builder.buffer(2, draft.gpu[gpu], owner=owner, name="early")
        stream, thread = draw(st.sampled_from(draft.compute[gpu])), draft.threads[draft.process[gpu]][0]
        builder.compute(builder.work("work"), stream, thread=thread, writes=[heir], allocates=[heir])
    builder.compute(builder.work("work"), draft.compute[0][0], thread=draft.threads[0][0])
    return builder.build()


def written_row_by_row(plan, steps):
    """The same by `PlanBuilder`, which says who waits for whom."""
    builder, tasks, buffers = PlanBuilder(), plan.tasks, plan.buffers
    for name, process in zip(plan.devices.name, plan.devices.process.tolist(), strict=True):
        builder.device(name, process=process)
    for name, process in zip(plan.threads.name, plan.threads.process.tolist(), strict=True):
        builder.thread(name, process=process)
    for name, device, role in zip(plan.streams.name, plan.streams.device.tolist(), plan.streams.role, strict=True):
        builder.stream(name, device, role=role)
    for kind in plan.work.kind:
        builder.work(kind)

    def copy_of(buffer):
        columns = [column[buffer] for column in (buffers.size_bytes, buffers.device, buffers.owner)]
        size_bytes, device, owner = map(int, columns)
        return builder.buffer(size_bytes, device, owner=owner, name=buffers.name[buffer])

    allocated, gone = tasks.allocates.values.tolist(), tasks.releases.values.tolist()
    left = [buffer for buffer in sorted(allocated) if buffer not in gone]
    taken = {}
    for buffer in sorted(set(gone) - set(allocated)):
        same = [other for other in left if all(c[other] == c[buffer] for c in (buffers.name, buffers.owner))]
        taken[buffer] = next(other for other in same if other not in taken.values())
    now = [copy_of(buffer) for buffer in range(len(buffers))]
    begins = []
    for step in range(steps):
        begins.append(len(builder._tasks))
        if step:
            for stream, (thread, spare) in sorted(spares(plan, set(left) - set(taken.values())).items()):
                builder.release([now[buffer] for buffer in spare], stream, thread=thread)
            new = {buffer: copy_of(buffer) for buffer in sorted(allocated)}
            now = [new[b] if b in new else now[taken.get(b, b)] for b in range(len(buffers))]
        write_step(builder, plan, now, step)
    for step, row in enumerate(begins):
        builder.mark(f"step {step}", row)
    return builder.build()


def spares(plan, buffers):
    """By stream: the thread that issues the first row there, and which of ``buffers`` to release there."""
    found = defaultdict(list)
    for buffer in sorted(buffers):
        uses = [plan.tasks.reads, plan.tasks.writes]
        rows = [row for row in range(len(plan)) if any(buffer in lists[row] for lists in uses)]
        owner = int(plan.buffers.owner[buffer])
        found[owner if owner != NONE else int(plan.tasks.stream[rows[-1]])].append(buffer)

    def thread(stream, spare):
        rows = [row for row in range(len(plan)) if plan.tasks.stream[row] == stream]
        rows += [row for row in range(len(plan)) if spare[0] in plan.tasks.allocates[row]]
        return int(plan.tasks.thread[rows[0]])

    return {stream: (thread(stream, spare), spare) for stream, spare in found.items()}


def write_step(builder, plan, now, step):
    tasks, begin = plan.tasks, len(builder._tasks)
    num_groups = tasks.group.max() + 1
    for row in range(len(plan)):
        lists = {name: [now[b] for b in getattr(tasks, name)[row]] for name in ("reads", "writes")}
        lists |= {name: [now[b] for b in getattr(tasks, name)[row]] for name in ("allocates", "releases")}
        columns = {name: int(getattr(tasks, name)[row]) for name in ("thread", "size_bytes", "stream", "work")}
        columns |= {"after": [begin + earlier for earlier in tasks.dependencies[row]]}
        columns |= {"blocks_thread": bool(tasks.blocks_thread[row])}
        if tasks.route[row] != NONE:
            columns["route"] = tuple(int(end[tasks.route[row]]) for end in plan.routes.columns().values())
        if tasks.group[row] != NONE:
            columns["group"] = int(tasks.group[row] + num_groups * step)
        if tasks.collective[row] == NONE:
            builder.add(TaskKind(int(tasks.kind[row])), **columns, **lists)
            continue
        kind, algorithm, team = (column[tasks.collective[row]] for column in plan.collectives.columns().values())
        del columns["work"]
        builder.collective(kind, team.tolist(), algorithm=algorithm, **columns, **lists)


@given(steps_with_heirs(), st.integers(2, 4))
def test_the_joined_plan_is_what_the_builder_writes_row_by_row(plan, steps):
    joined = plan.repeat(steps)

    expected = written_row_by_row(plan, steps)
    assert dependencies(joined) == dependencies(expected)
    assert joined == expected


@given(steps_with_heirs(), st.integers(1, 4))
def test_a_joined_plan_passes_the_check_and_holds_what_the_plan_alone_holds_in_each_step(plan, steps):
    joined = plan.repeat(steps)

    check_plan(joined)
    num_releases, rest = divmod(len(joined) - steps * len(plan), max(1, steps - 1))
    assert rest == 0
    alone, together = memory_profile(plan), memory_profile(joined)
    for device in plan.devices.name:
        for step in range(steps):
            begin = step * (len(plan) + num_releases)
            for bytes_alone, all_bytes in zip(alone.by_row(device), together.by_row(device), strict=True):
                assert np.array_equal(all_bytes[begin : begin + len(plan)], bytes_alone)


@given(steps_with_heirs())
def test_one_step_is_the_plan_with_its_mark(plan):
    joined = plan.repeat(1)

    assert joined == replace(plan, marks=joined.marks)
    assert (joined.marks.name, joined.marks.row.tolist()) == (("step 0",), [0])


@given(steps_with_heirs(), st.integers(2, 3))
def test_rows_wait_for_the_step_before_only_where_the_order_of_a_lane_does_not_say_so(plan, steps):
    joined = plan.repeat(steps)

    lane, process = joined.lane_of_rows(), joined.process_of_rows()
    waiting, earlier = joined.tasks.dependencies.owners(), joined.tasks.dependencies.values
    begins = joined.marks.row
    across = np.searchsorted(begins, waiting, side="right") != np.searchsorted(begins, earlier, side="right")
    assert (lane[waiting] != lane[earlier])[across].all()
    assert (process[waiting] == process[earlier]).all()


def for_each_copy(column, joined, steps):
    """The entry of each row of a plan for each copy of the row, and 0 for the releases between the steps."""
    num_releases = (len(joined) - steps * len(column)) // (steps - 1)
    return [*column, *([*[0.0] * num_releases, *column] * (steps - 1))]


@given(steps_with_heirs(kinds=ALONE), st.data())
def test_the_first_step_runs_as_the_plan_alone(plan, data):
    joined = plan.repeat(3)
    some = st.lists(EIGHTHS, min_size=len(plan), max_size=len(plan))
    seconds, launch_s = data.draw(some, label="seconds"), data.draw(some, label="launches")
    for_all = [for_each_copy(column, joined, 3) for column in (seconds, launch_s)]

    alone = simulate(plan, gpus(2), RowCosts(seconds=seconds, launch_s=launch_s))
    together = simulate(joined, gpus(2), RowCosts(seconds=for_all[0], launch_s=for_all[1]))

    assert spans_of(together)[: len(plan)] == spans_of(alone)


@given(steps_with_heirs())
def test_a_joined_plan_runs_to_its_end_whatever_its_rows_contend_for(plan):
    costs = RowCosts(seconds=1.0, launch_s=0.25, latency_s=0.5)

    timeline = simulate(plan.repeat(3), gpus(2), costs)

    assert timeline.makespan_s >= simulate(plan, gpus(2), costs).makespan_s
