"""A step that accumulates the gradients of several microbatches, and updates once."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from side_by_side import SideBySide, run_ops
from torch import Tensor, nn
from torch.nn import functional

from stepsim.errors import CaptureError, WorkloadError
from stepsim.workloads import Phase, Role
from stepsim.workloads.capture import capture, capture_program, capture_workload
from stepsim.workloads.factory import Factory
from stepsim.workloads.program import Program
from stepsim.workloads.step_function import Microbatches

NUM = 3


class Net(nn.Module):
    """Batch norm, whose statistics go on from microbatch to microbatch, and dropout; the mean is over all of them."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)
        self.dropout, self.last = nn.Dropout(0.3), nn.Linear(16, 5)

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        hidden = self.dropout(self.norm(self.conv(x)).relu().flatten(1))
        return functional.cross_entropy(self.last(hidden), target) / NUM


def factory_of(num: int = NUM, kind: type[torch.optim.Optimizer] = torch.optim.AdamW) -> Factory:
    def factory(batch: int) -> Any:
        module = Net()
        pieces = [(torch.randn(batch // num, 3, 4, 4), torch.randint(5, (batch // num,))) for _ in range(num)]
        return module, Microbatches(pieces), kind(module.parameters(), lr=0.01)

    return factory


class Odd(nn.Module):
    """Gradients that cannot be added to as they come: one repeats a number, two are one tensor, one is a part of it."""

    def __init__(self) -> None:
        super().__init__()
        self.summed, self.one, self.other = (nn.Parameter(torch.randn(4)) for _ in range(3))
        self.part, self.rest = nn.Parameter(torch.randn(2)), nn.Parameter(torch.randn(2))

    def forward(self, x: Tensor) -> Tensor:
        both = self.one + self.other + torch.cat([self.part, self.rest])
        return (both * x).square().sum() + self.summed.sum()


def odd(batch: int) -> Any:
    module = Odd()
    return module, Microbatches(torch.randn(4) for _ in range(batch)), torch.optim.SGD(module.parameters(), lr=0.1)


@pytest.mark.parametrize("factory", [factory_of(), factory_of(kind=torch.optim.SGD)], ids=["AdamW", "SGD"])
def test_three_steps_equal_eager_accumulation_bit_for_bit(factory: Factory) -> None:
    both = SideBySide(factory, batch=6)

    for _ in range(3):
        both.step()

    assert both.unequal() == []


def test_gradients_that_share_memory_in_eager_pytorch_are_added_up_one_by_one() -> None:
    """Eager PyTorch adds too much: `part.grad` and `rest.grad` are views of `other.grad` and change with it."""
    torch.manual_seed(0)
    module, pieces, _ = odd(3)
    program = capture_program(module, pieces, name="odd", batch=3)
    each = [torch.autograd.grad(module(piece), list(module.parameters())) for piece in pieces]
    wanted = dict(zip(dict(module.named_parameters()), map(sum, zip(*each, strict=True)), strict=True))

    found = run_ops(program, outside_of(program, module, pieces))

    for parameter, gradient in program.workload.gradients.items():
        name = program.parameters[parameter]
        assert torch.equal(program.gradient_views[parameter](found[gradient]), wanted[name]), name


def outside_of(program: Program, module: nn.Module, pieces: Microbatches) -> dict[int, Tensor]:
    held = dict(module.named_parameters())
    return {tensor: held[name].detach() for tensor, name in program.parameters.items()} | {
        tensor: pieces[place] for tensor, place in program.inputs.items()
    }


def test_every_microbatch_has_its_own_inputs_and_activations_and_all_share_weights_and_gradients() -> None:
    one, three = (capture(factory_of(num), 2 * num, "step").workload for num in (1, NUM))

    counts = [
        {role: sum(tensor.role is role for tensor in workload.tensors) for role in Role} for workload in (one, three)
    ]
    assert [counts[1][role] for role in (Role.PARAMETER, Role.BUFFER)] == [
        counts[0][role] for role in (Role.PARAMETER, Role.BUFFER)
    ]
    assert counts[1][Role.INPUT] == NUM * counts[0][Role.INPUT]
    assert counts[1][Role.ACTIVATION] == NUM * counts[0][Role.ACTIVATION] + NUM - 1  # the sums of the losses
    assert three.gradients.keys() == one.gradients.keys()
    assert three.flop == NUM * one.flop


def test_a_gradient_is_added_to_the_first_as_soon_as_it_is_there() -> None:
    workload = capture(factory_of(), 6, "step").workload

    adds = {index: op for index, op in enumerate(workload.ops) if op.name.partition("@")[0].endswith(".accumulate")}
    assert len(adds) == (NUM - 1) * len(workload.gradients)
    for index, op in adds.items():
        total, new = op.inputs
        assert op.mutates == (total,)
        assert total in workload.gradients.values()
        assert index - workload.producer[new] <= 3  # one call makes the gradients of weight and bias of a convolution


def test_the_optimizer_runs_once_behind_all_microbatches() -> None:
    workload = capture(factory_of(kind=torch.optim.SGD), 6, "step").workload

    updates = [op.phase is Phase.UPDATE for op in workload.ops]
    first = updates.index(True)
    assert all(updates[first:])
    assert sum(op.name.endswith(".step") for op in workload.ops) == len(workload.gradients)


def test_one_capture_serves_all_batches_that_the_microbatches_divide() -> None:
    workload = capture_workload(factory_of(), 6, "step")

    assert replace(workload.at_batch(15), growth=None) == capture(factory_of(), 15, "step").workload
    with pytest.raises(WorkloadError, match="must be >= 1 and 6 plus a multiple of 3, got 16"):
        workload.at_batch(16)


def test_one_microbatch_is_a_plain_step() -> None:
    def plain(batch: int) -> Any:
        module, pieces, optimizer = factory_of(1)(batch)
        return module, pieces[0], optimizer

    assert capture(factory_of(1), 2, "step").workload == capture(plain, 2, "step").workload


def test_microbatches_that_differ_are_refused() -> None:
    def uneven(batch: int) -> Any:
        module, pieces, optimizer = factory_of(2)(batch)
        return module, Microbatches([pieces[0], factory_of(1)(batch)[1][0]]), optimizer

    with pytest.raises(CaptureError, match=r"^step cannot be captured: microbatch 1 is not like the first: "):
        capture(uneven, 4, "step")


def test_what_one_microbatch_leaves_to_the_forward_pass_of_the_next_is_not_saved_for_a_backward_pass() -> None:
    workload = capture(factory_of(), 6, "step").workload

    phases = {tensor: [workload.ops[op].phase for op in ops] for tensor, ops in workload.consumers.items()}
    saved = [index for index, tensor in enumerate(workload.tensors) if tensor.saved]
    assert len(saved) >= NUM * 4
    assert all(Phase.FORWARD not in phases[tensor][phases[tensor].index(Phase.BACKWARD) :] for tensor in saved)
    passed_on = [t for t, seen in phases.items() if Phase.BACKWARD in seen and seen[-1] is Phase.FORWARD]
    assert passed_on
