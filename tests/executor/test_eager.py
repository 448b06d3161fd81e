"""The reference itself, and the distance from it."""

import copy
import math
from dataclasses import dataclass, field, replace

import pytest
import torch
from small_plans import bind, bound_to
from tiny_models import Made, frozen_first_layer, tiny_resnet, with_dropout
from torch import nn

from stepsim.executor.eager import eager_step, max_abs_difference


def test_an_eager_step_leaves_module_optimizer_and_generator_as_they_are() -> None:
    bound = bind(tiny_resnet)
    module, optimizer = bound.step.module, bound.step.optimizer
    before, drawn = copy.deepcopy(module.state_dict()), torch.get_rng_state()

    eager_step(bound)

    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())
    assert all(parameter.grad is None for parameter in module.parameters())
    assert not optimizer.state
    assert torch.equal(torch.get_rng_state(), drawn)


def test_an_eager_step_is_what_the_module_itself_does() -> None:
    bound = bind(tiny_resnet)
    module = bound.step.module

    reference = eager_step(bound)

    loss = module(*bound.step.inputs)
    loss.backward()
    assert torch.equal(reference.loss, loss)
    assert all(torch.equal(reference.gradients[name], weight.grad) for name, weight in module.named_parameters())
    assert all(torch.equal(reference.buffers[name], buffer) for name, buffer in module.named_buffers())
    assert reference.buffers.keys() == dict(module.named_buffers()).keys()
    bound.step.optimizer.step()
    assert all(torch.equal(reference.parameters[name], weight) for name, weight in module.named_parameters())


def test_gradients_are_those_of_this_step_whatever_was_left_before() -> None:
    bound = bind(tiny_resnet)
    clean = eager_step(bound)
    for parameter in bound.step.module.parameters():
        parameter.grad = torch.ones_like(parameter)

    again = eager_step(bound)

    assert all(torch.equal(again.gradients[name], gradient) for name, gradient in clean.gradients.items())


def test_frozen_parameters_have_no_gradient() -> None:
    reference = eager_step(bound_to(frozen_first_layer))

    assert sorted(reference.gradients) == ["layers.3.bias", "layers.3.weight", "layers.5.bias", "layers.5.weight"]


def test_two_eager_steps_draw_the_same_random_numbers() -> None:
    bound = bound_to(with_dropout)

    first, second = eager_step(bound), eager_step(bound)

    assert torch.equal(first.loss, second.loss)


def in_a_tuple(batch: int) -> Made:
    class Wrapped(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(3, 1)

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor]:
            return (self.linear(x).sum(),)

    return Wrapped(), (torch.ones(batch, 3),), None


def test_the_loss_may_come_in_a_tuple() -> None:
    bound = bind(in_a_tuple)

    assert torch.equal(eager_step(bound).loss, bound.step.module(*bound.step.inputs)[0])


@dataclass
class Values:
    """What `max_abs_difference` compares of an execution and of a reference."""

    loss: torch.Tensor = field(default_factory=lambda: torch.tensor(1.0))
    gradients: dict[str, torch.Tensor] = field(default_factory=dict)
    buffers: dict[str, torch.Tensor] = field(default_factory=dict)
    parameters: dict[str, torch.Tensor] = field(default_factory=dict)


def difference(one: Values, other: Values) -> float:
    assert max_abs_difference(one, other) == max_abs_difference(other, one)
    return max_abs_difference(one, other)


def test_the_difference_is_the_largest_over_loss_gradients_buffers_and_parameters() -> None:
    one = Values(gradients={"a": torch.zeros(2), "b": torch.zeros(2)}, buffers={"n": torch.tensor(3)})
    one.parameters["a"] = torch.tensor(0.0)
    cases = {
        0.0: copy.deepcopy(one),
        0.5: replace(one, loss=torch.tensor(1.5)),
        2.0: replace(one, gradients={"a": torch.tensor([-1.0, 1.0]), "b": torch.tensor([0.0, 2.0])}),
        4.0: replace(one, loss=torch.tensor(1.5), buffers={"n": torch.tensor(7)}),
        8.0: replace(one, parameters={"a": torch.tensor(8.0)}),
    }

    found = {wanted: difference(one, other) for wanted, other in cases.items()}

    assert found == {wanted: wanted for wanted in cases}


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"a": torch.zeros(2)}, {}),
        ({"a": torch.zeros(2)}, {"b": torch.zeros(2)}),
        ({"a": torch.zeros(2)}, {"a": torch.zeros(1, 2)}),
        ({"a": torch.zeros(2)}, {"a": torch.zeros(2, dtype=torch.float64)}),
        ({"a": torch.tensor([math.nan])}, {"a": torch.tensor([0.0])}),
        ({"a": torch.tensor([math.inf])}, {"a": torch.tensor([0.0])}),
        ({"a": torch.tensor([math.inf])}, {"a": torch.tensor([-math.inf])}),
    ],
    ids=["missing", "another name", "another shape", "another dtype", "nan", "infinite", "opposite"],
)
def test_what_cannot_be_compared_is_infinitely_different(one, other) -> None:
    assert difference(Values(gradients=one), Values(gradients=other)) == math.inf
    assert difference(Values(buffers=one), Values(buffers=other)) == math.inf
    assert difference(Values(parameters=one), Values(parameters=other)) == math.inf


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_the_same_nan_or_infinity_on_both_sides_is_no_difference(value) -> None:
    assert difference(Values(torch.tensor(value)), Values(torch.tensor(value))) == 0.0


@pytest.mark.parametrize(
    ("one", "other", "wanted"),
    [
        (torch.tensor([True, False]), torch.tensor([True, True]), 1.0),
        (torch.tensor([3 + 4j]), torch.tensor([0j]), 5.0),
        (torch.tensor([1j]), torch.tensor([1j]), 0.0),
        (torch.tensor([200], dtype=torch.uint8), torch.tensor([255], dtype=torch.uint8), 55.0),
        (torch.zeros(0), torch.zeros(0), 0.0),
    ],
    ids=["bool", "complex", "equal complex", "bytes", "empty"],
)
def test_buffers_of_any_dtype_are_compared(one, other, wanted) -> None:
    assert difference(Values(buffers={"n": one}), Values(buffers={"n": other})) == wanted
