import json
from dataclasses import replace

import pytest

from stepsim.errors import FileError, WorkloadError
from stepsim.workloads import Op, Phase, Role, Tensor, Workload


def tensor(name, role, **fields):
    return Tensor(name=name, role=role, size_bytes=8, shape=(2, 1), dtype="float32", **fields)


def op(name, phase, inputs, outputs, mutates=(), flop=10):
    return Op(
        name=name,
        phase=phase,
        kind="aten.mm",
        module="layer",
        inputs=inputs,
        outputs=outputs,
        mutates=mutates,
        flop=flop,
        bytes_read=8,
        bytes_written=8,
        input_shapes=((2, 1),) * len(inputs),
        output_shapes=((2, 1),) * len(outputs),
        dtype="float32",
        arguments="",
        signature=f"{name}-work",
    )


X, W, Y, LOSS, G = range(5)


def step(**fields):
    """y = F(x, W), loss = L(y), g = B(x, y), W += g."""
    body = {
        "name": "step",
        "batch": 2,
        "tensors": (
            tensor("x", Role.INPUT),
            tensor("W", Role.PARAMETER),
            tensor("y", Role.ACTIVATION, saved=True),
            tensor("loss", Role.ACTIVATION),
            tensor("g", Role.GRADIENT),
        ),
        "ops": (
            op("F", Phase.FORWARD, (X, W), (Y,)),
            op("L", Phase.FORWARD, (Y,), (LOSS,)),
            op("B", Phase.BACKWARD, (X, Y), (G,), flop=30),
            op("U", Phase.UPDATE, (W, G), (), mutates=(W,), flop=2),
        ),
        "loss": LOSS,
        "gradients": {W: G},
    }
    return Workload(**(body | fields))


def test_a_tensor_has_the_producer_that_writes_it_and_the_consumers_that_read_it_in_order():
    workload = step()

    assert workload.producer == {Y: 0, LOSS: 1, G: 2}
    assert workload.consumers == {X: (0, 2), W: (0, 3), Y: (1, 2), LOSS: (), G: (3,)}


def test_an_op_that_reads_a_tensor_twice_consumes_it_once():
    square = op("square", Phase.FORWARD, (X, X), (Y,))

    assert step(ops=(square, *step().ops[1:])).consumers[X] == (0, 2)


def test_the_flop_of_a_step_are_those_of_its_ops():
    assert step().flop == 10 + 10 + 30 + 2


def test_the_graph_hash_is_of_the_graph_and_not_of_its_name():
    assert step(name="other").graph_hash == step().graph_hash
    assert step(batch=4).graph_hash != step().graph_hash
    assert step(ops=(*step().ops, step().ops[3])).graph_hash != step().graph_hash


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"tensors": (replace(tensor("x", Role.INPUT), size_bytes=-8), *step().tensors[1:])},
            "tensor 'x': size_bytes must be a whole number >= 0, got -8",
        ),
        (
            {"ops": (op("F", Phase.FORWARD, (X,), (Y,), flop=-1),)},
            "op 'F': flop must be a whole number >= 0, got -1",
        ),
        ({"ops": (op("F", Phase.FORWARD, (X, 9), (Y,)),)}, "op 'F': tensor 9 of 5 does not exist"),
        ({"ops": (op("F", Phase.FORWARD, (X,), (-1,)),)}, "op 'F': tensor -1 of 5 does not exist"),
        (
            {"ops": (op("L", Phase.FORWARD, (Y,), (LOSS,)),)},
            "op 'L' reads tensor 'y' before any op writes it",
        ),
        (
            {"ops": (op("U", Phase.UPDATE, (X,), (), mutates=(W,)),)},
            "op 'U': mutates (1,), which are not all inputs",
        ),
        ({"loss": 7}, "loss or gradient: tensor 7 of 5 is written by no op"),
        ({"gradients": {W: -1}}, "loss or gradient: tensor -1 of 5 is written by no op"),
        ({"ops": step().ops[:2]}, "loss or gradient: tensor 4 of 5 is written by no op"),
    ],
    ids=[
        "debts of bytes",
        "debts of flop",
        "no such input",
        "no such output",
        "read too early",
        "mutates no input",
        "loss",
        "gradient",
        "no backward",
    ],
)
def test_ops_and_tensors_that_contradict_each_other_are_named(fields, message):
    with pytest.raises(WorkloadError) as caught:
        step(**fields)

    assert str(caught.value) == message


def test_a_workload_survives_its_file(tmp_path):
    step().save(tmp_path / "workload")

    loaded = Workload.load(tmp_path / "workload")

    assert loaded == step()
    assert loaded.graph_hash == step().graph_hash


def without(body, *path):
    """``body`` less the entry at ``path``."""
    *before, last = path
    for key in before:
        body = body[key]
    del body[last]


def put(body, value, *path):
    *before, last = path
    for key in before:
        body = body[key]
    body[last] = value


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda body: without(body, "ops"), "'ops'"),
        (lambda body: without(body, "ops", 0, "flop"), "'flop'"),
        (lambda body: without(body, "tensors", 0, "dtype"), "'dtype'"),
        (lambda body: put(body, 1, "tensors", 0, "colour"), "'colour'"),
        (lambda body: put(body, "weights", "tensors", 0, "role"), "'weights' is not a valid Role"),
        (lambda body: put(body, "sideward", "ops", 0, "phase"), "'sideward' is not a valid Phase"),
        (lambda body: put(body, None, "tensors"), "'NoneType' object is not iterable"),
        (lambda body: put(body, [[1]], "gradients"), "length 1; 2 is required"),
        (lambda body: put(body, [9], "ops", 0, "inputs"), "tensor 9 of 5 does not exist"),
        (lambda body: put(body, "8 B", "tensors", 0, "size_bytes"), "size_bytes: must be int, got '8 B'"),
        (lambda body: put(body, 0.5, "ops", 0, "flop"), "flop: must be int, got 0.5"),
    ],
    ids=[
        "no ops",
        "an op without flop",
        "a tensor without dtype",
        "an unknown field",
        "an unknown role",
        "an unknown phase",
        "tensors are no list",
        "gradients are no pairs",
        "an unknown tensor",
        "a size in words",
        "half a flop",
    ],
)
def test_a_file_that_is_no_workload_is_refused_in_one_line_that_says_why(tmp_path, change, told):
    path = tmp_path / "workload"
    step().save(path)
    body = json.loads(path.read_text())
    change(body)
    path.write_text(json.dumps(body))

    with pytest.raises(FileError) as caught:
        Workload.load(path)

    assert str(caught.value).startswith(f"{path}: workload: cannot be read: ")
    assert told in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_tensor_of_no_size_is_a_tensor():
    empty = replace(step().tensors[X], size_bytes=0, shape=(0,))

    assert step(tensors=(empty, *step().tensors[1:])).tensors[X].size_bytes == 0
