"""The workloads that ship: what is in them, and that they are what a capture gives today."""

from pathlib import Path

import pytest
import torch

from experiments.ship_workloads import captured
from stepsim import load_workload
from stepsim.errors import FileError, WorkloadError
from stepsim.executor import BoundProgram, Executor
from stepsim.machines import this_cpu
from stepsim.memory import memory_profile
from stepsim.strategies.memory.lowering import computing_device, plan_for_policy
from stepsim.workloads import Phase, Role, Workload
from stepsim.workloads.capture import capture
from stepsim.workloads.factory import load_factory
from stepsim.workloads.shipped import CAPTURED_WITH, FOLDER, SHIPPED, path_of
from stepsim.workloads.storage import concat_as_view, every_output_kept, norm_and_relu_merged, saved_bytes

LARGEST_BYTES = 1_500_000
"""Of all files together: they are in every checkout."""

same_torch = pytest.mark.skipif(
    not torch.__version__.startswith(f"{CAPTURED_WITH}."), reason=f"captured with torch {CAPTURED_WITH}"
)


def image_bytes(channels_and_sides: list[tuple[int, int, int]]) -> int:
    """Of float32 values, given as how many images of how many channels and pixels a side."""
    return 4 * sum(number * channels * side**2 for number, channels, side in channels_and_sides)


FEATURE_MAPS = {
    "vgg16_cifar": [(6, 64, 32), (6, 128, 16), (9, 256, 8), (9, 512, 4), (9, 512, 2)],
    "plain20_cifar": [(21, 64, 32), (18, 128, 16), (18, 256, 8)],
    "resnet18_cifar": [(3 + 14, 64, 32), (16, 128, 16), (16, 256, 8), (16, 512, 4)],
    "mobilenet_cifar": [
        (6, 32, 32),
        (3, 64, 32),
        *[(3, 64, 16), (9, 128, 16)],
        *[(3, 128, 8), (9, 256, 8)],
        *[(3, 256, 4), (33, 512, 4)],
        *[(3, 512, 2), (9, 1024, 2)],
    ],
}
"""Outputs of convolutions, batch norms, ReLUs and sums, counted on paper: three for each convolution, and one more for
each bypass. A convolution of the shortcut of ResNet has two: there is no ReLU of its own.
"""

POOLED = {"vgg16_cifar": [(3, 64, 16), (3, 128, 8), (3, 256, 4), (3, 512, 2), (3, 512, 1)]}
"""A pool gives its maxima, and where they were in 8 bytes each."""

MEAN_CHANNELS = {"plain20_cifar": 256, "resnet18_cifar": 512, "mobilenet_cifar": 1024}


def a_sample(name: str, mode: object = lambda workload: workload) -> float:
    """Bytes that one more sample keeps between forward and backward."""
    small, large = (saved_bytes(mode(load_workload(name).at_batch(batch))) for batch in (4, 5))
    return large - small


def test_there_is_a_file_for_each_name_and_all_together_are_small() -> None:
    files = {path.name for path in FOLDER.glob("*.json.gz")}

    assert files == {path_of(name).name for name in SHIPPED}
    assert sum(path_of(name).stat().st_size for name in SHIPPED) < LARGEST_BYTES


@pytest.mark.parametrize("name", SHIPPED)
def test_a_shipped_workload_is_a_whole_step_that_serves_any_batch(name: str) -> None:
    workload = load_workload(name)
    parameters = [index for index, tensor in enumerate(workload.tensors) if tensor.role is Role.PARAMETER]

    larger = workload.at_batch(7 * workload.batch)

    assert workload.name == name
    assert {op.phase for op in workload.ops} == set(Phase)
    assert sorted(workload.gradients) == parameters
    assert larger.flop == pytest.approx(7 * workload.flop, rel=0.01)
    assert a_sample(name) > 0


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("alexnet", 61_100_840),
        ("vgg16", 138_357_544),
        ("resnet50", 25_557_032),
        ("resnet152", 60_192_808),
        ("inception3", 23_834_568),
        ("bert_base", 109_514_298),
        ("gpt2", 124_439_808),
    ],
)
def test_a_shipped_workload_has_the_parameters_of_its_model_as_float32(name: str, parameters: int) -> None:
    tensors = load_workload(name).tensors

    assert sum(tensor.size_bytes for tensor in tensors if tensor.role is Role.PARAMETER) == 4 * parameters


@pytest.mark.parametrize(("name", "states"), [("alexnet", 1), ("inception3", 1), ("bert_base", 2), ("gpt2", 2)])
def test_momentum_has_one_state_for_each_parameter_and_adam_two(name: str, states: int) -> None:
    """Adam's counts of steps, 4 bytes a parameter tensor, hardly weigh."""
    tensors = load_workload(name).tensors

    sizes = {
        role: sum(t.size_bytes for t in tensors if t.role is role) for role in (Role.PARAMETER, Role.OPTIMIZER_STATE)
    }

    assert sizes[Role.OPTIMIZER_STATE] / sizes[Role.PARAMETER] == pytest.approx(states, rel=1e-5)


@pytest.mark.parametrize("name", FEATURE_MAPS)
def test_every_output_of_a_sample_is_what_the_layers_give_on_paper(name: str) -> None:
    """Beside the layers: the mean over the pixels, ten scores, and ten logarithms of probabilities."""
    layers = image_bytes(FEATURE_MAPS[name]) + image_bytes(POOLED.get(name, []))

    rest = 4 * (MEAN_CHANNELS.get(name, 0) + 10 + 10)
    assert a_sample(name, every_output_kept) == layers + rest


@pytest.mark.parametrize("name", [name for name in FEATURE_MAPS if name != "resnet18_cifar"])
def test_autograd_saves_two_of_three_outputs_of_a_convolution_with_norm_and_relu(name: str) -> None:
    """The norm needs what the convolution gave, ReLU what it gave itself. The last layer needs the mean; the scores
    themselves are gone, their logarithms are not.
    """
    layers = image_bytes(FEATURE_MAPS[name]) * 2 // 3 + image_bytes(POOLED.get(name, []))

    assert a_sample(name) == layers + 4 * (MEAN_CHANNELS.get(name, 0) + 10)


def test_a_fused_norm_and_relu_and_concatenation_in_place_spare_a_third_of_inception() -> None:
    """130 and 84 MB a sample, of which 5.7 MB are the places of pooled maxima; without the image itself."""
    every = a_sample("inception3", every_output_kept)
    fused = a_sample("inception3", lambda workload: every_output_kept(concat_as_view(norm_and_relu_merged(workload))))

    assert every / 1e6 == pytest.approx(134.8, abs=0.1)
    assert fused / 1e6 == pytest.approx(88.3, abs=0.1)


@same_torch
@pytest.mark.parametrize("name", ["alexnet", "vgg16_cifar"])
def test_a_fresh_capture_is_what_ships(name: str) -> None:
    """Of all of them: ``python -m experiments.ship_workloads`` changes no file."""
    fresh, shipped = captured(name), load_workload(name)

    assert fresh == shipped
    assert fresh.graph_hash == shipped.graph_hash


@same_torch
def test_at_another_batch_it_is_the_capture_there() -> None:
    there = capture(load_factory(SHIPPED["vgg16_cifar"].factory), 48, "vgg16_cifar").workload

    assert load_workload("vgg16_cifar").at_batch(48).graph_hash == there.graph_hash


@same_torch
def test_a_plan_of_a_shipped_workload_runs_on_what_its_factory_makes() -> None:
    """At a batch that nobody captured, in the bytes that were predicted."""
    machine, factory = this_cpu(), load_factory(SHIPPED["vgg16_cifar"].factory)
    plan = plan_for_policy(load_workload("vgg16_cifar").at_batch(3), machine, {}, 10**15)
    cpu = computing_device(machine)

    execution = Executor(plan, BoundProgram.of(factory, 3, "vgg16_cifar")).run(metered=True)

    assert execution.memory.peak_bytes(cpu) == memory_profile(plan).peak_bytes(cpu)
    assert len(execution.gradients) == len(load_workload("vgg16_cifar").gradients)


def test_a_file_goes_before_a_shipped_workload_of_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    load_workload("alexnet").at_batch(9).save("vgg16")

    found = load_workload("vgg16")

    assert (found.name, found.batch) == ("alexnet", 9)
    assert load_workload("resnet50").name == "resnet50"


def test_an_unknown_name_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(WorkloadError, match=r"unknown workload 'vgg11'; known: alexnet, .*, or a file"):
        load_workload("vgg11")


@pytest.mark.parametrize("path", ["missing.json", "here/vgg16"])
def test_a_file_that_is_not_there_is_told_as_a_file(path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    with pytest.raises(FileError, match="cannot be read"):
        load_workload(path)


def test_a_loaded_workload_can_be_told_from_its_neighbours() -> None:
    hashes = {load_workload(name).graph_hash for name in SHIPPED}

    assert len(hashes) == len(SHIPPED)
    assert all(isinstance(load_workload(name), Workload) for name in ("alexnet", Path("alexnet")))
