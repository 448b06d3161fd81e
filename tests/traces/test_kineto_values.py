"""Whatever value stands anywhere in a Kineto trace, and however its bytes are damaged: a whole trace, or one line."""

import copy
import gzip
import json
from contextlib import nullcontext

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kineto_files import NEW, OLD, V100, KinetoFile
from test_damaged_files import VALUES, change, check, damaged, places

from stepsim.traces import read_kineto


def document(categories):
    """Every kind of event there is, and every key of the head that is read."""
    file = KinetoFile(categories)
    file.step(5, 1000, 200)
    file.op(1005, 30)["args"]["External id"] = 9
    file.launched(1010, 5, 1016, 20, correlation=1)
    file.call(1020, 4, correlation=2, name="hipMemcpyWithStream")["args"]["size"] = "4096"
    file.on_gpu("copy", "Memcpy HtoD (Host -> Device)", 1040, 8, 2)
    file.call(1026, 4, correlation=3, name="cudaMemsetAsync")
    file.on_gpu("memset", "Memset (Device)", 1050, 2, 3, bytes=64)
    file.call(1031, 1, correlation=4, name="cudaEventRecord")
    file.call(1033, 1, correlation=5, name="cudaStreamWaitEvent")
    noted = {"stream": 8, "wait_on_stream": 7, "wait_on_cuda_event_record_corr_id": 4, "correlation": 5}
    file.add("cuda_sync", "Stream Wait Event", 1033, 1, 8, **noted)
    message = {"In msg nelems": 1000, "Out msg nelems": 1000, "dtype": "Float8_e4m3fn"}
    file.call(1060, 4, correlation=6, name="cudaGraphLaunch")
    file.on_gpu("kernel", "ncclDevKernel_AllReduce_Sum", 1070, 9, 6, stream=8, device=1, **message)
    file.on_gpu("kernel", "gemm", 1080, 9, 6, stream=8, device=1)
    file.events[-1]["args"] |= {"graph node id": 12, "graph id": 1}
    gpus = [V100, V100 | {"id": 1, "name": "P4"}]
    return file.document() | {"deviceProperties": gpus, "distributedInfo": {"rank": 0, "backend": "nccl"}}


DOCUMENTS = {"old": document(OLD), "new": document(NEW)}


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return tmp_path_factory.mktemp("values") / "t.json"


@pytest.mark.parametrize("name", DOCUMENTS)
@given(data=st.data(), zipped=st.booleans())
@settings(max_examples=300)
def test_any_value_in_any_place_gives_a_whole_trace_or_one_line(path, name, data, zipped):
    whole = copy.deepcopy(DOCUMENTS[name])
    for _ in range(data.draw(st.integers(1, 3))):
        found = list(places(whole))
        change(whole, data.draw(st.sampled_from(found)), copy.deepcopy(data.draw(st.sampled_from(VALUES))))
    content = json.dumps(whole).encode("utf-8", "surrogatepass")
    path.write_bytes(gzip.compress(content, mtime=0) if zipped else content)

    check(read_kineto, path)


@pytest.mark.parametrize("name", DOCUMENTS)
@given(data=st.data())
@settings(max_examples=200)
def test_damaged_bytes_give_a_whole_trace_or_one_line(path, name, data):
    path.write_bytes(data.draw(damaged(json.dumps(DOCUMENTS[name]).encode())))

    check(read_kineto, path)


@pytest.mark.parametrize(("size", "read"), [(2**50, 2**50), (2**50 + 1, 0)])
def test_a_size_that_no_machine_moves_at_once_is_none(path, size, read):
    whole = copy.deepcopy(DOCUMENTS["new"])
    (memset,) = [event for event in whole["traceEvents"] if event["name"].startswith("Memset")]
    memset["args"]["bytes"] = size
    path.write_text(json.dumps(whole))

    with nullcontext() if read else pytest.warns(UserWarning, match="1 sizes are no number of bytes"):
        trace = read_kineto(path)

    assert trace.of("memset")["size_bytes"].tolist() == [read]
