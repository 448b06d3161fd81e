"""Whatever the plan: the values of eager PyTorch, bit for bit, and the memory that was predicted, byte for byte."""

import copy
import random
from collections.abc import Iterator, Mapping

import numpy as np
import pytest
import torch
from tiny_models import EXACT, conv_net_with_bias, tiny_resnet, tiny_transformer, with_dropout

from stepsim.errors import PlanError, WorkloadError
from stepsim.executor import BoundProgram, Executor, execute
from stepsim.executor.eager import eager_step, max_abs_difference
from stepsim.machines import this_cpu
from stepsim.memory import memory_profile
from stepsim.plan import Plan
from stepsim.plan_builder import PlanBuilder
from stepsim.strategies.memory.lowering import plan_for_policy
from stepsim.strategies.memory.schedule import Action, can_recompute, candidates

UNLIMITED = 10**15


def bind(factory, batch=2) -> BoundProgram:
    return BoundProgram.of(factory, batch, factory.__name__)


def plan_of(bound: BoundProgram, policy: Mapping[int, Action], memory_bytes: int = UNLIMITED) -> Plan:
    return plan_for_policy(bound.workload, this_cpu(), policy, memory_bytes)


def all_of(bound: BoundProgram, action: Action) -> dict[int, Action]:
    tensors = candidates(bound.workload)
    if action is Action.RECOMPUTE:
        tensors = [tensor for tensor in tensors if can_recompute(bound.workload, tensor)]
    return dict.fromkeys(tensors, action)


def random_policy(bound: BoundProgram, seed: int) -> dict[int, Action]:
    draw = random.Random(seed)
    policy = {tensor: draw.choice(list(Action)) for tensor in candidates(bound.workload)}
    return {
        tensor: action
        for tensor, action in policy.items()
        if action is not Action.RECOMPUTE or can_recompute(bound.workload, tensor)
    }


def plans_of(bound: BoundProgram) -> Iterator[Plan]:
    """Keep all; swap all, given back early and late; recompute all; and mixes of the three."""
    yield plan_of(bound, {})
    yield plan_of(bound, all_of(bound, Action.SWAP), memory_bytes=0)
    yield plan_of(bound, all_of(bound, Action.SWAP))
    yield plan_of(bound, all_of(bound, Action.RECOMPUTE))
    half = memory_profile(plan_of(bound, {})).peak_bytes("cpu0") // 2
    for seed in range(4):
        yield plan_of(bound, random_policy(bound, seed), memory_bytes=half)


@pytest.mark.parametrize("factory", EXACT, ids=lambda factory: factory.__name__)
def test_every_plan_gives_the_values_of_eager_pytorch_and_the_predicted_bytes_at_every_row(factory):
    bound = bind(factory)

    for plan in plans_of(bound):
        reference = eager_step(bound)
        execution = Executor(plan, bound).run(metered=True)

        predicted, cpu = memory_profile(plan), plan.devices.name.index("cpu0")
        assert max_abs_difference(execution, reference) == 0.0
        assert execution.memory.peak_bytes("cpu0") == predicted.peak_bytes("cpu0")
        # The last row hands the loss and the gradients over instead of dropping them.
        np.testing.assert_array_equal(execution.memory.during[cpu], predicted.during[cpu])
        np.testing.assert_array_equal(execution.memory.after[cpu, :-1], predicted.after[cpu, :-1])


def test_swapping_and_recomputing_lower_the_peak_that_is_measured():
    bound = bind(tiny_resnet, 8)
    peaks = {}
    for action in Action:
        plan = plan_of(bound, all_of(bound, action), memory_bytes=0)

        peaks[action] = Executor(plan, bound).run(metered=True).memory.peak_bytes("cpu0")

    assert peaks[Action.SWAP] < peaks[Action.KEEP]
    assert peaks[Action.RECOMPUTE] < peaks[Action.KEEP]


@pytest.mark.parametrize("factory", [tiny_resnet, tiny_transformer, conv_net_with_bias], ids=lambda f: f.__name__)
def test_twenty_steps_give_the_losses_and_the_weights_of_plain_pytorch(factory):
    bound = bind(factory)
    module, optimizer = copy.deepcopy((bound.step.module, bound.step.optimizer))
    executor = Executor(plan_of(bound, random_policy(bound, 7), memory_bytes=0), bound)
    generator = torch.Generator().manual_seed(1)
    ours, plain = [], []

    for _ in range(20):
        inputs = [fresh_input(tensor, generator) for tensor in bound.step.inputs]
        ours.append(executor.run(inputs).loss.item())
        optimizer.zero_grad()
        loss = module(*inputs)
        loss.backward()
        optimizer.step()
        plain.append(loss.item())

    assert ours == plain
    assert len(set(ours)) == 20
    trained = dict(bound.step.module.named_parameters())
    assert all(torch.equal(trained[name], weight) for name, weight in module.named_parameters())


def fresh_input(like: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    if like.is_floating_point():
        return torch.randn(like.shape, generator=generator)
    return torch.randint(4, like.shape, generator=generator)


def test_execute_captures_the_module_by_itself_and_trains_it_by_one_step():
    bound = bind(conv_net_with_bias)
    plan = plan_of(bound, {})
    module, inputs, optimizer = conv_net_with_bias(2)
    torch.manual_seed(0)
    before = copy.deepcopy(module.state_dict())

    execution = execute(plan, module, inputs, optimizer)

    assert set(execution.gradients) == set(dict(module.named_parameters()))
    assert execution.memory is None
    assert not any(torch.equal(before[name], value) for name, value in module.state_dict().items())


def test_measured_spans_keep_issue_order_and_never_overlap():
    bound = bind(tiny_transformer)

    spans = Executor(plan_of(bound, random_policy(bound, 3)), bound).run().timeline.spans

    assert (spans.end_s >= spans.start_s).all()
    assert (spans.start_s[1:] >= spans.end_s[:-1]).all()


def test_dropout_that_is_kept_or_swapped_draws_what_eager_pytorch_draws():
    bound = bind(with_dropout)
    for plan in (plan_of(bound, {}), plan_of(bound, all_of(bound, Action.SWAP), memory_bytes=0)):
        torch.manual_seed(5)
        reference = eager_step(bound)
        torch.manual_seed(5)

        execution = Executor(plan, bound).run()

        assert max_abs_difference(execution, reference) == 0.0


def test_what_was_drawn_at_random_cannot_be_recomputed():
    bound = bind(with_dropout)
    drawn = [t for t in candidates(bound.workload) if not can_recompute(bound.workload, t)]

    assert drawn
    with pytest.raises(WorkloadError, match="cannot recompute"):
        plan_of(bound, dict.fromkeys(drawn, Action.RECOMPUTE))


def test_a_plan_of_another_graph_is_refused():
    plan = plan_of(bind(conv_net_with_bias), {})

    with pytest.raises(PlanError, match=r"the plan is for graph \w{12}, the module gives graph \w{12}"):
        Executor(plan, bind(tiny_resnet))


def one_row_plan(bound: BoundProgram, **wrong: object) -> Plan:
    """A plan with one row of the bound graph, to be spoilt."""
    builder = PlanBuilder()
    device = builder.device("cpu0")
    stream = builder.stream("compute", device)
    facts = {"graph": bound.workload.graph_hash, "ops": (0,), **wrong}
    builder.compute(builder.work("work", **facts), stream)
    return builder.build()


@pytest.mark.parametrize(
    ("wrong", "problem"),
    [
        ({}, "reads 0 buffers, op 'convolution' takes"),
        ({"ops": (0, 1)}, "its work names 2 ops of the graph, the executor runs one"),
        ({"ops": ()}, "its work names 0 ops of the graph"),
    ],
)
def test_work_that_the_executor_cannot_run_is_refused_with_its_row(wrong, problem):
    bound = bind(conv_net_with_bias)

    with pytest.raises(PlanError, match=f"row 0: {problem}"):
        Executor(one_row_plan(bound, **wrong), bound)


def test_rows_between_devices_are_refused():
    bound = bind(conv_net_with_bias)
    builder = PlanBuilder()
    one, two = builder.device("cpu0"), builder.device("cpu1")
    group = builder.group()
    builder.send(builder.buffer(4, one), two, builder.stream("send", one), group)
    builder.receive(builder.buffer(4, two), one, builder.stream("receive", two), group)

    with pytest.raises(PlanError, match="the executor runs one device, the plan has streams on 2"):
        Executor(builder.build(), bound)
