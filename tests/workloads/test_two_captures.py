"""What the batch adds to each number: learnt from two captures, held against a third."""

import json
from dataclasses import replace
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stepsim.errors import FileError, WorkloadError
from stepsim.workloads import Growth, Op, Phase, Role, Tensor, Workload
from stepsim.workloads.op import named_strides, packed_strides, signature_of
from stepsim.workloads.shapes import transformer
from stepsim.workloads.two_captures import at_any_batch, with_growth

MODEL = partial(transformer, layers=2, hidden=8, sequence=4, vocabulary=16)


def tensor(name, role, shape, strides=None, **fields):
    size_bytes = 4
    for size in shape:
        size_bytes *= size
    strides = named_strides(shape, packed_strides(shape) if strides is None else strides)
    return Tensor(name=name, role=role, size_bytes=size_bytes, shape=shape, strides=strides, dtype="float32", **fields)


def linear(batch, width=3, **fields):
    """y = x W, read as a transposed view; the loss is its sum. x is laid out column by column."""
    tensors = (
        tensor("x", Role.INPUT, (batch, width), (1, batch)),
        tensor("W", Role.PARAMETER, (width, 2)),
        tensor("y", Role.ACTIVATION, (batch, 2)),
        tensor("loss", Role.ACTIVATION, ()),
    )
    arguments = f'["default",[{{"input":0,"view":["t",[{batch},-1],[{batch - 1}]]}},{{"input":1}},0.5,1e-05]]'
    mm = op("mm", tensors, (0, 1), (2,), 2 * batch * width * 2, arguments)
    total = op("sum", tensors, (2,), (3,), 0, "[]")
    body = {"name": "linear", "batch": batch, "tensors": tensors, "ops": (mm, total), "loss": 3}
    return Workload(**(body | fields))


def op(kind, tensors, inputs, outputs, flop, arguments):
    shapes = [tuple(tensors[index].shape for index in indices) for indices in (inputs, outputs)]
    read, written = (sum(tensors[index].size_bytes for index in indices) for indices in (inputs, outputs))
    return Op(
        name=kind,
        phase=Phase.FORWARD,
        kind=kind,
        module="",
        inputs=inputs,
        outputs=outputs,
        flop=flop,
        bytes_read=read,
        bytes_written=written,
        input_shapes=shapes[0],
        output_shapes=shapes[1],
        dtype="float32",
        arguments=arguments,
        signature=signature_of(kind, arguments, [tensors[index] for index in inputs]),
    )


def test_one_more_sample_adds_its_own_bytes_dimensions_flop_and_arguments():
    """x (n, 3) of stride (1, n), y (n, 2): 12 and 8 bytes a sample, 12 FLOP; arguments n, -1, n - 1, 0, 1."""
    growth = with_growth(linear(2), linear(4)).growth

    assert growth == Growth(
        step=1,
        tensors={0: (12, 1, 0, 0, 1), 2: (8, 1, 0, 0, 0)},
        ops={0: (12, 12, 8, 0, 1, 0, 1, 0), 1: (0, 8, 0)},
    )


@given(batch=st.integers(1, 1000), small=st.integers(2, 20), more=st.integers(1, 20))
def test_any_batch_is_what_would_have_been_captured_there_whatever_it_is_learnt_from(batch, small, more):
    learnt = with_growth(linear(small), linear(small + more))

    found = learnt.at_batch(batch)

    assert replace(found, growth=None) == linear(batch)
    assert found.graph_hash == linear(batch).graph_hash
    assert found.at_batch(small) == learnt


@settings(max_examples=20)
@given(batch=st.integers(1, 100))
def test_so_is_that_of_a_whole_model_from_its_shapes(batch):
    learnt = with_growth(MODEL(batch=2), MODEL(batch=3))

    assert replace(learnt.at_batch(batch), growth=None) == MODEL(batch=batch)


def test_the_same_batch_is_the_workload_itself():
    learnt = with_growth(linear(2), linear(3))

    assert learnt.at_batch(2) is learnt


def test_growth_survives_the_file_plain_and_zipped(tmp_path):
    learnt = with_growth(linear(2), linear(3))

    for name in ("plain", "zipped.gz"):
        learnt.save(tmp_path / name)
        assert Workload.load(tmp_path / name) == learnt
    assert (tmp_path / "zipped.gz").read_bytes()[:2] == b"\x1f\x8b"
    assert (tmp_path / "zipped.gz").stat().st_size < (tmp_path / "plain").stat().st_size / 2


def microbatched(batch):
    """Half of the batch at a time."""
    return replace(linear(batch // 2), batch=batch)


def test_a_step_of_two_microbatches_is_known_at_even_batches():
    learnt = with_growth(microbatched(4), microbatched(8))

    assert learnt.growth.step == 2
    assert replace(learnt.at_batch(10), growth=None) == microbatched(10)
    with pytest.raises(WorkloadError) as caught:
        learnt.at_batch(7)
    assert str(caught.value) == "workload 'linear': batch must be >= 1 and 4 plus a multiple of 2, got 7"


@pytest.mark.parametrize("batch", [0, -3])
def test_there_is_no_step_without_samples(batch):
    with pytest.raises(WorkloadError) as caught:
        with_growth(linear(2), linear(4)).at_batch(batch)

    assert str(caught.value) == f"workload 'linear': batch must be >= 1, got {batch}"


def test_a_workload_of_one_capture_is_of_one_batch():
    with pytest.raises(WorkloadError) as caught:
        linear(2).at_batch(4)

    assert str(caught.value) == "workload 'linear': is of batch 2 only, got batch 4"


def other_tensor(number, **fields):
    tensors = list(linear(4).tensors)
    tensors[number] = replace(tensors[number], **fields)
    return linear(4, tensors=tuple(tensors))


def other_op(number, **fields):
    ops = list(linear(4).ops)
    ops[number] = replace(ops[number], **fields)
    return linear(4, ops=tuple(ops))


DEPENDS = "the graph depends on the batch: "


@pytest.mark.parametrize(
    ("larger", "problem"),
    [
        (linear(4, ops=linear(4).ops[:1], loss=2), f"{DEPENDS}it has 2 and 1 ops at batch 2 and 4"),
        (linear(4, loss=2), f"{DEPENDS}loss and gradients are other tensors at batch 2 and 4"),
        (linear(4, ops=(*linear(4).ops, linear(4).ops[1])), f"{DEPENDS}it has 2 and 3 ops at batch 2 and 4"),
        (other_tensor(0, name="z"), f"{DEPENDS}tensor 'x' has name 'x' and 'z' at batch 2 and 4"),
        (other_tensor(0, dtype="float64"), f"{DEPENDS}tensor 'x' has dtype 'float32' and 'float64' at batch 2 and 4"),
        (other_tensor(2, saved=True), f"{DEPENDS}tensor 'y' has saved False and True at batch 2 and 4"),
        (other_tensor(0, shape=(12,)), f"{DEPENDS}tensor 'x' has shape 2 and 1 at batch 2 and 4"),
        (other_op(0, kind="bmm"), f"{DEPENDS}op 'mm' has kind 'mm' and 'bmm' at batch 2 and 4"),
        (other_op(1, arguments="[0.5]"), f"{DEPENDS}op 'sum' has arguments '[]' and '[0.5]' at batch 2 and 4"),
        (
            other_tensor(1, size_bytes=96),
            "tensor 'W': 24 at batch 2 and 96 at batch 4 is no a + b x batch of a and b >= 0",
        ),
        (
            other_tensor(1, size_bytes=12),
            "tensor 'W': 24 at batch 2 and 12 at batch 4 is no a + b x batch of a and b >= 0",
        ),
        (other_op(0, flop=96), "op 'mm': 24 at batch 2 and 96 at batch 4 is no a + b x batch of a and b >= 0"),
        (linear(4, width=6), "tensor 'x': more than one dimension of (2, 3) grows with the batch"),
        (linear(2), "two captures: must be of two batches >= 2, the smaller first, got (2, 2)"),
        (replace(linear(2), batch=4), "nothing in it grows from batch 2 to 4"),
    ],
)
def test_what_is_no_line_through_the_batches_of_one_graph_is_refused_in_one_line(larger, problem):
    with pytest.raises(WorkloadError) as caught:
        with_growth(linear(2), larger)

    assert str(caught.value) == problem


def test_nothing_is_learnt_from_a_batch_of_one():
    with pytest.raises(WorkloadError, match=r"must be of two batches >= 2, the smaller first, got \(1, 2\)"):
        with_growth(linear(1), linear(2))


def test_one_sample_is_learnt_from_larger_batches_and_must_be_what_was_captured():
    assert at_any_batch(linear(1), linear) == with_growth(linear(2), linear(4)).at_batch(1)

    another = linear(1, ops=(*linear(1).ops, linear(1).ops[1]))
    with pytest.raises(WorkloadError, match="that of one sample differs from those of more"):
        at_any_batch(another, linear)


@pytest.mark.parametrize(
    ("growth", "told"),
    [
        ({"step": 0, "tensors": [], "ops": []}, "growth: step must be >= 1, got 0"),
        ({"step": 1.5, "tensors": [], "ops": []}, "growth step: must be int, got 1.5"),
        ({"step": 1, "tensors": [[9, 1]], "ops": []}, "growth: tensor 9 has no 1 numbers that could grow"),
        ({"step": 1, "tensors": [], "ops": [[0, 1, 2]]}, "growth: op 0 has no 2 numbers that could grow"),
        ({"step": 1, "tensors": [], "ops": [[0, "a", 2]]}, "growth of op 0: must be int, got 'a'"),
        ({"step": 1, "tensors": []}, "'ops'"),
        (7, "'int' object is not subscriptable"),
    ],
)
def test_a_growth_that_is_not_of_its_workload_is_refused_in_one_line(tmp_path, growth, told):
    path = tmp_path / "workload"
    linear(2).save(path)
    path.write_text(json.dumps(json.loads(path.read_text()) | {"growth": growth}))

    with pytest.raises(FileError) as caught:
        Workload.load(path)

    assert str(caught.value) == f"{path}: workload: cannot be read: {told}"


@pytest.mark.parametrize("batch", [1.5, "3", None, True])
def test_a_batch_that_is_no_whole_number_is_refused(batch):
    with pytest.raises(WorkloadError, match="workload 'linear': batch must be a whole number, got"):
        with_growth(linear(2), linear(4)).at_batch(batch)
