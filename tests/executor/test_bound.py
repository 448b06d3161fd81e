"""Where the values of a step come from."""

import pytest
import torch
from small_plans import bind, bound_to, plan_of
from tiny_models import conv_net_with_bias, input_as_target, no_optimizer, sliced_tokens, tiny_resnet, tiny_transformer

from stepsim.executor import BoundProgram, Executor
from stepsim.workloads import Role


def storages(values: dict[int, torch.Tensor]) -> set[int]:
    return {value.untyped_storage().data_ptr() for value in values.values()}


@pytest.mark.parametrize("factory", [tiny_resnet, tiny_transformer, sliced_tokens, input_as_target, no_optimizer])
def test_every_tensor_from_outside_has_a_storage_of_its_own_of_the_captured_size(factory) -> None:
    bound = bound_to(factory)
    tensors, outside = bound.workload.tensors, set(range(len(bound.workload.tensors))) - set(bound.workload.producer)

    values = bound.values()

    assert values.keys() == outside
    assert len(storages(values)) == len(values)
    assert {t: value.untyped_storage().nbytes() for t, value in values.items()} == {
        t: tensors[t].size_bytes for t in outside
    }


def test_parameters_and_buffers_are_those_of_the_module_itself() -> None:
    bound = bound_to(tiny_resnet)
    module = bound.step.module

    values = bound.values()

    held = {**bound.program.parameters, **bound.program.buffers}
    real = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    assert {values[tensor].data_ptr() for tensor in held} == {value.data_ptr() for value in real.values()}


@pytest.mark.parametrize("factory", [sliced_tokens, input_as_target, conv_net_with_bias])
def test_inputs_are_copies_of_equal_values_and_layout(factory) -> None:
    bound = bound_to(factory)

    values = bound.values()

    for tensor, position in bound.program.inputs.items():
        given = bound.step.inputs[position]
        assert torch.equal(values[tensor], given)
        assert values[tensor].stride() == given.stride()
        assert values[tensor].data_ptr() != given.data_ptr()


def test_inputs_in_another_layout_take_the_layout_of_the_capture() -> None:
    bound = bound_to(conv_net_with_bias)
    images, target = bound.step.inputs
    other = images.to(memory_format=torch.channels_last)

    values = bound.values((other, target))

    (taken,) = (values[tensor] for tensor, position in bound.program.inputs.items() if position == 0)
    assert other.stride() != images.stride()
    assert taken.stride() == images.stride()
    assert torch.equal(taken, other)


def momenta(bound: BoundProgram) -> list[torch.Tensor]:
    return [state["momentum_buffer"] for state in bound.step.optimizer.state.values()]


def test_the_state_of_the_optimizer_is_made_of_zeros_once_and_is_its_own() -> None:
    bound = bind(conv_net_with_bias)
    wanted = [i for i, t in enumerate(bound.workload.tensors) if t.role is Role.OPTIMIZER_STATE]

    first, second = bound.values(), bound.values()

    assert [first[tensor].data_ptr() for tensor in wanted] == [second[tensor].data_ptr() for tensor in wanted]
    assert {first[tensor].data_ptr() for tensor in wanted} == {value.data_ptr() for value in momenta(bound)}
    assert not any(value.any() for value in momenta(bound))


def test_a_step_goes_on_from_the_momentum_that_plain_training_left() -> None:
    bound, plain = (bind(conv_net_with_bias) for _ in range(2))
    for trained in (bound, plain):
        trained.step.module(*trained.step.inputs).backward()
        trained.step.optimizer.step()
        trained.step.optimizer.zero_grad()

    Executor(plan_of(bound, {}), bound).run()

    plain.step.module(*plain.step.inputs).backward()
    plain.step.optimizer.step()
    assert all(map(torch.equal, bound.step.module.parameters(), plain.step.module.parameters()))
    assert all(map(torch.equal, momenta(bound), momenta(plain)))
