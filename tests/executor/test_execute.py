"""Whatever the plan: the values of eager PyTorch, bit for bit, and the memory that was predicted, byte for byte."""

import copy
from collections.abc import Iterator

import pytest
import torch
from checking import check
from hypothesis import given, settings
from hypothesis import strategies as st
from small_plans import CPU, UNLIMITED, bind, bound_to, fresh_inputs, keep_all_peak_bytes, plan_of, policy_of
from tiny_models import (
    EXACT,
    adam,
    autocast,
    conv_net_with_bias,
    microbatches,
    nesterov,
    tied_weights,
    tiny_resnet,
    tiny_transformer,
    with_dropout,
)

from stepsim.costmodels import GivenCosts
from stepsim.executor import BoundProgram, Executor, execute
from stepsim.machines import this_cpu
from stepsim.plan import Plan, TaskKind
from stepsim.report import report
from stepsim.simulator import simulate
from stepsim.strategies import Greedy
from stepsim.strategies.memory.schedule import Action

KEEP, SWAP, RECOMPUTE = Action


def plans_of(bound: BoundProgram) -> Iterator[Plan]:
    """Keep all; swap all, given back early and late; recompute all; and a mix of the three."""
    yield plan_of(bound, {})
    yield plan_of(bound, policy_of(bound, SWAP), memory_bytes=0)
    yield plan_of(bound, policy_of(bound, SWAP))
    yield plan_of(bound, policy_of(bound, RECOMPUTE))
    yield plan_of(bound, policy_of(bound, SWAP, RECOMPUTE, KEEP), keep_all_peak_bytes(bound) // 2)


@pytest.mark.parametrize("factory", EXACT, ids=lambda factory: factory.__name__)
def test_every_plan_gives_the_values_of_eager_pytorch_and_the_predicted_bytes_at_every_row(factory):
    bound = bound_to(factory)

    for plan in plans_of(bound):
        check(plan, bound)


@pytest.mark.parametrize("factory", [tiny_resnet, tiny_transformer, nesterov, tied_weights], ids=lambda f: f.__name__)
@settings(max_examples=12)
@given(actions=st.lists(st.sampled_from(Action), min_size=1, max_size=40), share=st.floats(0, 1))
def test_so_does_any_policy_at_any_limit(factory, actions, share):
    bound = bound_to(factory)

    check(plan_of(bound, policy_of(bound, *actions), int(share * keep_all_peak_bytes(bound))), bound)


@pytest.mark.parametrize("factory", [tiny_resnet, tiny_transformer, microbatches], ids=lambda factory: factory.__name__)
@pytest.mark.parametrize("share", [0.95, 0.85, 0.75])
def test_what_greedy_finds_stays_within_the_limit_when_it_runs(factory, share):
    bound, machine = bound_to(factory, 8), this_cpu()
    costs = GivenCosts(seconds={op.kind: 1e-4 for op in bound.workload.ops})
    limit_bytes = int(share * keep_all_peak_bytes(bound))

    proposal = Greedy().plan(
        bound.workload,
        machine,
        costs,
        memory_bytes=limit_bytes,
        evaluate=lambda plan: report(simulate(plan, machine, costs), plan),
        time_limit_s=60,
    )

    assert proposal.feasible
    check(proposal.plan, bound)
    measured = Executor(proposal.plan, bound).run(metered=True).memory.peak_bytes(CPU)
    assert measured == proposal.predicted_peak_bytes <= limit_bytes


def test_swapping_and_recomputing_lower_the_peak_that_is_measured():
    bound = bound_to(tiny_resnet, 8)
    peaks = {}
    for action in Action:
        plan = plan_of(bound, policy_of(bound, action), memory_bytes=0)

        peaks[action] = Executor(plan, bound).run(metered=True).memory.peak_bytes(CPU)

    assert peaks[SWAP] < peaks[KEEP]
    assert peaks[RECOMPUTE] < peaks[KEEP]


@pytest.mark.parametrize("factory", [tiny_resnet, tiny_transformer, adam, autocast], ids=lambda f: f.__name__)
def test_twenty_steps_on_new_inputs_give_the_losses_and_the_weights_of_plain_pytorch(factory):
    bound = bind(factory)
    module, optimizer = copy.deepcopy((bound.step.module, bound.step.optimizer))
    plan = plan_of(bound, policy_of(bound, SWAP, RECOMPUTE, KEEP), memory_bytes=0)
    executor, generator = Executor(plan, bound), torch.Generator().manual_seed(1)
    ours, plain = [], []

    for _ in range(20):
        inputs = fresh_inputs(bound, generator)
        ours.append(executor.run(inputs).loss.item())
        optimizer.zero_grad()
        loss = module(*inputs)
        loss.backward()
        optimizer.step()
        plain.append(loss.item())

    assert {TaskKind.SWAP_IN, TaskKind.RECOMPUTE} <= set(plan.tasks.kind.tolist())
    assert ours == plain
    assert len(set(ours)) == 20
    trained = bound.step.module.state_dict()
    assert all(torch.equal(trained[name], value) for name, value in module.state_dict().items())
    for ours_, theirs in zip(bound.step.module.parameters(), module.parameters(), strict=True):
        state, plain_state = bound.step.optimizer.state[ours_], optimizer.state[theirs]
        assert state.keys() == plain_state.keys()
        assert all(torch.equal(state[key], plain_state[key]) for key in state)


def test_what_a_run_hands_out_stays_as_it_is_when_the_plan_runs_again():
    bound = bind(tiny_resnet)
    executor = Executor(plan_of(bound, {}), bound)
    first = executor.run()
    handed_out = [first.loss, *first.gradients.values(), *first.buffers.values(), *first.parameters.values()]
    before = [value.clone() for value in handed_out]

    second = executor.run()

    assert second.loss != first.loss
    assert all(map(torch.equal, handed_out, before))


def test_execute_captures_the_module_by_itself_and_trains_it_by_one_step():
    plan = plan_of(bound_to(conv_net_with_bias), {})
    module, inputs, optimizer = conv_net_with_bias(2)
    twin, twin_optimizer = copy.deepcopy((module, optimizer))

    execution = execute(plan, module, inputs, optimizer)

    twin(*inputs).backward()
    twin_optimizer.step()
    assert execution.gradients.keys() == dict(module.named_parameters()).keys()
    assert all(torch.equal(weight, other) for weight, other in zip(module.parameters(), twin.parameters(), strict=True))


def test_only_a_metered_run_has_memory_and_its_highest_step_is_the_peak():
    bound = bound_to(conv_net_with_bias)
    executor = Executor(plan_of(bound, policy_of(bound, SWAP), memory_bytes=0), bound)

    plain, metered = executor.run(), executor.run(metered=True)

    assert plain.memory is None
    assert len(plain.timeline.memory) == 0
    assert metered.timeline.memory.resident_bytes.max() == metered.memory.peak_bytes(CPU)


@pytest.mark.parametrize("memory_bytes", [0, UNLIMITED])
def test_measured_rows_keep_issue_order_never_overlap_and_wait_for_what_they_need(memory_bytes):
    """Invariants 1 and 2 of a timeline; with one thread they hold over all streams together."""
    bound = bound_to(tiny_transformer)
    plan = plan_of(bound, policy_of(bound, SWAP, RECOMPUTE), memory_bytes)

    timeline = Executor(plan, bound).run().timeline

    start_s, end_s, dependencies = timeline.spans.start_s, timeline.spans.end_s, plan.tasks.dependencies
    assert timeline.source == "measured"
    assert timeline.plan_hash == plan.content_hash
    assert (end_s >= start_s).all()
    assert start_s[0] >= 0
    assert (start_s[1:] >= end_s[:-1]).all()
    assert len(dependencies.values)
    assert (start_s[dependencies.owners()] >= end_s[dependencies.values]).all()


def test_dropout_draws_anew_in_each_run():
    bound = bind(with_dropout)
    bound.step.optimizer.param_groups[0]["lr"] = 0.0
    executor = Executor(plan_of(bound, {}), bound)

    losses = {executor.run().loss.item() for _ in range(5)}

    assert len(losses) > 1
