"""Chakra traces as JSON: both spellings by hand, bad values, damaged files, then the published ones."""

import json
import tarfile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepsim.errors import FileError
from stepsim.traces.chakra import looks_like_chakra, read_chakra
from stepsim.traces.detect import format_of

GRAPH = {
    "workload_graph": [
        {"Id": 3, "Name": "aten::mm", "NodeType": 4, "data_deps": [], "runtime": 318, "is_cpu_op": True},
        {"Id": 4, "Name": "sgemm", "NodeType": 4, "data_deps": [3], "runtime": 28, "is_cpu_op": False},
        {"Id": 5, "Name": "ncclKernel_AllReduce", "NodeType": 7, "data_deps": [4], "runtime": 7.5, "is_cpu_op": False},
        {"Id": 6, "Name": "aten::view", "NodeType": 4, "data_deps": [4], "is_cpu_op": True},
    ]
}


def protobuf(node):
    attributes = [{"name": "is_cpu_op", "boolVal": node["is_cpu_op"]}]
    if node["NodeType"] == 7:
        attributes.append({"name": "comm_size", "int64Val": "4096"})
    duration = {"durationMicros": str(int(node["runtime"]))} if "runtime" in node else {}
    return {"id": str(node["Id"]), "name": node["Name"], "type": "COMP_NODE", **duration, "attr": attributes}


def written(path, document):
    path.write_text(json.dumps(document))
    return path


def test_what_took_time_becomes_kernels_collectives_and_host_work(tmp_path):
    trace = read_chakra(written(tmp_path / "c.json", GRAPH))

    assert trace.events["kind"].tolist() == ["host", "kernel", "collective"]
    assert trace.events["duration_s"].tolist() == pytest.approx([318e-6, 28e-6, 7.5e-6])
    assert trace.events["start_s"].tolist() == pytest.approx([0, 318e-6, 346e-6])
    assert trace.events["device"].tolist() == ["", "gpu0", "gpu0"]
    assert trace.provenance["left out"] == "1 nodes that took no time"


def test_the_spelling_of_protobuf_says_the_same_and_sizes_too(tmp_path):
    path = written(tmp_path / "c.json", {"nodes": [protobuf(node) for node in GRAPH["workload_graph"]]})

    trace = read_chakra(path)

    assert format_of(path).name == "Chakra trace"
    assert trace.events["kind"].tolist() == ["host", "kernel", "collective"]
    assert trace.of("collective")["size_bytes"].tolist() == [4096]
    assert trace.of("collective")["duration_s"].tolist() == pytest.approx([7e-6])


def test_a_graph_is_told_by_its_content(tmp_path):
    assert format_of(written(tmp_path / "c.bin", GRAPH)).name == "Chakra trace"
    assert not looks_like_chakra(b'{"nodes": []}')


@pytest.mark.parametrize(
    ("node", "message"),
    [
        (7, r"workload_graph\[0\]: must be an object, got 7"),
        ({"Id": None}, r"workload_graph\[0\]\.id: must be a number that no other node has"),
        ({"Id": 4}, r"workload_graph\[1\]\.id: must be a number that no other node has, got 4"),
        ({"Name": 3}, r"workload_graph\[0\]\.name: must be text, got 3"),
        ({"runtime": -1}, r"workload_graph\[0\]\.runtime: must be a number from 0 to 1e\+12, got -1"),
        ({"runtime": 1e13}, r"runtime: must be a number from 0 to 1e\+12"),
        ({"runtime": "long"}, r"runtime: must be a number from 0 to 1e\+12, got 'long'"),
        ({"runtime": True}, r"runtime: must be a number from 0 to 1e\+12, got True"),
    ],
)
def test_what_makes_no_sense_is_named(tmp_path, node, message):
    first, *others = GRAPH["workload_graph"]
    spoiled = {**first, **node} if isinstance(node, dict) else node

    with pytest.raises(FileError, match=message):
        read_chakra(written(tmp_path / "c.json", {"workload_graph": [spoiled, *others]}))


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ([], "must be a list of nodes: this is no Chakra trace"),
        ({"workload_graph": {}}, "must be a list of nodes"),
        ({"workload_graph": []}, "must be > 0 for some node: nothing was timed"),
        ({"workload_graph": GRAPH["workload_graph"][-1:]}, "must be > 0 for some node: nothing was timed"),
    ],
)
def test_a_graph_without_times_is_refused(tmp_path, document, message):
    with pytest.raises(FileError, match=message):
        read_chakra(written(tmp_path / "c.json", document))


@given(place=st.integers(0, 400), put=st.text('09-,[]{}"e.tru', max_size=3), cut=st.integers(0, 5))
def test_a_damaged_graph_gives_a_trace_or_one_line(tmp_path_factory, place, put, cut):
    text = json.dumps(GRAPH)
    path = tmp_path_factory.getbasetemp() / "damaged.json"
    path.write_text(text[:place] + put + text[place + cut :])
    try:
        trace = read_chakra(path)
    except FileError:
        return
    assert (trace.events["duration_s"] > 0).all()


def test_the_published_graphs_are_read(data_dir, tmp_path):
    """Of 3664 nodes, 157 have no time."""
    archive = data_dir / "chakra" / "json_trace.tar.gz"
    if not archive.is_file():
        pytest.skip(f"no {archive}")
    counts = {}
    with tarfile.open(archive) as tar:
        for member in filter(tarfile.TarInfo.isfile, tar):
            path = tmp_path / "c.json"
            path.write_bytes(tar.extractfile(member).read())
            counts[member.name] = len(read_chakra(path).events)

    assert counts == {"jsonData/chakra.0.json": 3507, "jsonData/small_chakra.0.json": 7}
