"""An execution trace beside its Kineto trace: small pairs by hand, pairs that do not fit, then published ones."""

import pytest
from execution_files import PROCESS, ExecutionFile, tensor
from hypothesis import given
from hypothesis import strategies as st
from kineto_files import KinetoFile

from stepsim.errors import StepsimError
from stepsim.traces.execution_pair import paired
from stepsim.traces.execution_trace import read_execution_trace
from stepsim.traces.kineto import read_kineto

MM = [tensor(1, 4, 8), tensor(2, 8, 2)], [tensor(3, 4, 2)]
MM_WORK, MM_FLOP, MM_BYTES = "aten::mm float[4,8]; float[8,2] -> float[4,2]", 128, 4 * (32 + 16 + 8)


def one_step():
    """A linear op that calls a product, and an activation."""
    file = ExecutionFile()
    outer = file.op("aten::linear")
    file.op("aten::mm", *MM, parent=outer)
    file.op("aten::relu", [tensor(3, 4, 2)], [tensor(4, 4, 2)])
    return file


def record_step(file, at, correlation, *, kernels=1):
    """The same step from ``at`` on: the product launches ``kernels`` of 30, 10, 10 ... us, the activation one of 5."""
    file.op(at, 40, thread=PROCESS, name="aten::linear")
    file.op(at + 1, 30, thread=PROCESS, name="aten::mm")
    for number in range(kernels):
        runs = 10 if number else 30
        file.launched(at + 2 + number, 1, at + 100 + 40 * number, runs, correlation + number, thread=PROCESS)
    file.op(at + 50, 10, thread=PROCESS, name="aten::relu")
    file.launched(at + 52, 1, at + 300, 5, correlation + kernels, thread=PROCESS, name="relu")


def pair(execution, kineto, tmp_path):
    et = read_execution_trace(execution.write(tmp_path / "et.json"))
    return et, read_kineto(kineto.write(tmp_path / "kineto.json"))


def test_a_kernel_learns_the_innermost_op_that_launched_it(tmp_path):
    kineto = KinetoFile()
    record_step(kineto, 0, 1)

    trace = paired(*pair(one_step(), kineto, tmp_path))

    assert trace.of("kernel")["work"].tolist() == [MM_WORK, "aten::relu float[4,2] -> float[4,2]"]
    assert trace.of("kernel")["flop"].tolist() == [MM_FLOP, 0]
    assert trace.of("kernel")["size_bytes"].tolist() == [MM_BYTES, 64]
    assert trace.provenance["kernels linked"] == "2 of 2"
    assert trace.provenance["execution trace"] == "et.json"


def test_a_launch_belongs_to_the_op_that_is_open_when_its_inner_ops_have_ended(tmp_path):
    """
    linear  [----------------]
    mm        [--]
    relu            [--]
    launch     1     2     3
    """
    file = ExecutionFile()
    outer = file.op("aten::linear", [tensor(9, 5)])
    file.op("aten::mm", *MM, parent=outer)
    file.op("aten::relu", [tensor(3, 4, 2)], [tensor(4, 4, 2)], parent=outer)
    kineto = KinetoFile()
    for name, at, took in (("aten::linear", 0, 40), ("aten::mm", 1, 9), ("aten::relu", 12, 8)):
        kineto.op(at, took, thread=PROCESS, name=name)
    for number, at in enumerate((5, 15, 25), start=1):
        kineto.launched(at, 1, 100 * number, 30, number, thread=PROCESS)

    linked = paired(*pair(file, kineto, tmp_path)).of("kernel")

    assert [work.partition(" ")[0] for work in linked["work"]] == ["aten::mm", "aten::relu", "aten::linear"]


def test_the_kernels_of_an_op_share_it_by_their_time(tmp_path):
    kineto = KinetoFile()
    record_step(kineto, 0, 1, kernels=3)

    of_product = paired(*pair(one_step(), kineto, tmp_path)).of("kernel").iloc[:3]

    assert set(of_product["work"]) == {MM_WORK}
    assert of_product["flop"].tolist() == [round(MM_FLOP * part / 50) for part in (30, 10, 10)]


def test_every_step_that_does_the_same_is_linked_and_no_other(tmp_path):
    kineto = KinetoFile()
    record_step(kineto, 0, 1)
    kineto.op(1000, 40, thread=PROCESS, name="aten::mm")
    kineto.launched(1002, 1, 1100, 30, 50, thread=PROCESS)
    record_step(kineto, 2000, 100)

    trace = paired(*pair(one_step(), kineto, tmp_path))

    assert trace.provenance["kernels linked"] == "4 of 5"
    assert trace.of("kernel").set_index("correlation").loc[50, "work"] == ""


def test_a_kernel_launched_outside_of_every_op_is_not_linked(tmp_path):
    kineto = KinetoFile()
    record_step(kineto, 0, 1)
    kineto.launched(500, 1, 600, 30, 50, thread=PROCESS)

    assert paired(*pair(one_step(), kineto, tmp_path)).provenance["kernels linked"] == "2 of 3"


def test_threads_are_told_by_what_they_did(tmp_path):
    execution = one_step()
    execution.op("MmBackward0", thread=2)
    execution.op("aten::mm", *MM, thread=2)
    kineto = KinetoFile()
    kineto.op(100, 10, thread=7, name="MmBackward0")
    kineto.op(120, 10, thread=7, name="aten::mm")
    kineto.launched(122, 1, 400, 30, 9, thread=7)
    record_step(kineto, 0, 1)

    trace = paired(*pair(execution, kineto, tmp_path))

    assert trace.provenance["kernels linked"] == "3 of 3"
    assert trace.of("kernel")["work"].tolist()[-1] == MM_WORK


def test_a_collective_takes_what_it_sends_unless_it_is_known(tmp_path):
    execution = ExecutionFile()
    for name in ("nccl:all_reduce", "nccl:all_gather"):
        execution.op(name, [tensor(1, 1000)], [tensor(2, 4000)])
    kineto = KinetoFile()
    kineto.op(0, 10, thread=PROCESS, name="nccl:all_reduce")
    kineto.launched(2, 1, 100, 30, 1, thread=PROCESS, name="ncclKernel_AllReduce")
    kineto.op(20, 10, thread=PROCESS, name="nccl:all_gather")
    kineto.call(22, 1, thread=PROCESS, correlation=2)
    kineto.kernel(200, 30, 2, name="ncclKernel_AllGather", **{"In msg nelems": 7, "dtype": "Float"})

    assert paired(*pair(execution, kineto, tmp_path)).of("collective")["size_bytes"].tolist() == [4000, 28]


@given(st.permutations(range(4)))
def test_ops_that_began_in_one_instant_may_come_in_any_order(tmp_path_factory, order):
    names = ("aten::to", "aten::lift", "aten::detach", "aten::mm")
    execution, kineto = ExecutionFile(), KinetoFile()
    for name in names:
        execution.op(name, *MM)
    for place in order:
        kineto.op(5, 10, thread=PROCESS, name=names[place])
    kineto.op(3, 1, thread=PROCESS, name="aten::mm")
    kineto.launched(6, 1, 50, 30, 1, thread=PROCESS)

    trace = paired(*pair(execution, kineto, tmp_path_factory.getbasetemp()))

    assert trace.provenance["kernels linked"] == "1 of 1"


# --- pairs that do not fit --------------------------------------------------------------------------------------------


def test_two_ranks_are_refused(tmp_path):
    """Their files list the same ops."""
    kineto = KinetoFile()
    record_step(kineto, 0, 1)
    execution = one_step()
    execution.pid = PROCESS + 1

    with pytest.raises(
        StepsimError, match=r"et\.json and kineto\.json: pid 42 is no thread of the Kineto trace \(41\)"
    ):
        paired(*pair(execution, kineto, tmp_path))


@pytest.mark.parametrize("missing", ["aten::linear", "aten::mm", "aten::relu"])
def test_a_trace_that_does_something_else_is_refused(tmp_path, missing):
    kineto = KinetoFile()
    record_step(kineto, 0, 1)
    kineto.events = [event for event in kineto.events if event["name"] != missing]

    with pytest.raises(StepsimError, match="no thread has the ops of the other file in the same order"):
        paired(*pair(one_step(), kineto, tmp_path))


# --- measured ---------------------------------------------------------------------------------------------------------

RANKS = {0: "245 of 245", 1: "246 of 310", 3: "251 of 315", 4: "251 of 251", 6: "246 of 246"}
"""Of ranks 1 and 3, 64 kernels were launched before the recording began."""

PAIRS = {
    ("hta/execution_trace/benchmark_simple_add_et.json.gz", "hta/execution_trace/*_trace.json.gz"): "4 of 4",
    ("param/linear_et.json.gz", "param/linear_kineto.json.gz"): "8580 of 8716",
    ("triosim/graph_vgg13-iter41.json.gz", "triosim/profiler_vgg13-iter41.json.gz"): "292 of 292",
    **{
        (f"param/dlrm_pytorch_et/dlrm_eg_{rank}.json.gz", f"param/dlrm_kineto/worker{rank}_*"): linked
        for rank, linked in RANKS.items()
    },
}


def published(data_dir, execution, kineto):
    found = sorted(data_dir.glob(kineto))
    if not found or not (data_dir / execution).is_file():
        pytest.skip(f"no {execution} or {kineto} in {data_dir}")
    return read_execution_trace(data_dir / execution), read_kineto(found[0])


@pytest.mark.parametrize("files", PAIRS, ids=lambda files: files[0].rpartition("/")[2])
def test_published_pairs_are_linked(data_dir, files):
    assert paired(*published(data_dir, *files)).provenance["kernels linked"] == PAIRS[files]


def test_the_kernels_of_vgg13_do_what_its_shapes_say(data_dir):
    """Three times forward but for the input of the first layer: what all ops do, but for rounding."""
    execution, kineto = published(
        data_dir, "triosim/graph_vgg13-iter41.json.gz", "triosim/profiler_vgg13-iter41.json.gz"
    )

    flop = paired(execution, kineto).of("kernel")["flop"]

    assert flop.sum() == pytest.approx(execution.nodes["flop"].sum(), abs=len(flop))


def test_ranks_of_one_job_are_not_taken_for_each_other(data_dir):
    execution, _ = published(data_dir, *list(PAIRS)[-1])
    _, kineto = published(data_dir, *list(PAIRS)[-2])

    with pytest.raises(StepsimError, match="of another rank or run"):
        paired(execution, kineto)
