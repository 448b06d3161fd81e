import os
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from stepsim.errors import CaptureError
from stepsim.workloads import Phase, Role, Workload
from stepsim.workloads.capture import capture, capture_program
from stepsim.workloads.factory import Factory
from stepsim.workloads.models import small_resnet, small_transformer

RESNET = partial(small_resnet, width=8)
TRANSFORMER = partial(small_transformer, width=32, blocks=3, length=16, vocabulary=50)


class Pair(nn.Module):
    """Linear, ReLU, linear; the loss is the mean."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.first(x).relu()).mean()


def pair(batch: int) -> Any:
    return Pair(), torch.randn(batch, 8), None


def convolutions(batch: int) -> Any:
    layers = (nn.Conv2d(4, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3, groups=4, bias=False), nn.Flatten(), nn.Linear(32, 1))
    return Summed(nn.Sequential(*layers)), torch.randn(batch, 4, 6, 6), None


class Summed(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x).sum()


@pytest.mark.parametrize("factory", [RESNET, TRANSFORMER])
def test_fake_and_real_modules_have_the_same_graph_hash(factory: Factory) -> None:
    module, inputs, optimizer = factory(2)

    fake = capture(factory, batch=2, name="step")
    real = capture_program(module, inputs, optimizer, name="another name", batch=2)

    assert fake.workload.graph_hash == real.workload.graph_hash


def test_a_fresh_process_finds_the_same_graph_hash() -> None:
    code = (
        "from stepsim.workloads.capture import capture\n"
        "from stepsim.workloads.models import small_resnet\n"
        "print(capture(small_resnet, batch=3, name='step').workload.graph_hash)\n"
    )
    environment = {**os.environ, "PYTHONHASHSEED": "1", "PYTHONPATH": os.pathsep.join(sys.path)}

    fresh = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)

    assert fresh.stdout.strip() == capture(small_resnet, batch=3, name="step").workload.graph_hash


def test_another_batch_is_another_graph() -> None:
    hashes = {capture(pair, batch=batch, name="pair").workload.graph_hash for batch in (2, 3)}

    assert len(hashes) == 2


def test_capture_of_a_factory_allocates_nothing() -> None:
    def factory(batch: int) -> Any:
        module = Summed(nn.Linear(10**6, 10**6, bias=False))
        return module, torch.randn(batch, 10**6), torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.9)

    workload = capture(factory, batch=4, name="four terabytes").workload

    assert max(tensor.size_bytes for tensor in workload.tensors) == 4 * 10**12


def test_capture_leaves_a_real_module_as_it_was() -> None:
    module, inputs, optimizer = RESNET(2)
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    generator = torch.get_rng_state()

    capture_program(module, inputs, optimizer, name="step", batch=2)

    assert all(torch.equal(tensor, before[name]) for name, tensor in module.state_dict().items())
    assert all(parameter.grad is None for parameter in module.parameters())
    assert torch.equal(torch.get_rng_state(), generator)
    assert not optimizer.state


@pytest.mark.parametrize("factory", [RESNET, TRANSFORMER, convolutions])
def test_flop_are_those_of_the_flop_counter(factory: Factory) -> None:
    module, inputs, optimizer = factory(2)
    with FlopCounterMode(display=False) as counter:
        module(*(inputs if isinstance(inputs, tuple) else (inputs,))).backward()
        if optimizer is not None:
            optimizer.step()

    workload = capture(factory, batch=2, name="step").workload

    assert workload.flop == counter.get_total_flops() - counted_too_often(workload) > 0


def counted_too_often(workload: Workload) -> int:
    """The counter takes the gradient of the weight of 4 groups in `convolutions` for one between all channels."""
    filters = (
        op for op in workload.ops if op.kind == "aten.convolution_backward.filter" and "4,[false," in op.arguments
    )
    return sum((4 - 1) * op.flop for op in filters)


def test_a_grouped_convolution_and_each_of_its_gradients_have_the_same_products() -> None:
    """2 samples x 8 channels x 2 x 2 pixels, each from 2 channels of its group x 3 x 3: twice as many FLOP."""
    workload = capture(convolutions, batch=2, name="step").workload
    parts = ("aten.convolution", "aten.convolution_backward.data", "aten.convolution_backward.filter")

    flop = {part: [op.flop for op in workload.ops if op.kind == part] for part in parts}

    products = 2 * 8 * (2 * 2) * 2 * (3 * 3)
    assert flop["aten.convolution"][1] == 2 * products
    assert flop["aten.convolution_backward.data"] == [2 * products]
    assert flop["aten.convolution_backward.filter"][0] == 2 * products


def test_ops_come_forward_then_backward_then_update() -> None:
    workload = capture(RESNET, batch=2, name="step").workload

    phases = [op.phase for op in workload.ops]
    assert phases == sorted(phases, key=list(Phase).index)
    assert set(phases) == set(Phase)


def test_bytes_are_those_of_the_shapes_that_an_op_touches() -> None:
    workload = capture(pair, batch=4, name="pair").workload

    ops = {op.kind: op for op in workload.ops if op.phase is Phase.FORWARD}
    activation, weight, bias = 4 * 8 * 4, 8 * 8 * 4, 8 * 4
    assert (ops["aten.addmm"].bytes_read, ops["aten.addmm"].bytes_written) == (activation + weight + bias, activation)
    assert (ops["aten.relu"].bytes_read, ops["aten.relu"].bytes_written) == (activation, activation)
    assert (ops["aten.mean"].bytes_read, ops["aten.mean"].bytes_written) == (activation, 4)


def test_saved_is_what_the_backward_pass_reads_of_the_forward_pass() -> None:
    workload = capture(pair, batch=4, name="pair").workload

    assert [tensor.name for tensor in workload.tensors if tensor.saved] == ["relu", "mean"]


def test_roles_say_where_a_tensor_comes_from() -> None:
    workload = capture(RESNET, batch=2, name="step").workload

    by_phase = {
        phase: {workload.tensors[i].role for op in workload.ops if op.phase is phase for i in op.outputs}
        for phase in Phase
    }
    assert by_phase == {Phase.FORWARD: {Role.ACTIVATION}, Phase.BACKWARD: {Role.GRADIENT}, Phase.UPDATE: set()}
    outside = {tensor.role for index, tensor in enumerate(workload.tensors) if index not in workload.producer}
    assert outside == {Role.PARAMETER, Role.BUFFER, Role.INPUT, Role.OPTIMIZER_STATE}


def test_batch_norm_statistics_are_copied_in_place_after_the_backward_pass() -> None:
    program = capture(RESNET, batch=2, name="step")

    workload = program.workload
    copies = [op for op in workload.ops if op.kind == "aten.copy_"]
    assert {op.phase for op in copies} == {Phase.UPDATE}
    assert sorted(program.buffers[index] for op in copies for index in op.mutates) == sorted(program.buffers.values())


def test_every_trained_parameter_has_a_gradient_of_its_shape() -> None:
    module, inputs, _ = TRANSFORMER(2)

    program = capture_program(module, inputs, name="step", batch=2)

    shapes = {}
    for parameter, gradient in program.workload.gradients.items():
        base = torch.empty(program.workload.tensors[gradient].shape)
        shapes[program.parameters[parameter]] = program.gradient_views[parameter](base).shape
    assert shapes == {name: parameter.shape for name, parameter in module.named_parameters()}


def test_equal_layers_share_their_signatures_and_others_do_not() -> None:
    workload = capture(TRANSFORMER, batch=2, name="step").workload

    blocks = [
        [op.signature for op in workload.ops if op.phase is Phase.FORWARD and op.module.startswith(f"blocks.{block}")]
        for block in range(3)
    ]
    assert blocks[0] == blocks[1] == blocks[2]
    first = {op.module.rpartition(".")[2]: op.signature for op in workload.ops if op.kind == "aten.addmm"}
    assert len(set(first.values())) == len(first) == 4


def test_forward_and_backward_ops_know_their_module() -> None:
    workload = capture(RESNET, batch=2, name="step").workload

    modules = {
        phase: {op.module for op in workload.ops if op.phase is phase and "convolution" in op.kind} for phase in Phase
    }
    convolutions = {name for name, module in RESNET(1)[0].named_modules() if isinstance(module, nn.Conv2d)}
    assert modules[Phase.FORWARD] == modules[Phase.BACKWARD] == convolutions


def test_a_captured_workload_survives_its_file(tmp_path: Path) -> None:
    workload = capture(TRANSFORMER, batch=2, name="step").workload

    workload.save(tmp_path / "workload.json")

    assert Workload.load(tmp_path / "workload.json") == workload


class Wrong(nn.Module):
    def __init__(self, forward: Callable[["Wrong", Tensor], Any]) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3))
        self.state = nn.Buffer(torch.ones(3))
        self.function = forward

    def forward(self, x: Tensor) -> Any:
        return self.function(self, x)


DEPENDS = "its control flow or shapes depend on values "


@pytest.mark.parametrize(
    ("forward", "problem"),
    [
        (lambda self, x: self.weight.sum() if x.sum() > 0 else self.weight.mean(), DEPENDS),
        (lambda self, x: self.weight.sum() * x.max().item(), DEPENDS),
        (lambda self, x: (self.weight * x)[x > 0].sum(), DEPENDS),
        (lambda self, x: self.weight * x, r"must return a scalar loss, got shape \(3,\) of torch.float32"),
        (lambda self, x: {"loss": self.weight.sum()}, "must return its loss as one tensor, got dict"),
        (lambda self, x: x.sum(), "its loss does not depend on any parameter that requires a gradient"),
        (lambda self, x: self.weight[0], "its loss is one of its own tensors, with nothing computed"),
        (lambda self, x: self.no_such_layer(x), "AttributeError: 'Wrong' object has no attribute 'no_such_layer'"),
        (lambda self, x: (self.weight * x.mul_(2)).sum(), "it writes to its input 'input.0' in place"),
        (
            lambda self, x: (self.weight * self.state.add_(self.weight)).sum(),
            "it writes a value that requires a gradient",
        ),
    ],
)
def test_what_cannot_be_captured_is_one_clear_line(
    forward: Callable[[Wrong, Tensor], Any], problem: str, capfd: pytest.CaptureFixture[str]
) -> None:
    module = Wrong(forward)

    with pytest.raises(CaptureError, match=f"^wrong cannot be captured: {problem}") as caught:
        capture_program(module, (torch.ones(3),), name="wrong", batch=1)

    assert "\n" not in str(caught.value)
    assert capfd.readouterr() == ("", "")


def test_gradients_are_in_the_order_of_the_parameters() -> None:
    """Equal mappings of another order would give another graph hash."""
    program = capture(TRANSFORMER, batch=2, name="step")

    assert list(program.workload.gradients) == list(program.parameters)
