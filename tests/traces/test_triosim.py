"""Pairs of CSV files of TrioSim: a small pair by hand, bad values, then the published one."""

import pytest
from command_line import refused
from hypothesis import given
from hypothesis import strategies as st

from stepsim.errors import FileError
from stepsim.traces.triosim import looks_like_triosim, read_triosim

OPERATORS = """OperatorID,OperatorName,Operator_input,Operator_output,Operator_cudatime,Operator_cudatimenooverlap,\
InputSize,OutputSize,gpuid,stage,tpflag
1,aten::conv2d,[4; 6],[14],2673,2500,[24; 9],[48],0,forward,1
2,aten::relu_,[14],[14],1083,1083.5,[48],[48],0,forward,0
3,aten::view,[14],[14],0,0,[48],[48],0,forward,0
4,"autograd::engine::evaluate_function: ReluBackward0, fused",['14'; '14'],[],10,8,[48; 48],[],1,backward,0
"""

TENSORS = """Index,TensorID,TensorShape,TensorNumElement,TensorEachByte,TensorType,TensorStorgeid,gpuid
0,4,"[2, 3, 4]",24,4,input,5,0
1,6,"[3, 3]",9,4,weight,7,0
2,14,"[2, 24]",48,2,output,15,0
3,14,"[2, 24]",48,2,input,15,0
"""


def pair(folder, operators=OPERATORS, tensors=TENSORS):
    (folder / "trace.csv").write_text(operators)
    (folder / "tensor.csv").write_text(tensors)
    return folder / "trace.csv"


def test_operators_become_kernels_with_the_bytes_of_their_tensors(tmp_path):
    events = read_triosim(pair(tmp_path)).events

    assert events["name"].tolist() == [
        "aten::conv2d",
        "aten::relu_",
        "autograd::engine::evaluate_function: ReluBackward0, fused",
    ]
    assert events["duration_s"].tolist() == pytest.approx([2500e-6, 1083.5e-6, 8e-6])
    assert events["start_s"].tolist() == pytest.approx([0, 2500e-6, 3583.5e-6])
    assert events["size_bytes"].tolist() == [24 * 4 + 9 * 4 + 48 * 2, 2 * 48 * 2, 2 * 48 * 2]
    assert events["device"].tolist() == ["gpu0", "gpu0", "gpu1"]
    assert events["work"].iloc[0] == "forward aten::conv2d [2,3,4]; [3,3] -> [2,24]"
    assert set(events["kind"]) == {"kernel"}


def test_the_provenance_names_both_files_and_what_was_left_out(tmp_path):
    facts = read_triosim(pair(tmp_path)).provenance

    assert facts["format"] == "TrioSim"
    assert (facts["file"], facts["tensors"]) == ("trace.csv", "tensor.csv")
    assert facts["left out"] == "1 operators that took no time"
    assert facts["gpu1"] == "not named in the file"


def test_the_table_of_tensors_may_lie_elsewhere(tmp_path):
    path = pair(tmp_path)
    (tmp_path / "tensor.csv").rename(tmp_path / "other.csv")

    assert len(read_triosim(path, tmp_path / "other.csv").events) == 3
    with pytest.raises(FileError, match=r"tensor\.csv: file: cannot be read"):
        read_triosim(path)


def test_the_table_of_tensors_is_not_replaced_by_the_trace(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "trace.csv").write_text(OPERATORS)
    (tmp_path / "tensor.csv").write_text(TENSORS)

    assert refused("import", "trace.csv", "-o", "tensor.csv").startswith("tensor.csv would be replaced")


def test_a_trace_is_told_by_its_first_line():
    assert looks_like_triosim(OPERATORS.encode())
    assert not looks_like_triosim(TENSORS.encode())
    assert not looks_like_triosim(b"a\n" + OPERATORS.encode())


def test_columns_may_come_in_any_order_and_new_ones_with_one_warning(tmp_path):
    names, *rows = (line.split(",") for line in OPERATORS.splitlines()[:3])
    turned = [",".join(["new", *line[::-1]]) for line in [names, *rows]]

    with pytest.warns(UserWarning, match=r"trace\.csv: columns that are not known are left out: 'new'") as caught:
        events = read_triosim(pair(tmp_path, "\n".join(turned))).events

    assert len(caught) == 1
    assert events["size_bytes"].tolist() == [228, 192]


def test_an_operator_that_stands_there_twice_is_read_once_with_a_warning(tmp_path):
    lines = OPERATORS.splitlines()

    with pytest.warns(UserWarning, match=r"trace\.csv: line 6: 1 operators stand there twice: read once") as caught:
        trace = read_triosim(pair(tmp_path, "\n".join([*lines, lines[1]])))

    assert len(caught) == 1
    assert trace.events.equals(read_triosim(pair(tmp_path)).events)


# --- bad input --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("2500", "-1", r"trace\.csv: line 2: Operator_cudatimenooverlap: must be a number from 0 to 1e\+12, got '-1'"),
        ("2500", "", r"line 2: Operator_cudatimenooverlap: must be a number from 0 .* got ''"),
        ("2500", "nan", r"line 2: Operator_cudatimenooverlap: must be a number from 0 .* got 'nan'"),
        ("[4; 6]", "[4; 7]", r"line 2: Operator_input: must be a tensor of the table, got '7'"),
        ("[4; 6]", "4; 6", r"line 2: Operator_input: must be a list like \[4; 6; 8\], got '4; 6'"),
        ("[],10", ",10", r"line 5: Operator_output: must be a list like .* got ''"),
        ("1,backward", "one,backward", r"line 5: gpuid: must be a whole number up to 1048576, got 'one'"),
        ("1,backward", "99999999,backward", r"line 5: gpuid: must be a whole number"),
        (",stage", ",phase", r"line 1: columns: must have 'stage', got 'OperatorID"),
        (",1\n2", "\n2", r"line 2: must fill every column, got '1,aten::conv2d"),
        (",1\n2", ",1,1\n2", r"line 2: must fill every column"),
    ],
)
def test_a_bad_operator_is_named_with_line_and_value(tmp_path, old, new, message):
    assert OPERATORS.count(old) == 1

    with pytest.raises(FileError, match=message):
        read_triosim(pair(tmp_path, OPERATORS.replace(old, new)))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("9,4,weight", "9,-4,weight", r"tensor\.csv: line 3: TensorEachByte: must be a whole number of bytes .* '-4'"),
        ("9,4,weight", "x,4,weight", r"line 3: TensorNumElement: must be a whole number .* got 'x'"),
        ("9,4,weight", f"{2**50},4,weight", r"line 3: TensorNumElement: is more than \d+ bytes, got 1125899906842624"),
        ("48,2,input", "48,4,input", r"line 5: TensorID: must have one size in all its rows, got '14'"),
        ('"[3, 3]"', '"' + "[3]" * 70 + '"', r"line 3: TensorShape: must have at most 200 characters"),
        (",TensorEachByte", ",Bytes", r"line 1: columns: must have 'TensorEachByte'"),
        ('"[3, 3]"', '"[3, 3"]"', r"line 3: is no CSV"),
    ],
)
def test_a_bad_tensor_is_named_with_line_and_value(tmp_path, old, new, message):
    assert TENSORS.count(old) == 1

    with pytest.raises(FileError, match=message):
        read_triosim(pair(tmp_path, tensors=TENSORS.replace(old, new)))


def test_tensors_that_add_up_to_no_machine_are_refused(tmp_path):
    path = pair(tmp_path, OPERATORS.replace("[4; 6]", "[4; 4]"), TENSORS.replace("24,4,input", f"{2**48},4,input"))

    with pytest.raises(FileError, match=r"line 2: Operator_input: must be at most 1125899906842624 bytes"):
        read_triosim(path)


def test_a_trace_without_times_is_refused(tmp_path):
    path = pair(tmp_path, "\n".join(line for line in OPERATORS.splitlines() if line[0] in "O3"))

    with pytest.raises(FileError, match="Operator_cudatimenooverlap: must be > 0 for some operator: nothing was timed"):
        read_triosim(path)


@pytest.mark.filterwarnings("ignore::UserWarning")
@given(which=st.booleans(), place=st.integers(0, 300), put=st.text('\n ",;[]9.x', max_size=3), cut=st.integers(0, 40))
def test_a_damaged_pair_gives_a_trace_or_one_line(tmp_path_factory, which, place, put, cut):
    texts = [OPERATORS, TENSORS]
    texts[which] = texts[which][:place] + put + texts[which][place + cut :]
    try:
        trace = read_triosim(pair(tmp_path_factory.getbasetemp(), *texts))
    except FileError:
        return
    assert (trace.events["duration_s"] > 0).all()


# --- measured ---------------------------------------------------------------------------------------------------------


def test_the_published_step_of_vgg13_takes_94_milliseconds(data_dir):
    """The sum of the kernels; with the gaps inside of operators it is 94.462 ms, the total that SOURCES.md tells."""
    path = data_dir / "triosim" / "trace2-h100-bs128" / "vgg13" / "trace.csv"
    if not path.is_file():
        pytest.skip(f"no {path}")

    trace = read_triosim(path)

    assert len(trace.events) == 77
    assert trace.events["duration_s"].sum() == pytest.approx(94.038e-3)
    first = trace.events.iloc[0]
    assert first["size_bytes"] == 4 * (128 * 3 * 224 * 224 + 64 * 3 * 3 * 3 + 64 + 128 * 64 * 224 * 224)
    assert first["work"].startswith("forward aten::conv2d [128,3,224,224]; [64,3,3,3]; [64] -> [128,64,224,224]")
