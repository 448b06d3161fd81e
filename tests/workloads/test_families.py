"""The models of the literature: as large as published, and captured op for op as eager PyTorch runs them."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch

from stepsim.executor import BoundProgram, Executor
from stepsim.executor.eager import eager_step
from stepsim.machines import this_cpu
from stepsim.memory import memory_profile
from stepsim.plan import Plan
from stepsim.strategies.memory.lowering import computing_device, plan_for_policy
from stepsim.workloads.families.alexnet import alexnet
from stepsim.workloads.families.bert import BASE, bert_base
from stepsim.workloads.families.classifier import Mean
from stepsim.workloads.families.googlenet import googlenet
from stepsim.workloads.families.gpt import SMALL, gpt2
from stepsim.workloads.families.inception import MODULES, inception3
from stepsim.workloads.families.mobilenet import mobilenet, mobilenet_cifar
from stepsim.workloads.families.resnet import plain20_cifar, resnet18_cifar, resnet50, resnet152
from stepsim.workloads.families.squeezenet import squeezenet, squeezenet11, squeezenet_cifar
from stepsim.workloads.families.unet import unet
from stepsim.workloads.families.vgg import vgg16, vgg16_cifar, vgg19

UNLIMITED_BYTES = 10**15

TINY = {"layers": 1, "width": 12, "heads": 3, "wide": 20, "vocabulary": 30, "positions": 8}

SOME_MODULES = tuple(MODULES[number] for number in (0, 8, 9))

TWO_WIDTHS = ((64, 96, 128, 16, 32, 32), (128, 128, 192, 32, 96, 64))

SMALL_ONES = {
    "vgg16": partial(vgg16, image=32, shrink=16, hidden=16, classes=4),
    "vgg16_cifar": partial(vgg16_cifar, shrink=16),
    "alexnet": partial(alexnet, image=64, shrink=16, hidden=16, classes=4),
    "resnet50": partial(resnet50, image=32, width=4, blocks=(2, 1), classes=4),
    "resnet18_cifar": partial(resnet18_cifar, width=4, blocks=(1, 1)),
    "plain20_cifar": partial(plain20_cifar, width=4, layers=1),
    "mobilenet_cifar": partial(mobilenet_cifar, shrink=16),
    "squeezenet": partial(squeezenet, image=64, shrink=8, classes=4),
    "squeezenet_cifar": partial(squeezenet_cifar, shrink=8),
    "googlenet": partial(googlenet, image=32, shrink=8, modules=(TWO_WIDTHS,), classes=4),
    "unet": partial(unet, height=16, width=32, channels=2),
    "inception3": partial(inception3, image=75, shrink=16, modules=SOME_MODULES, classes=4),
    "bert_base": partial(bert_base, length=6, size=replace(BASE, **TINY)),
    "gpt2": partial(gpt2, length=6, size=replace(SMALL, **TINY)),
}


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """Small ops on one thread each: as fast as on several, and steady when the other cores are busy."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def on_paper(factory: Any) -> tuple[Any, Any]:
    """Module and inputs without their values."""
    with torch.device("meta"):
        module, inputs, _ = factory(2)
    return module, inputs


def bind(factory: Any) -> BoundProgram:
    return BoundProgram.of(factory, 2, "small")


def keep_all(bound: BoundProgram) -> Plan:
    return plan_for_policy(bound.workload, this_cpu(), {}, UNLIMITED_BYTES)


@pytest.mark.parametrize(
    ("factory", "parameters"),
    [
        (alexnet, 61_100_840),
        (vgg16, 138_357_544),
        (resnet50, 25_557_032),
        (resnet152, 60_192_808),
        (inception3, 23_834_568),
        (googlenet, 6_998_552),
        (vgg19, 143_667_240),
        (mobilenet, 4_231_976),
        (squeezenet, 1_248_424),
        (squeezenet11, 1_235_496),
    ],
)
def test_a_classifier_has_the_parameters_of_the_published_one_and_gives_a_score_for_each_class(
    factory: Any, parameters: int
) -> None:
    """The numbers are those of torchvision, where it has the model; of MobileNet, those of Keras without its running
    statistics: 4,253,864 - 2 x 10,944. Inception v3 is without its auxiliary classifier of 3,326,696, and GoogLeNet
    without its two.
    """
    module, (images, labels) = on_paper(factory)

    scores = module.layers(images)

    assert sum(parameter.numel() for parameter in module.parameters()) == parameters
    assert scores.shape == (2, 1000)
    assert module(images, labels).shape == ()


@pytest.mark.parametrize(
    ("factory", "trunk"),
    [
        (vgg16_cifar, 9 * (3 * 64 + 64**2 + 64 * 128 + 128**2 + 128 * 256 + 2 * 256**2 + 256 * 512 + 5 * 512**2)),
        (plain20_cifar, 9 * (3 * 64 + 6 * 64**2 + 64 * 128 + 5 * 128**2 + 128 * 256 + 5 * 256**2)),
    ],
)
def test_a_network_of_three_by_three_convolutions_has_nine_weights_for_each_pair_of_channels(
    factory: Any, trunk: int
) -> None:
    module, (images, _) = on_paper(factory)

    weights = [parameter for parameter in module.parameters() if parameter.dim() == 4]

    assert sum(weight.numel() for weight in weights) == trunk
    assert module.layers(images).shape == (2, 10)


@pytest.mark.parametrize(
    ("factory", "pixels"),
    [
        (resnet50, 7),
        (resnet18_cifar, 4),
        (plain20_cifar, 8),
        (mobilenet, 7),
        (mobilenet_cifar, 2),
        (squeezenet, 13),
        (squeezenet_cifar, 4),
        (inception3, 8),
        (googlenet, 7),
    ],
)
def test_the_mean_is_over_the_pixels_that_are_left_at_the_end(factory: Any, pixels: int) -> None:
    module, (images, _) = on_paper(factory)
    (mean,) = (layer for layer in module.modules() if isinstance(layer, Mean))
    seen: list[torch.Size] = []
    mean.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0].shape[2:]))

    module.layers(images)

    assert seen == [(pixels, pixels)]


def test_a_unet_has_the_weights_of_its_levels_and_a_score_for_each_class_at_each_pixel() -> None:
    """Two convolutions of 9 weights a pair of channels on each level down and up, 4 weights a pair to widen, biases,
    and the last one of 1 x 1.
    """
    down = [(3, 64), (64, 128), (128, 256), (256, 512), (512, 1024)]
    up = [(1024, 512), (512, 256), (256, 128), (128, 64)]
    twice = sum(9 * (narrow * wide + wide * wide) + 2 * wide for narrow, wide in down + up)
    widen = sum(4 * wide * narrow + narrow for wide, narrow in up)
    module, (images, labels) = on_paper(unet)

    scores = module.layers(images)

    assert sum(parameter.numel() for parameter in module.parameters()) == twice + widen + 2 * 64 + 2
    assert scores.shape == (2, 2, *labels.shape[1:])
    assert module(images, labels).shape == ()


@pytest.mark.parametrize(
    ("factory", "words", "positions"), [(bert_base, 30522, 512 + 2), (gpt2, 50257, 1024)], ids=["bert", "gpt"]
)
def test_a_transformer_has_the_parameters_of_the_closed_form(factory: Any, words: int, positions: int) -> None:
    """With V words, P positions (and kinds of BERT's) and 12 layers of width h it has ``(V + P) h`` for them,
    ``12 h^2 + 13 h`` for each layer, and two norms of ``2 h``, of which GPT has one; BERT's head has ``h^2 + h`` for
    its transform and V for its bias, and what GPT's head multiplies with are its words.
    """
    h, layers = 768, 12

    module, _ = on_paper(factory)

    head = h * h + h + 2 * h + words if factory is bert_base else 0
    expected = (words + positions) * h + layers * (12 * h * h + 13 * h) + 2 * h + head
    assert sum(parameter.numel() for parameter in module.parameters()) == expected
    assert expected == {bert_base: 109_514_298, gpt2: 124_439_808}[factory]


@pytest.mark.parametrize("factory", SMALL_ONES.values(), ids=SMALL_ONES.keys())
def test_a_small_one_gives_the_gradients_of_eager_pytorch_and_takes_the_bytes_that_were_predicted(factory: Any) -> None:
    bound = bind(factory)
    plan, cpu = keep_all(bound), computing_device(this_cpu())
    reference = eager_step(bound)

    execution = Executor(plan, bound).run(metered=True)

    assert torch.equal(execution.loss, reference.loss)
    assert execution.gradients.keys() == reference.gradients.keys()
    assert [
        name for name, ours in execution.gradients.items() if not torch.equal(ours, reference.gradients[name])
    ] == []
    assert execution.memory.peak_bytes(cpu) == memory_profile(plan).peak_bytes(cpu)
