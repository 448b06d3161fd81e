"""``stepsim import`` of execution traces beside Kineto traces, and of the ranks of a job."""

import json

import pytest
from command_line import done, refused
from execution_files import PROCESS, ExecutionFile, tensor
from kineto_files import KinetoFile

from stepsim import Trace

MM = [tensor(1, 4, 8), tensor(2, 8, 2)], [tensor(3, 4, 2)]
WORK = "aten::mm float[4,8]; float[8,2] -> float[4,2]"


def written(folder, rank, *, process=PROCESS):
    """An execution trace of one product and the Kineto trace of its process."""
    execution = ExecutionFile(pid=process)
    execution.op("aten::mm", *MM)
    execution.write(folder / f"et{rank}.json")
    kineto = KinetoFile()
    kineto.op(0, 10, thread=process, name="aten::mm")
    kineto.launched(2, 1, 20, 30, 1, thread=process)
    distributed = {"backend": "nccl", "rank": rank, "world_size": 2}
    document = {**kineto.document(), "distributedInfo": distributed}
    (folder / f"k{rank}.json").write_text(json.dumps(document))


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    written(tmp_path, 0)
    written(tmp_path, 1, process=PROCESS + 1)
    return tmp_path


@pytest.mark.parametrize("files", [("et0.json", "k0.json"), ("k0.json", "et0.json")], ids=" ".join)
def test_an_execution_trace_and_its_kineto_trace_become_one(here, files):
    ran = done("import", *files, "-o", "step.trace", "--json")

    line, _ = ran.out.splitlines()
    counts = "1 host, 1 launch, 1 kernel; 1 of 1 kernels linked to ops of et0.json"
    assert line == f"k0.json: Kineto trace of Tesla V100: {counts} -> step.trace"
    (fact,) = ran.facts["traces"]
    assert (fact["file"], fact["execution_trace"]) == ("k0.json", "et0.json")
    assert (fact["kernels_linked"], fact["trace"]) == ("1 of 1", "step.trace")
    assert Trace.load("step.trace").of("kernel")["work"].tolist() == [WORK]
    assert Trace.load("step.trace").of("kernel")["flop"].tolist() == [128]


def test_of_several_the_partner_is_told_by_its_process(here):
    facts = done("import", "et1.json", "k0.json", "k1.json", "et0.json", "-o", "job", "--json").facts

    assert [(fact["file"], fact["execution_trace"]) for fact in facts["traces"]] == [
        ("k0.json", "et0.json"),
        ("k1.json", "et1.json"),
    ]


def test_a_kineto_trace_without_partner_stays_as_it_is(here):
    facts = done("import", "k0.json", "k1.json", "et0.json", "-o", "job", "--json").facts["traces"]

    assert ["execution_trace" in fact for fact in facts] == [True, False]
    assert Trace.load("job/k1.json.trace").of("kernel")["work"].tolist() == [""]


OTHER = f"is no thread of the Kineto trace ({PROCESS + 1}): of another rank or run?"

REFUSED = {
    ("et0.json", "k1.json"): f"et0.json and k1.json: pid {PROCESS} {OTHER}",
    ("et0.json", "again.json", "k0.json"): "et0.json and again.json are both of the process of k0.json: give one",
    ("et0.json", "sweep.log"): "et0.json: one of the Kineto traces must be of the same process, got none",
    ("k0.json", "k1.json", "same.json"): "k0.json and same.json are both of rank 0 of 2: import them apart",
    ("k0.json", "k0.json"): "k0.json is given twice",
}


@pytest.mark.parametrize("files", REFUSED, ids=" ".join)
def test_files_that_do_not_belong_together_are_refused_in_one_line(here, files):
    (here / "again.json").write_bytes((here / "et0.json").read_bytes())
    (here / "same.json").write_bytes((here / "k0.json").read_bytes())
    (here / "sweep.log").write_text("cpu_to_gpu0_by_dma_under_numa0 25.6\n")

    assert refused("import", *files, "-o", "out") == REFUSED[files]


def test_an_execution_trace_that_fits_two_kineto_traces_is_refused(here):
    written(here, 0)
    kineto = json.loads((here / "k0.json").read_text())
    del kineto["distributedInfo"]
    (here / "later.json").write_text(json.dumps(kineto))

    message = refused("import", "et0.json", "k0.json", "later.json", "-o", "out")

    assert message == "et0.json: one of the Kineto traces must be of the same process, got k0.json and later.json"


def test_execution_traces_alone_have_no_times(here):
    assert refused("import", "et0.json", "et1.json", "-o", "out").startswith("et0.json: times: are not in a PyTorch")


def test_two_recordings_of_a_process_that_is_alone_are_two_traces(here):
    for name in ("one.json", "two.json"):
        document = json.loads((here / "k0.json").read_text())
        (here / name).write_text(json.dumps({**document, "distributedInfo": {"rank": 0, "world_size": 1}}))

    assert len(done("import", "one.json", "two.json", "-o", "out", "--json").facts["traces"]) == 2
