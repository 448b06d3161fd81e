"""Workloads from shapes: FLOP and bytes against published formulas."""

from dataclasses import replace

import pytest

from stepsim.errors import WorkloadError
from stepsim.workloads import Phase, Role, Workload
from stepsim.workloads.shapes import transformer
from stepsim.workloads.tape import Tape


@pytest.mark.parametrize(("B", "s", "l", "h", "V"), [(4, 8, 2, 16, 12), (2, 128, 3, 64, 1000), (1, 1, 1, 1, 1)])
def test_flop_of_a_transformer_are_those_of_narayanan_et_al(B, s, l, h, V):  # noqa: E741
    """72 B s l h^2 (1 + s / (6 h) + V / (12 l h)) without recomputation."""
    workload = transformer(layers=l, hidden=h, sequence=s, batch=B, vocabulary=V)

    assert workload.flop == pytest.approx(72 * B * s * l * h**2 * (1 + s / (6 * h) + V / (12 * l * h)), rel=1e-12)


def test_a_transformer_has_12_h2_weights_a_layer_and_16_bytes_for_each():
    """Besides two gains a layer, one at the end, and two tables of V h."""
    l, h, V = 3, 16, 12  # noqa: E741
    workload = transformer(layers=l, hidden=h, sequence=8, batch=2, vocabulary=V)
    num = 12 * l * h**2 + 2 * l * h + h + 2 * V * h

    def size_bytes(role):
        return sum(tensor.size_bytes for tensor in workload.tensors if tensor.role is role)

    assert size_bytes(Role.PARAMETER) == 2 * num
    assert size_bytes(Role.OPTIMIZER_STATE) == 12 * num
    assert sum(workload.tensors[gradient].size_bytes for gradient in workload.gradients.values()) == 2 * num


def test_a_layer_saves_32_bytes_for_each_value_of_its_input():
    """x, norm and attention 2 each, qkv 6, x + project 2, norm 2, expand and gelu 8 each."""
    one, two = (transformer(layers=layers, hidden=16, sequence=8, batch=2, vocabulary=12) for layers in (1, 2))

    def saved_bytes(workload):
        return sum(tensor.size_bytes for tensor in workload.tensors if tensor.saved)

    assert saved_bytes(two) - saved_bytes(one) == 32 * 2 * 8 * 16


def test_it_is_a_workload_like_any_other(tmp_path):
    workload = transformer(layers=1, hidden=16, sequence=8, batch=2, vocabulary=12)

    workload.save(tmp_path / "step.workload")

    assert Workload.load(tmp_path / "step.workload").graph_hash == workload.graph_hash


@pytest.mark.parametrize("name", ["layers", "hidden", "sequence", "batch", "vocabulary"])
def test_a_size_below_one_is_refused(name):
    sizes = {"layers": 1, "hidden": 1, "sequence": 1, "batch": 1, "vocabulary": 1}

    with pytest.raises(WorkloadError) as refusal:
        transformer(**sizes | {name: 0})

    assert str(refusal.value) == f"transformer: {name} must be >= 1, got 0"


def test_backward_walks_back_over_the_tape():
    tape = Tape()
    x = tape.linear("first", tape.tokens("tokens", (2, 3)), 4)
    tape.linear("second", x, 5)
    workload = tape.step("two", 2)

    assert [op.name for op in workload.ops if op.phase is Phase.BACKWARD] == [
        "second: linear_input",
        "second: linear_weight",
        "first: linear_input",
        "first: linear_weight",
    ]
    assert {op.flop for op in workload.ops if op.name.startswith("second:")} == {2 * 2 * 4 * 5}


def test_gradients_that_meet_are_added():
    tape = Tape()
    x = tape.linear("x", tape.tokens("tokens", (2, 3)), 4)
    tape.call("add", "sum", [x, tape.call("gelu", "gelu", [x], (2, 4))], (2, 4))
    tape.call("loss", "loss", [len(tape.tensors) - 1], ())
    workload = tape.step("residual", 2)

    kinds = [op.kind for op in workload.ops if op.phase is Phase.BACKWARD]

    assert kinds == ["loss_backward", "gelu_backward", "add", "linear_input", "linear_weight"]


def test_what_the_loss_does_not_depend_on_has_no_gradient():
    tape = Tape()
    x = tape.linear("used", tape.tokens("tokens", (2, 3)), 4)
    tape.linear("unused", x, 4)
    tape.call("loss", "loss", [x], ())

    workload = tape.step("half", 2)

    assert [workload.tensors[weight].name for weight in workload.gradients] == ["used.weight"]


@pytest.mark.parametrize("calls", [0, 1])
def test_a_tape_that_ends_without_a_loss_is_refused(calls):
    tape = Tape()
    x = tape.tokens("tokens", (2, 3))
    for _ in range(calls):
        tape.call("add", "sum", [x, x], (2, 3))

    with pytest.raises(WorkloadError, match="tape of 'none': the last call must make the loss, and be no sum"):
        tape.step("none", 2)


def test_steps_of_equal_shapes_are_equal():
    sizes = {"layers": 1, "hidden": 4, "sequence": 2, "batch": 2, "vocabulary": 3}

    assert transformer(**sizes) == transformer(**sizes)
    assert replace(transformer(**sizes), batch=4) != transformer(**sizes)
