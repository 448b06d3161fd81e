"""Dropout that is recomputed draws what it drew before, and nobody else notices."""

import pytest
import torch
from small_plans import UNLIMITED, bind, bound_to, keep_all_peak_bytes, plan_of, policy_of
from test_execute import check
from tiny_models import Layers, Made, with_dropout
from torch import nn

from stepsim.executor import BoundProgram, Executor
from stepsim.executor.draws import Draw
from stepsim.plan import Plan, TaskKind
from stepsim.strategies.memory.schedule import Action

KEEP, SWAP, RECOMPUTE = Action


def several_dropouts(batch: int) -> Made:
    """The dropouts are the same work on other tensors; the last layers draw after them."""
    torch.manual_seed(0)
    layers = [layer for _ in range(3) for layer in (nn.Linear(16, 16), nn.ReLU(), nn.Dropout(0.3))]
    module = Layers(nn.Flatten(), nn.Linear(192, 16), *layers, nn.Linear(16, 4), nn.Dropout(0.1))
    return module, (torch.randn(batch, 3, 8, 8), torch.randint(4, (batch,))), torch.optim.SGD(module.parameters(), 0.1)


def again(plan: Plan, bound: BoundProgram) -> list[str]:
    """Kinds of the random ops that ``plan`` recomputes, in order."""
    work = plan.tasks.work[plan.tasks.kind == TaskKind.RECOMPUTE].tolist()
    ops = (bound.workload.ops[plan.work.ops[number].tolist()[0]] for number in work)
    return [op.kind for op in ops if op.random]


@pytest.mark.parametrize("memory_bytes", [0, UNLIMITED])
@pytest.mark.parametrize("actions", [(KEEP,), (SWAP,), (RECOMPUTE,), (RECOMPUTE, SWAP, KEEP)])
@pytest.mark.parametrize("factory", [with_dropout, several_dropouts])
def test_dropout_draws_what_eager_pytorch_draws_whatever_becomes_of_it(factory, actions, memory_bytes):
    bound = bound_to(factory)
    torch.manual_seed(5)

    check(plan_of(bound, policy_of(bound, *actions), memory_bytes), bound)


def test_each_dropout_is_recomputed_from_where_the_generator_stood_at_its_own_turn():
    bound = bind(several_dropouts, 8)
    plan = plan_of(bound, policy_of(bound, RECOMPUTE), keep_all_peak_bytes(bound))

    assert len(again(plan, bound)) >= 3
    check(plan, bound)


@pytest.mark.parametrize("action", Action)
def test_the_next_step_draws_on_whatever_was_recomputed_in_this_one(action):
    bound = bind(several_dropouts)
    executor = Executor(plan_of(bound, policy_of(bound, action)), bound)
    torch.manual_seed(3)

    losses = [executor.run().loss.item() for _ in range(3)]

    kept = bind(several_dropouts)
    plain = Executor(plan_of(kept, {}), kept)
    torch.manual_seed(3)
    assert losses == [plain.run().loss.item() for _ in range(3)]
    assert len(set(losses)) == 3


def test_a_draw_that_fails_leaves_the_generator_as_it_was():
    draw = Draw(lambda values: values or torch.rand(2).no_such_method(), torch.device("cpu"))
    draw.first([torch.ones(1)])
    torch.rand(5)
    before = torch.get_rng_state()

    with pytest.raises(AttributeError):
        draw.again([])

    assert torch.equal(torch.get_rng_state(), before)
