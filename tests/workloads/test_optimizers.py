from typing import Any

import pytest
import torch
from side_by_side import SideBySide
from torch import Tensor, nn
from torch.optim import SGD, Adam, AdamW, Optimizer

from stepsim.errors import CaptureError
from stepsim.workloads import Phase, Role
from stepsim.workloads.capture import capture
from stepsim.workloads.factory import build_step


class TwoLayers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(3, 4), nn.Linear(4, 2)
        self.unused = nn.Parameter(torch.ones(2))

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.first(x).relu()).square().mean()


def factory_with(kind: type[Optimizer] = SGD, **options: Any) -> Any:
    def factory(batch: int) -> Any:
        module = TwoLayers()
        return module, torch.randn(batch, 3), kind(module.parameters(), **options)

    return factory


def factory_with_two_groups(batch: int) -> Any:
    module = TwoLayers()
    groups = [
        {"params": list(module.second.parameters()), "lr": 0.5, "momentum": 0.9, "nesterov": True},
        {"params": [module.first.weight], "weight_decay": 0.1},
    ]
    return module, torch.randn(batch, 3), torch.optim.SGD(groups, lr=0.1)


@pytest.mark.parametrize(
    "factory",
    [
        factory_with(lr=0.1),
        factory_with(lr=0.1, weight_decay=0.01),
        factory_with(lr=0.1, momentum=0.9),
        factory_with(lr=0.1, momentum=0.9, weight_decay=0.01, nesterov=True),
        factory_with_two_groups,
        factory_with(Adam),
        factory_with(Adam, lr=0.1, betas=(0.5, 0.9), eps=1e-3, weight_decay=0.1),
        factory_with(AdamW, lr=0.1, weight_decay=0.1),
        factory_with(AdamW, weight_decay=0.0),
    ],
    ids=["plain", "weight decay", "momentum", "nesterov", "two groups", "Adam", "Adam decay", "AdamW", "AdamW plain"],
)
def test_five_updates_equal_those_of_torch_bit_for_bit(factory: Any) -> None:
    both = SideBySide(factory)

    for _ in range(5):
        both.step()

    assert both.unequal() == []


def test_each_call_of_the_update_is_an_op_after_all_backward_ops() -> None:
    factory = factory_with(lr=0.1, momentum=0.9, weight_decay=0.01, nesterov=True)

    workload = capture(factory, batch=2, name="update").workload

    phases = [op.phase for op in workload.ops]
    assert phases == sorted(phases, key=list(Phase).index)
    kinds = [op.kind for op in workload.ops if op.phase is Phase.UPDATE]
    assert kinds == ["aten.add", "aten.mul_", "aten.add_", "aten.add", "aten.add_"] * 4


def test_an_update_writes_the_parameter_and_its_momentum_in_place() -> None:
    program = capture(factory_with(lr=0.1, momentum=0.9), batch=2, name="update")

    workload = program.workload
    written = [workload.tensors[index] for op in workload.ops for index in op.mutates]
    assert [tensor.name for tensor in written[:3]] == ["first.weight.momentum_buffer"] * 2 + ["first.weight"]
    first = next(index for index, tensor in enumerate(workload.tensors) if tensor.role is Role.OPTIMIZER_STATE)
    assert program.states[first] == ("first.weight", "momentum_buffer")


def test_adam_keeps_two_moments_like_the_parameter_and_a_count_for_each() -> None:
    program = capture(factory_with(Adam), batch=2, name="update")

    tensors = program.workload.tensors
    states = {program.states[index]: tensors[index] for index in program.states}
    assert {tensor.role for tensor in states.values()} == {Role.OPTIMIZER_STATE}
    first = {key: tensor.shape for (name, key), tensor in states.items() if name == "first.weight"}
    assert first == {"step": (), "exp_avg": (4, 3), "exp_avg_sq": (4, 3)}
    assert len(states) == 4 * 3


def test_adam_is_eight_calls_a_parameter_and_a_ninth_for_weight_decay() -> None:
    calls = ["add_", "lerp_", "mul_", "addcmul_", "sqrt", "div", "add_", "addcdiv_"]
    for factory, decay in (
        (factory_with(Adam), []),
        (factory_with(Adam, weight_decay=0.1), ["add"]),
        (factory_with(AdamW), ["mul_"]),
    ):
        workload = capture(factory, batch=2, name="update").workload

        kinds = [op.kind.removeprefix("aten.") for op in workload.ops if op.phase is Phase.UPDATE]
        assert kinds == (calls[:1] + decay + calls[1:]) * 4


def test_a_parameter_without_a_gradient_is_not_updated() -> None:
    workload = capture(factory_with(lr=0.1), batch=2, name="update").workload

    unused = next(index for index, tensor in enumerate(workload.tensors) if tensor.name == "unused")
    assert workload.consumers[unused] == ()


@pytest.mark.parametrize(
    ("option", "value"),
    [("dampening", 0.1), ("maximize", True), ("foreach", True), ("differentiable", True), ("fused", True)],
)
def test_an_option_that_changes_the_calls_is_refused_by_name(option: str, value: Any) -> None:
    factory = factory_with(lr=0.1, momentum=0.9, **{option: value})

    with pytest.raises(CaptureError, match=f"^optimizer: SGD with {option} is not supported, got {option}={value}$"):
        capture(factory, batch=2, name="update")


@pytest.mark.parametrize("option", ["amsgrad", "maximize", "capturable", "fused"])
def test_so_is_one_of_adam(option: str) -> None:
    with pytest.raises(CaptureError, match=f"^optimizer: Adam with {option} is not supported, got {option}=True$"):
        capture(factory_with(Adam, **{option: True}), batch=2, name="update")


def test_another_optimizer_is_refused_by_name() -> None:
    def factory(batch: int) -> Any:
        module = TwoLayers()
        return module, torch.randn(batch, 3), torch.optim.Adagrad(module.parameters())

    with pytest.raises(CaptureError, match=r"^optimizer: must be None or one of .* SGD, Adam, AdamW, got Adagrad$"):
        capture(factory, batch=2, name="update")


def test_a_learning_rate_that_is_a_tensor_is_refused() -> None:
    factory = factory_with(lr=torch.tensor(0.1))

    with pytest.raises(CaptureError, match=r"^optimizer: lr must be a number, got a tensor$"):
        build_step(factory, 2)


def test_a_parameter_from_elsewhere_is_refused() -> None:
    def factory(batch: int) -> Any:
        return TwoLayers(), torch.randn(batch, 3), torch.optim.SGD([nn.Parameter(torch.ones(5))], lr=0.1)

    with pytest.raises(CaptureError, match=r"holds a parameter of shape \(5,\) that the module does not have"):
        capture(factory, batch=2, name="update")
