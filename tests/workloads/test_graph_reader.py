from collections.abc import Callable
from typing import Any

import pytest
import torch
from side_by_side import SideBySide
from torch import Tensor, nn
from torch.nn import functional

from stepsim.workloads import Op, Role
from stepsim.workloads.capture import capture
from stepsim.workloads.factory import Factory


class MeanOf(nn.Module):
    """The mean square of what ``layers`` make of the input."""

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.layers = nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x).square().mean()


class Weighted(nn.Module):
    """``loss(weight, x)`` with three weights."""

    def __init__(self, loss: Callable[[Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(3))
        self.loss = loss

    def forward(self, x: Tensor) -> Tensor:
        return self.loss(self.weight, x)


def factory_of(make: Callable[[], nn.Module], *shape: int) -> Factory:
    def factory(batch: int) -> Any:
        module = make()
        inputs = torch.randn(batch, *shape)
        return module, inputs, torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.9)

    return factory


IMAGE = (4, 9, 9)
LAYERS = {
    "convolutions with bias": lambda: MeanOf(
        nn.Conv2d(4, 8, 3, padding=1), nn.ReLU(inplace=True), nn.Conv2d(8, 4, 3, 2)
    ),
    "grouped convolutions": lambda: MeanOf(nn.Conv2d(4, 8, 3, groups=2), nn.SiLU(), nn.Conv2d(8, 8, 3, groups=8)),
    "transposed convolution": lambda: MeanOf(nn.Conv2d(4, 6, 1), nn.Tanh(), nn.ConvTranspose2d(6, 4, 3, stride=2)),
    "channels last": lambda: MeanOf(nn.Conv2d(4, 8, 3), nn.ReLU(), nn.Conv2d(8, 4, 3)).to(
        memory_format=torch.channels_last
    ),
    "frozen batch norm": lambda: MeanOf(nn.Conv2d(4, 4, 3), nn.BatchNorm2d(4).eval(), nn.BatchNorm2d(4)),
    "pooling": lambda: MeanOf(nn.Conv2d(4, 4, 1), nn.MaxPool2d(2), nn.AvgPool2d(2), nn.AdaptiveAvgPool2d(1)),
    "dropout": lambda: MeanOf(nn.Linear(9, 9), nn.Dropout(0.5), nn.Linear(9, 9), nn.Dropout(0.5).eval()),
    "norms": lambda: MeanOf(nn.Conv2d(4, 4, 1), nn.GroupNorm(2, 4), nn.LayerNorm(9)),
}


@pytest.mark.parametrize("name", LAYERS)
def test_two_steps_of_common_layers_equal_eager_steps_bit_for_bit(name: str) -> None:
    both = SideBySide(factory_of(LAYERS[name], *IMAGE))

    both.step()
    both.step()

    assert both.unequal() == []


LOSSES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "a gradient that is an expanded view": lambda w, x: w.sum(),
    "a loss that is one element of a larger tensor": lambda w, x: (w * x)[0, 1],
    "a loss of shape 1 x 1": lambda w, x: (w * x).sum().reshape(1, 1),
    "a loss whose kernel leaves a large storage": lambda w, x: functional.mse_loss(w * x, x),
    "a constant made in the forward pass": lambda w, x: (w * x * torch.tensor([1.0, 2.0, 3.0])).sum(),
    "an op without inputs": lambda w, x: (w * x * torch.arange(3)).sum(),
    "views of several kinds": lambda w, x: torch.stack([v.t() @ v for v in (w * x).unsqueeze(2).unbind(0)]).sum(),
    "autocast": lambda w, x: autocast(w, x),
}


def autocast(weight: Tensor, x: Tensor) -> Tensor:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return (x @ weight).float().square().mean()


@pytest.mark.parametrize("name", LOSSES)
def test_two_steps_of_unusual_graphs_equal_eager_steps_bit_for_bit(name: str) -> None:
    both = SideBySide(factory_of(lambda: Weighted(LOSSES[name]), 3))

    both.step()
    both.step()

    assert both.unequal() == []
    sizes = [both.values[index].untyped_storage().nbytes() for index in range(len(both.values))]
    assert sizes == [tensor.size_bytes for tensor in both.program.workload.tensors]


def test_the_backward_of_a_convolution_is_one_op_for_each_gradient() -> None:
    def factory(batch: int) -> Any:
        return MeanOf(nn.Conv2d(4, 8, 3), nn.Conv2d(8, 2, 3)), torch.randn(batch, *IMAGE), None

    workload = capture(factory, batch=2, name="two convolutions").workload

    kinds = [op.kind.removeprefix("aten.") for op in workload.ops if "convolution_backward" in op.kind]
    second, first = ["data", "filter", "bias"], ["filter", "bias"]
    assert kinds == [f"convolution_backward.{part}" for part in second + first]


def test_each_gradient_of_a_convolution_reads_only_what_it_needs() -> None:
    def factory(batch: int) -> Any:
        return MeanOf(nn.Conv2d(4, 8, 3), nn.Conv2d(8, 2, 3)), torch.randn(batch, *IMAGE), None

    workload = capture(factory, batch=2, name="two convolutions").workload

    backward = [op for op in workload.ops if op.kind.startswith("aten.convolution_backward")]
    reads = {op.kind.rpartition(".")[2]: [workload.tensors[i].name for i in op.inputs[1:]] for op in backward[:3]}
    assert reads == {"data": ["layers.1.weight"], "filter": ["convolution"], "bias": []}


def test_each_gradient_of_a_convolution_counts_its_own_flop() -> None:
    def factory(batch: int) -> Any:
        return MeanOf(nn.Conv2d(4, 4, 1), nn.Conv2d(4, 8, 3, bias=True)), torch.randn(batch, *IMAGE), None

    workload = capture(factory, batch=2, name="convolution").workload

    multiply_add = 2 * (2 * 8 * 7 * 7) * (4 * 3 * 3)
    backward = [op for op in workload.ops if op.kind.startswith("aten.convolution_backward")]
    assert [op.flop for op in backward[:3]] == [multiply_add, multiply_add, 0]


def test_a_view_is_no_op_but_part_of_the_ops_that_read_through_it() -> None:
    workload = capture(factory_of(lambda: Weighted(lambda w, x: (x @ w.view(3, 1)).sum()), 3), 2, "view").workload

    product = next(op for op in workload.ops if op.kind == "aten.mm")
    assert [workload.tensors[index].name for index in product.inputs] == ["input.0", "weight"]
    assert product.input_shapes == ((2, 3), (3,))
    assert '"aten.view.default",[3,1]' in product.arguments


def test_constants_are_buffers_that_the_program_holds() -> None:
    program = capture(factory_of(lambda: Weighted(LOSSES["a constant made in the forward pass"]), 3), 2, "constant")

    ((tensor, value),) = program.constants.items()
    assert program.workload.tensors[tensor].role is Role.BUFFER
    assert value.tolist() == [1.0, 2.0, 3.0]


def test_the_seed_of_the_gradient_is_an_op_that_reads_the_loss() -> None:
    workload = capture(factory_of(lambda: Weighted(lambda w, x: (w * x).sum()), 3), 2, "seed").workload

    first_backward: Op = next(op for op in workload.ops if op.phase == "backward")
    assert (first_backward.kind, first_backward.inputs) == ("aten.ones_like", (workload.loss,))


def test_dropout_is_marked_random_and_nothing_else_is() -> None:
    workload = capture(factory_of(LAYERS["dropout"], *IMAGE), 2, "dropout").workload

    assert [op.kind for op in workload.ops if op.random] == ["aten.native_dropout"]
