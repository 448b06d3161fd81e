from collections.abc import Callable
from typing import Any

import pytest
import torch
from side_by_side import SideBySide
from torch import Tensor, nn

from stepsim.workloads import Role
from stepsim.workloads.capture import capture_program
from stepsim.workloads.factory import Factory


class TiedHead(nn.Module):
    """One matrix embeds and classifies; one layer is used twice."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(7, 4)
        layer = nn.Linear(4, 4)
        self.layers = nn.Sequential(layer, nn.Tanh(), layer)
        self.head = nn.Linear(4, 7, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, tokens: Tensor) -> tuple[Tensor]:
        return (nn.functional.cross_entropy(self.head(self.layers(self.embed(tokens))), tokens),)


class Attributes(nn.Module):
    """Holds a plain tensor that it reads and one that it writes, counts its calls, and keeps its last product."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(3))
        self.scale = torch.tensor([1.0, 2.0, 3.0])
        self.decay = torch.ones(3)
        self.calls = 0
        self.last: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        self.decay.mul_(0.5)
        self.last = self.weight * self.scale * self.decay * x
        return self.last.sum()


class Nested(nn.Module):
    """Takes tensors in a dict, a number, a flag, and an input that it does not read."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 2)
        self.unused = nn.Linear(2, 2)

    def forward(self, unused: Tensor, factor: int, named: dict[str, Any]) -> Tensor:
        scaled = self.layer(named["x"][0]) * factor
        return scaled.sum() if named["sum"] else scaled.mean()


class Frozen(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 4), nn.Linear(4, 2))
        self.layers[2].requires_grad_(False)
        self.layers[0].bias.requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x).sum()


class Product(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 3)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return (self.layer(x) * y).sum()


def tokens() -> tuple[Tensor]:
    return (torch.tensor([1, 5, 6]),)


def one_tensor_twice() -> tuple[Tensor, Tensor]:
    x = torch.randn(2, 3)
    return x, x


def views_of_one_tensor() -> tuple[Tensor, Tensor]:
    x = torch.randn(6, 3)
    return x[2:4], x.t()[:, :2].t()


def factory_of(make: Callable[[], nn.Module], inputs: Callable[[], Any]) -> Factory:
    def factory(batch: int) -> Any:
        module = make()
        return module, inputs(), torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.9)

    return factory


STEPS = {
    "tied weights and integer inputs": factory_of(TiedHead, tokens),
    "plain attributes": factory_of(Attributes, lambda: torch.randn(3)),
    "nested inputs": factory_of(Nested, lambda: (torch.ones(2), 3, {"x": [torch.randn(2, 3), None], "sum": False})),
    "frozen parameters": factory_of(Frozen, lambda: torch.randn(2, 3)),
    "one tensor as two inputs": factory_of(Product, one_tensor_twice),
    "overlapping inputs": factory_of(Product, views_of_one_tensor),
}


@pytest.mark.parametrize("name", STEPS)
def test_three_steps_equal_eager_steps_bit_for_bit(name: str) -> None:
    both = SideBySide(STEPS[name])

    for _ in range(3):
        both.step()

    assert both.unequal() == []


def test_a_parameter_with_two_names_is_one_tensor() -> None:
    module = TiedHead()

    program = capture_program(module, tokens(), name="tied", batch=3)

    assert sorted(program.parameters.values()) == ["embed.weight", "layers.0.bias", "layers.0.weight"]


def test_a_frozen_parameter_has_no_gradient() -> None:
    program = capture_program(Frozen(), (torch.randn(2, 3),), name="frozen", batch=2)

    trained = {program.parameters[parameter] for parameter in program.workload.gradients}
    assert trained == {"layers.0.weight", "layers.3.weight", "layers.3.bias"}


def test_unused_parameters_and_inputs_are_tensors_without_readers() -> None:
    inputs = (torch.ones(2), 3, {"x": [torch.randn(2, 3), None], "sum": True})

    program = capture_program(Nested(), inputs, name="nested", batch=2)

    workload = program.workload
    outside = [index for index, tensor in enumerate(workload.tensors) if tensor.role in (Role.PARAMETER, Role.INPUT)]
    unread = [workload.tensors[index].name for index in outside if not workload.consumers[index]]
    assert unread == ["unused.weight", "unused.bias", "input.0"]
    assert sorted(program.inputs.values()) == [0, 2]


def test_capture_undoes_what_the_module_writes_to_itself() -> None:
    module = Attributes()

    capture_program(module, (torch.randn(3),), name="attributes", batch=1)

    assert (module.calls, module.last) == (0, None)
    assert module.decay.tolist() == [1.0, 1.0, 1.0]
