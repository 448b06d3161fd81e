"""The setting of all experiments on HOME, fixed before any of their results was looked at.

The paper does not say which variants of the models it trained; those here fit its batches and memory (papers on CIFAR
use them). Constants that it does not give are fitted on `FITTED_ON` alone, by `experiments.home_fit`, and then tested
on `TESTED_ON`. Which three: MobileNet, because no other model has depthwise convolutions, VGG16 and Plain20, so that
the models that branch are all left for the test.
"""

from collections.abc import Mapping
from functools import cache

from stepsim.workloads import Workload
from stepsim.workloads.shipped import load_workload
from stepsim.workloads.storage import (
    concat_as_view,
    every_output_kept,
    max_pool_without_indices,
    norm_and_relu_merged,
)

MACHINE = "rtx_2080_ti"

WORKLOADS: Mapping[str, str] = {
    "mobilenet": "mobilenet_cifar",
    "squeezenet": "squeezenet_cifar",
    "plain20": "plain20_cifar",
    "vgg16": "vgg16_cifar",
    "resnet": "resnet18_cifar",
    "inception_v3": "inception3",
}
"""Shipped workload by the model's name in `experiments.home_paper`."""

FITTED_ON = ("mobilenet", "vgg16", "plain20")
TESTED_ON = ("squeezenet", "resnet", "inception_v3")

MERGED = ("inception_v3",)
"""Models whose batch norm and ReLU share a storage, and whose concatenations are views: with every output of an op
apart Inception v3 would not reach the batches of the paper at all."""


@cache
def captured(model: str) -> Workload:
    return load_workload(WORKLOADS[model])


def step(model: str, batch: int, *, all_outputs: bool = True) -> Workload:
    """One step of ``model``: every output that a module of it has is kept, or only what autograd saves.

    The places of the largest values in max pooling are no output of a module: they are left out of the former, which
    then has the bytes a sample by which the variants of the models were told (VGG16 3.4 MB, SqueezeNet 5.9).
    """
    workload = captured(model).at_batch(batch)
    if model in MERGED:
        workload = concat_as_view(norm_and_relu_merged(workload))
    return every_output_kept(max_pool_without_indices(workload)) if all_outputs else workload
