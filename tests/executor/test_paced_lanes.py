"""Copies beside computing, on an emulated link: the values and the bytes of a plan that runs in line."""

import pytest
import torch
from checking import unequal
from small_plans import CPU, bound_to, keep_all_peak_bytes, plan_of, policy_of
from tiny_models import tiny_resnet, tiny_transformer

from stepsim.errors import StepsimError
from stepsim.executor import Executor
from stepsim.executor.eager import eager_step
from stepsim.executor.paced_lanes import PacedLanes
from stepsim.memory import memory_profile
from stepsim.plan import TaskKind
from stepsim.strategies.memory.schedule import Action

SWAP, RECOMPUTE, KEEP = Action.SWAP, Action.RECOMPUTE, Action.KEEP


@pytest.mark.parametrize("factory", [tiny_resnet, tiny_transformer], ids=lambda factory: factory.__name__)
@pytest.mark.parametrize("actions", [(SWAP,), (SWAP, RECOMPUTE, KEEP)], ids=["swap all", "mixed"])
@pytest.mark.parametrize("share", [0.0, 0.7, 1.0])
def test_values_are_those_of_eager_pytorch_and_the_peak_is_the_plans(factory, actions, share):
    bound = bound_to(factory, 4)
    plan = plan_of(bound, policy_of(bound, *actions), int(share * keep_all_peak_bytes(bound)))
    reference = eager_step(bound)

    execution = Executor(plan, bound, PacedLanes(1e9)).run(metered=True)

    assert unequal(execution, reference) == []
    assert execution.memory.peak_bytes(CPU) == memory_profile(plan).peak_bytes(CPU)


def test_a_copy_takes_at_least_what_the_link_needs():
    bound = bound_to(tiny_resnet, 4)
    plan = plan_of(bound, policy_of(bound, SWAP))

    spans = Executor(plan, bound, PacedLanes(1e8, latency_s=1e-3)).run().timeline.spans

    for row in (plan.tasks.kind == TaskKind.SWAP_IN).nonzero()[0].tolist():
        size_bytes = int(plan.buffers.size_bytes[plan.tasks.reads[row][0]])
        assert spans.end_s[row] - spans.start_s[row] >= 1e-3 + size_bytes / 1e8


def test_no_row_starts_before_what_it_waits_for_has_ended():
    bound = bound_to(tiny_transformer, 4)
    plan = plan_of(bound, policy_of(bound, SWAP), memory_bytes=0)

    spans = Executor(plan, bound, PacedLanes(2e8)).run().timeline.spans

    waits = [(row, other) for row, others in enumerate(plan.tasks.dependencies.to_lists()) for other in others]
    assert waits
    assert all(spans.end_s[other] <= spans.start_s[row] for row, other in waits)


def test_computing_goes_on_beside_a_slow_copy():
    """In line the copies alone take 0.2 s or more; a policy that swaps early tensors hides some of that."""
    bound = bound_to(tiny_resnet, 4)
    plan = plan_of(bound, policy_of(bound, SWAP))
    spans = Executor(plan, bound, PacedLanes(2e7)).run().timeline.spans
    copies = (plan.tasks.kind == TaskKind.SWAP_OUT).nonzero()[0]
    computes = (plan.tasks.kind == TaskKind.COMPUTE).nonzero()[0]

    overlapping = [
        (copy, compute)
        for copy in copies.tolist()
        for compute in computes.tolist()
        if spans.start_s[copy] < spans.start_s[compute] < spans.end_s[copy]
    ]

    assert overlapping


@pytest.mark.parametrize(("rate", "latency_s"), [(0.0, 0.0), (-1.0, 0.0), (float("nan"), 0.0), (1e9, -1.0)])
def test_a_link_that_cannot_be_is_refused(rate, latency_s):
    with pytest.raises(StepsimError, match="emulated link: bytes_per_s must be > 0"):
        PacedLanes(rate, latency_s)


def test_many_runs_give_the_same_loss_each_time():
    bound = bound_to(tiny_resnet, 4)
    plan = plan_of(bound, policy_of(bound, SWAP), memory_bytes=0)
    executor = Executor(plan, bound, PacedLanes(1e9))
    state = {name: value.clone() for name, value in bound.step.module.state_dict().items()}

    losses = []
    for _ in range(5):
        bound.step.module.load_state_dict(state)
        losses.append(executor.run().loss)

    assert all(torch.equal(loss, losses[0]) for loss in losses)
