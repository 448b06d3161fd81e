"""What people call a row."""

from hypothesis import given
from hypothesis import strategies as st

from stepsim.plan import NONE, TaskKind
from stepsim.plan.builder import PlanBuilder
from stepsim.plan.names import distinct_row_names, row_name


def shown(kind, *, work=None, owner=0, **lists):
    """The name of the one row of a plan; ``lists`` are names of buffers."""
    builder = PlanBuilder()
    gpu = builder.device("gpu0")
    stream = builder.stream("s", gpu)
    columns = {
        column: [builder.buffer(0, gpu, owner=owner, name=name) for name in names] for column, names in lists.items()
    }
    builder.add(kind, stream=stream, work=NONE if work is None else builder.work(work), **columns)
    return row_name(builder.build(), 0)


def test_a_kernel_is_called_by_its_work_and_the_first_buffer_that_it_writes():
    assert shown(TaskKind.COMPUTE, work="F", reads=["x"], writes=["y", "z"]) == "F y"


def test_a_kernel_that_writes_nothing_is_called_by_what_it_reads_and_one_that_reads_nothing_by_what_it_releases():
    assert shown(TaskKind.COMPUTE, work="F", reads=["x", "w"]) == "F x"
    assert shown(TaskKind.COMPUTE, work="F", releases=["x"]) == "F x"


def test_all_but_kernels_and_host_work_are_called_by_their_kind_too():
    assert shown(TaskKind.RECOMPUTE, work="F", writes=["y"]) == "recompute F y"
    assert shown(TaskKind.RELEASE, releases=["x"]) == "release x"


def test_a_row_about_nothing_is_called_by_its_kind():
    assert shown(TaskKind.RELEASE) == "release"
    assert shown(TaskKind.COMPUTE, work="") == "compute"


@st.composite
def namings(draw):
    """A plan whose works and buffers share few names."""
    builder = PlanBuilder()
    gpu = builder.device("gpu0")
    stream = builder.stream("s", gpu)
    names = st.sampled_from(["x", "y", "F"])
    buffers = [builder.buffer(0, gpu, owner=stream, name=draw(names)) for _ in range(4)]
    some = st.lists(st.sampled_from(buffers), max_size=1)
    for _ in range(draw(st.integers(0, 12))):
        kind = draw(st.sampled_from([TaskKind.COMPUTE, TaskKind.RECOMPUTE, TaskKind.HOST]))
        work = builder.work(draw(st.sampled_from(["F", "F x", "B"])))
        lists = {"reads": draw(some), "writes": draw(some)}
        builder.add(kind, stream=-1 if kind == TaskKind.HOST else stream, work=work, **lists)
    return builder.build()


@given(namings())
def test_each_name_is_there_once_in_order_of_appearance_and_each_row_points_to_its_own(plan):
    names, place = distinct_row_names(plan)
    expected = [row_name(plan, row) for row in range(len(plan))]

    assert [names[number] for number in place.tolist()] == expected
    assert names == tuple(dict.fromkeys(expected))
