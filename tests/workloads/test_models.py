from functools import partial
from typing import Any

import pytest
import torch

from stepsim.workloads.models import small_resnet, small_transformer

FACTORIES = [
    partial(small_resnet, width=4),
    partial(small_transformer, width=16, blocks=1, length=8, vocabulary=20),
]


@pytest.mark.parametrize("factory", FACTORIES)
def test_a_factory_gives_the_same_step_every_time(factory: Any) -> None:
    one, two = factory(2), factory(2)

    for tensors in (zip(one[0].parameters(), two[0].parameters(), strict=True), zip(one[1], two[1], strict=True)):
        assert all(torch.equal(first, second) for first, second in tensors)


@pytest.mark.parametrize("factory", FACTORIES)
def test_ten_steps_on_one_batch_lower_the_loss(factory: Any) -> None:
    module, inputs, optimizer = factory(4)
    losses = []

    for _ in range(10):
        optimizer.zero_grad()
        loss = module(*inputs)
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))

    assert losses[-1] < losses[0]


def test_the_transformer_does_not_look_ahead() -> None:
    module, (tokens, targets), _ = small_transformer(1, width=16, blocks=1, length=8, vocabulary=20)
    changed = tokens.clone()
    changed[0, -1] = (tokens[0, -1] + 1) % 20
    ignored = targets.clone()
    ignored[0, -1] = -100

    losses = [module(tokens, ignored), module(changed, ignored)]

    assert torch.equal(*losses)
