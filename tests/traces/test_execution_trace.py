"""Execution traces of PyTorch: FLOP by hand, both forms, bad values, damaged files, then published ones."""

import gzip
import json
import warnings

import pytest
from execution_files import FLAT, NESTED, ExecutionFile, integers, number, tensor, tensors
from hypothesis import given
from hypothesis import strategies as st

from stepsim.errors import FileError, StepsimError
from stepsim.traces import execution_trace, read_any
from stepsim.traces.execution_trace import NODES, read_execution_trace

ONE_PAD = [integers(1, 1), integers(1, 1), integers(1, 1)]


def read(file, tmp_path):
    return read_execution_trace(file.write(tmp_path / "et.json"))


def only(file, tmp_path):
    return read(file, tmp_path).nodes.iloc[-1]


@pytest.mark.parametrize(
    ("name", "inputs", "output", "flop"),
    [
        ("aten::mm", [tensor(1, 4, 8), tensor(2, 8, 2)], (4, 2), 2 * 4 * 8 * 2),
        ("aten::addmm", [tensor(3, 2), tensor(1, 4, 8), tensor(2, 8, 2)], (4, 2), 2 * 4 * 8 * 2),
        ("aten::bmm", [tensor(1, 3, 4, 8), tensor(2, 3, 8, 2)], (3, 4, 2), 3 * 2 * 4 * 8 * 2),
        ("aten::cudnn_convolution", [tensor(1, 2, 3, 8, 8), tensor(2, 5, 3, 3, 3), *ONE_PAD], (2, 5, 8, 8), 34560),
        (
            "aten::convolution",
            [tensor(1, 2, 3, 8, 8), tensor(2, 5, 3, 3, 3), tensor(4, 5), *ONE_PAD, number(False)],
            (2, 5, 8, 8),
            2 * (2 * 5 * 8 * 8) * (3 * 3 * 3),
        ),
        (
            "aten::convolution",
            [tensor(1, 2, 3, 8, 8), tensor(2, 3, 5, 2, 2), tensor(4, 5), *ONE_PAD, number(True)],
            (2, 5, 16, 16),
            2 * (2 * 3 * 8 * 8) * (5 * 2 * 2),
        ),
        ("aten::relu", [tensor(1, 4, 8)], (4, 8), 0),
        ("aten::mm", [tensor(1, 4)], (4, 2), 0),
    ],
)
def test_flop_are_two_for_each_multiply_add(tmp_path, name, inputs, output, flop):
    file = ExecutionFile()
    file.op(name, inputs, [tensor(9, *output)])

    assert only(file, tmp_path)["flop"] == flop


@pytest.mark.parametrize(("asked", "times"), [((True, True), 2), ((False, True), 1), ((False, False), 0)])
def test_each_gradient_of_a_convolution_takes_what_forward_takes(tmp_path, asked, times):
    """Of 2 x 5 x 8 x 8 outputs, each of a filter of 3 x 3 x 3."""
    file = ExecutionFile()
    mask = ([*asked, True], [[], [], []], "GenericList[Bool,Bool,Bool]")
    given_ = [tensor(1, 2, 5, 8, 8), tensor(2, 2, 3, 8, 8), tensor(3, 5, 3, 3, 3), integers(5), *ONE_PAD]
    file.op("aten::convolution_backward", [*given_, number(False), integers(0, 0), number(1), mask])

    assert only(file, tmp_path)["flop"] == times * 2 * (2 * 5 * 8 * 8) * 27


@pytest.mark.parametrize("schema", [FLAT, NESTED])
def test_an_op_has_its_shapes_its_bytes_and_its_caller(tmp_path, schema):
    file = ExecutionFile(schema)
    outer = file.op("aten::linear")
    file.op("aten::mm", [tensor(1, 4, 8), tensor(2, 8, 2)], [tensor(3, 4, 2)], parent=outer)

    trace = read(file, tmp_path)

    assert trace.nodes.dtypes.astype(str).to_dict() == NODES
    node = trace.nodes.iloc[-1]
    assert node["work"] == "aten::mm float[4,8]; float[8,2] -> float[4,2]"
    assert (node["read_bytes"], node["written_bytes"]) == (4 * (32 + 16), 4 * 8)
    assert (node["parent"], node["thread"], node["order"]) == (outer, 1, 2)
    assert trace.provenance["schema"] == schema


def test_what_an_op_calls_is_not_counted_twice(tmp_path):
    file = ExecutionFile()
    arguments = [tensor(1, 2, 3, 8, 8), tensor(2, 5, 3, 3, 3), tensor(4, 5), *ONE_PAD, number(False)]
    outer = file.op("aten::convolution", arguments, [tensor(9, 2, 5, 8, 8)])
    file.op("aten::cudnn_convolution", [*arguments[:2], *ONE_PAD], [tensor(9, 2, 5, 8, 8)], parent=outer)

    flop = read(file, tmp_path).nodes.set_index("name")["flop"]

    assert flop["aten::convolution"] == 0
    assert flop["aten::cudnn_convolution"] == 34560


def test_an_op_on_many_tensors_is_told_by_their_number_and_bytes(tmp_path):
    file = ExecutionFile()
    file.op("aten::_foreach_add_", [tensors(*(tensor(place, 10) for place in range(20)))])

    assert only(file, tmp_path)["work"] == "aten::_foreach_add_ 20 tensors of 800 bytes -> "


def test_a_reader_depends_on_the_last_op_that_wrote_its_storage(tmp_path):
    file = ExecutionFile()
    first = file.op("aten::fill_", [], [tensor(1, 4)])
    second = file.op("aten::fill_", [tensor(1, 4)], [tensor(1, 4)])
    other = file.op("aten::ones", [], [tensor(2, 4)])
    last = file.op("aten::add", [tensor(1, 4), tensor(2, 4)], [tensor(3, 4)])

    edges = read(file, tmp_path).data.to_numpy().tolist()

    assert edges == [[first, second], [second, last], [other, last]]


def test_communication_is_named_with_what_it_sends(tmp_path):
    file = ExecutionFile()
    file.op("nccl:all_reduce", [tensor(1, 1000)])

    node = only(file, tmp_path)

    assert (node["collective"], node["read_bytes"]) == ("all_reduce", 4000)


def test_a_newer_schema_with_unknown_fields_is_read_with_one_warning(tmp_path):
    file = ExecutionFile(NESTED)
    file.op("aten::mm", [tensor(1, 4, 8), tensor(2, 8, 2)], [tensor(3, 4, 2)])
    document = file.document() | {"schema": "3.0.0", "moon": "full"}
    document["nodes"][-1]["phase"] = 3
    path = tmp_path / "et.json"
    path.write_text(json.dumps(document))

    with pytest.warns(UserWarning, match=r"schema 3\.0\.0 is newer than 1\.1") as caught:
        trace = read_execution_trace(path)

    assert len(caught) == 1
    assert trace.nodes["flop"].sum() == 128


def test_alone_it_is_no_measurement_and_says_what_it_needs(tmp_path):
    file = ExecutionFile()
    file.op("aten::relu", [tensor(1, 4)], [tensor(2, 4)])

    with pytest.raises(FileError, match=r"times: are not in a PyTorch execution trace: give its Kineto trace too"):
        read_any(file.write(tmp_path / "et.json"))


# --- bad input --------------------------------------------------------------------------------------------------------


def spoiled(change):
    file = ExecutionFile()
    file.op("aten::mm", [tensor(1, 4, 8), tensor(2, 8, 2)], [tensor(3, 4, 2)])
    document = file.document()
    change(document, document["nodes"][-1])
    return json.dumps(document).encode()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda document, _: document.pop("nodes"), "nodes: must be a list: this is no execution trace"),
        (lambda document, _: document.update(nodes=[]), "nodes: must be >= 1"),
        (lambda document, _: document.update(nodes=[3]), r"nodes\[0\]: must be an object, got 3"),
        (lambda document, _: document.update(schema="1.0.0"), "schema: must be a version from 1.0.1 on, got '1.0.0'"),
        (lambda document, _: document.pop("schema"), "schema: must be a version from 1.0.1 on"),
        (lambda _, node: node.update(name=7), r"nodes\[2\]\.name: must be text, got 7"),
        (lambda _, node: node.update(id=1), "id: must be given to one node only, got 1"),
        (lambda _, node: node.update(id=-5), r"nodes\[2\]\.id: must be a whole number >= 0, got -5"),
        (lambda _, node: node.pop("tid"), r"nodes\[2\]\.tid: must be a whole number >= 0"),
        (lambda _, node: node.update(rf_id=2**70), r"file: is not JSON|nodes\[2\]\.rf_id: must be a whole number"),
        (
            lambda _, node: node.update(rf_id=None, attrs=[{"name": []}, 3]),
            r"nodes\[2\]\.rf_id: must be a whole number",
        ),
        (lambda _, node: node.pop("input_types"), r"nodes\[2\]\.inputs: make no sense"),
        (lambda _, node: node["input_shapes"].pop(), r"nodes\[2\]\.inputs: make no sense"),
        (lambda _, node: node["inputs"][0].clear(), r"nodes\[2\]\.inputs: make no sense"),
        (lambda _, node: node["inputs"][0].__setitem__(3, -1), "a tensor must have whole numbers >= 0"),
        (lambda _, node: node["inputs"][0].__setitem__(3, 2**60), r"inputs: must be at most 1125899906842624 bytes"),
        (lambda _, node: node["output_shapes"].__setitem__(0, [2**40, 2**40]), r"flop: must be a whole number"),
    ],
)
def test_what_makes_no_sense_is_named(tmp_path, change, message):
    path = tmp_path / "et.json"
    path.write_bytes(spoiled(change))

    with pytest.raises(FileError, match=message):
        read_execution_trace(path)


@pytest.mark.parametrize(
    "content", [b"", b"[]", b"{", b"null", b"[" * 5000, gzip.compress(b"{}", mtime=0)[:-9], b"\x1f\x8bxx"]
)
def test_what_is_no_execution_trace_is_refused(tmp_path, content):
    path = tmp_path / "et.json"
    path.write_bytes(content)

    with pytest.raises(FileError):
        read_execution_trace(path)


def test_a_bomb_is_refused_before_it_is_unzipped(tmp_path, monkeypatch):
    monkeypatch.setattr(execution_trace, "LARGEST_FILE_BYTES", 10_000)
    path = tmp_path / "et.json.gz"
    path.write_bytes(gzip.compress(b" " * 10_001))

    with pytest.raises(FileError, match="file: must hold at most 10000 bytes, unzipped"):
        read_execution_trace(path)


def test_more_values_than_a_step_has_are_not_read(tmp_path, monkeypatch):
    """They would take up to 35 times what they take in the file."""
    monkeypatch.setattr(execution_trace, "MOST_VALUES", 100)
    path = tmp_path / "et.json"
    path.write_bytes(b'{"nodes": [' + b"{}," * 60 + b"{}]}")

    with pytest.raises(FileError, match="values: must be at most 100, got 123"):
        read_execution_trace(path)


@given(data=st.data(), schema=st.sampled_from([FLAT, NESTED]))
def test_a_damaged_file_gives_a_trace_or_one_line(tmp_path_factory, data, schema):
    file = ExecutionFile(schema)
    file.op("aten::mm", [tensor(1, 4, 8), tensor(2, 8, 2)], [tensor(3, 4, 2)])
    content = bytearray(json.dumps(file.document()).encode())
    for _ in range(data.draw(st.integers(0, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.sampled_from(b'09-,[]{}"e.truenl '))
    path = tmp_path_factory.getbasetemp() / "damaged.json"
    path.write_bytes(content[: data.draw(st.sampled_from([len(content), len(content) // 2]))])
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            trace = read_execution_trace(path)
    except StepsimError:
        return
    assert (trace.nodes["flop"] >= 0).all()


# --- measured ---------------------------------------------------------------------------------------------------------


def published(data_dir, name):
    path = data_dir / name
    if not path.is_file():
        pytest.skip(f"no {path}")
    return read_execution_trace(path)


def test_linear_layers_take_the_products_that_their_shapes_say(data_dir):
    """21 layers of 1024 x 1024 on 512 rows: forward, weight gradients, and input gradients of all but the first."""
    trace = published(data_dir, "param/linear_et.json.gz")

    assert len(trace.nodes) == 931
    assert trace.nodes["flop"].sum() == (21 + 21 + 20) * 2 * 512 * 1024 * 1024


def test_three_steps_of_resnet_reduce_three_times_its_parameters(data_dir):
    """25.557 million parameters of 4 bytes."""
    trace = published(data_dir, "param/resnet_et.json.gz")

    sent = trace.nodes.groupby("collective")["read_bytes"].sum()
    assert len(trace.nodes) == 14392
    assert sent["all_reduce"] == 3 * 4 * 25_557_032


def test_every_published_execution_trace_is_read(data_dir):
    folders = ("hta/execution_trace/*_et.json.gz", "param/*_et.json.gz", "param/dlrm_pytorch_et/*", "triosim/graph_*")
    paths = [path for folder in folders for path in data_dir.glob(folder)]

    assert len(paths) == 9
    for path in paths:
        trace = read_execution_trace(path)
        assert set(trace.data["producer"]) <= set(trace.nodes["id"])
        assert (trace.nodes["read_bytes"] > 0).any()
