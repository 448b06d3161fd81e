"""Which devices there are, and what moves there."""

import pytest
import torch
from small_plans import bind
from tiny_models import Made, conv_net_with_bias
from torch import nn

from stepsim.errors import MachineError
from stepsim.executor import BoundProgram, find_device, machine_of
from stepsim.executor.devices import device_name, devices_here, lanes_of, placed
from stepsim.executor.lanes import CpuLanes
from stepsim.machines import DeviceKind, this_cpu
from stepsim.workloads.factory import Step

NOT_HERE = [
    "cuda:99",
    "cuda:-1",
    "cuda:00",
    "cuda:",
    "cuda:x",
    "cpu:",
    "cpu:1",
    "cpu0",
    "gpu0",
    "meta",
    "mps",
    "",
    "CPU",
]


def test_the_cpu_is_always_here_with_lanes_a_name_and_a_machine() -> None:
    cpu = find_device("cpu")

    assert cpu == torch.device("cpu")
    assert "cpu" in devices_here()
    assert isinstance(lanes_of(cpu), CpuLanes)
    assert device_name(cpu) == "cpu0"
    assert machine_of(cpu) == this_cpu()


@pytest.mark.parametrize("name", NOT_HERE)
def test_a_device_that_is_not_here_is_refused_with_those_that_are(name: str) -> None:
    with pytest.raises(MachineError) as caught:
        find_device(name)

    assert str(caught.value) == f"device {name!r} is not here; there is {', '.join(devices_here())}"


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
@pytest.mark.parametrize("name", ["cuda", "cuda:0"])
def test_without_a_gpu_the_first_one_is_refused(name: str) -> None:
    with pytest.raises(MachineError, match=r"is not here; there is cpu$"):
        find_device(name)


def test_a_missing_device_is_told_before_anything_is_built() -> None:
    def never(batch: int) -> Made:
        raise AssertionError("was built")

    with pytest.raises(MachineError, match="cuda:99"):
        BoundProgram.of(never, 2, "never", "cuda:99")


def test_a_bound_program_is_where_its_parameters_are() -> None:
    assert bind(conv_net_with_bias).device == torch.device("cpu")


class Scaled(nn.Module):
    """A parameter, a buffer, and a plain tensor that torch does not move."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(2, 2)
        self.register_buffer("mean", torch.zeros(2))
        self.scale = torch.ones(2)


def test_a_step_moves_with_plain_attributes_and_nested_inputs_and_what_is_no_tensor_stays() -> None:
    """To the meta device, which is there on every machine."""
    module, there = Scaled(), torch.device("meta")

    step = placed(Step(module, (torch.ones(2), {"more": [torch.ones(1), 3]}), None), there)

    assert step.module is module
    tensors = [*module.parameters(), *module.buffers(), module.scale, step.inputs[0], step.inputs[1]["more"][0]]
    assert {tensor.device for tensor in tensors} == {there}
    assert step.inputs[1]["more"][1] == 3


def test_a_step_that_is_there_already_keeps_its_tensors_and_the_state_of_its_optimizer() -> None:
    module, inputs, optimizer = conv_net_with_bias(2)
    module(*inputs).backward()
    optimizer.step()
    before = [*module.parameters(), *inputs, *(state["momentum_buffer"] for state in optimizer.state.values())]

    step = placed(Step(module, inputs, optimizer), torch.device("cpu"))

    momenta = [step.optimizer.state[weight]["momentum_buffer"] for weight in module.parameters()]
    after = [*step.module.parameters(), *step.inputs, *momenta]
    assert len(before) == len(after) > 0
    assert all(map(torch.equal, before, after))
    assert [weight.data_ptr() for weight in module.parameters()] == [
        tensor.data_ptr() for tensor in before[: len(momenta)]
    ]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_the_machine_of_a_gpu_has_that_gpu_and_a_host_to_swap_to() -> None:
    machine = machine_of(find_device("cuda:0"))

    gpu = machine.device("gpu0")
    assert gpu.kind is DeviceKind.GPU
    assert gpu.memory_bytes == torch.cuda.get_device_properties(0).total_memory
    assert machine.route("gpu0", "host") != machine.route("host", "gpu0")
