"""SqueezeNet (Iandola et al., "SqueezeNet: AlexNet-level accuracy with 50x fewer parameters", 2016), 1.0 and 1.1."""

from collections.abc import Callable, Collection

import torch
from torch import Tensor, nn

from stepsim.workloads.families.classifier import (
    ConvolutionLayer,
    ImageStep,
    Mean,
    conv_norm_relu,
    conv_relu,
    image_step,
)

SQUEEZED = (16, 16, 32, 32, 48, 48, 64, 64)
"""Channels of the squeeze layers of fire2 to fire9 (table 1); the expand layers have four times as many, twice."""

BYPASSED = (3, 5, 7, 9)
"""Fire modules with a bypass (figure 2, middle): those that give as many channels as they take."""


class Fire(nn.Module):
    """A 1 x 1 convolution, then 1 x 1 and 3 x 3 side by side; with ``bypass`` the input is added."""

    def __init__(self, channels_in: int, squeezed: int, layer: ConvolutionLayer, *, bypass: bool) -> None:
        super().__init__()
        expanded = 4 * squeezed
        self.squeeze = layer(channels_in, squeezed, 1)
        self.expand1 = layer(squeezed, expanded, 1)
        self.expand3 = layer(squeezed, expanded, 3, padding=1)
        self.bypass = bypass

    def forward(self, x: Tensor) -> Tensor:
        squeezed = self.squeeze(x)
        expanded = torch.cat([self.expand1(squeezed), self.expand3(squeezed)], 1)
        return expanded + x if self.bypass else expanded


def squeezenet(batch: int, *, image: int = 224, shrink: int = 1, classes: int = 1000) -> ImageStep:
    """Version 1.0 (table 1). All channels are divided by ``shrink``."""
    return _squeezenet(batch, image, shrink, classes, stem=(96, 7), pooled={5, 9})


def squeezenet11(batch: int, *, image: int = 224, shrink: int = 1, classes: int = 1000) -> ImageStep:
    """Version 1.1, of the authors' repository: a smaller first convolution, and the pools come earlier."""
    return _squeezenet(batch, image, shrink, classes, stem=(64, 3), pooled={4, 6})


def _squeezenet(
    batch: int, image: int, shrink: int, classes: int, *, stem: tuple[int, int], pooled: Collection[int]
) -> ImageStep:
    """``stem`` are channels and kernel of the first convolution."""

    def build() -> nn.Module:
        width, kernel = stem[0] // shrink, stem[1]
        fires = _fires(width, shrink, pooled, conv_relu, _large_pool)
        head = (nn.Dropout(), *_head(shrink, classes))
        return nn.Sequential(conv_relu(3, width, kernel, stride=2), _large_pool(), *fires, *head)

    return image_step(build, batch, image=image, classes=classes)


def squeezenet_cifar(batch: int, *, shrink: int = 1) -> ImageStep:
    """For the images of 32 pixels of CIFAR-10: 1.0 with a 3 x 3 stem, batch norm, bypasses, and pools of two."""

    def build() -> nn.Module:
        width = 96 // shrink
        fires = _fires(width, shrink, {5, 9}, conv_norm_relu, _small_pool, BYPASSED)
        return nn.Sequential(conv_norm_relu(3, width, 3, padding=1), _small_pool(), *fires, *_head(shrink, 10))

    return image_step(build, batch, image=32, classes=10)


def _fires(
    width: int,
    shrink: int,
    pooled: Collection[int],
    layer: ConvolutionLayer,
    pool: Callable[[], nn.Module],
    bypassed: Collection[int] = (),
) -> list[nn.Module]:
    """fire2 to fire9, with a pool ahead of those in ``pooled``."""
    layers: list[nn.Module] = []
    for number, channels in enumerate(SQUEEZED, start=2):
        if number in pooled:
            layers.append(pool())
        squeezed = channels // shrink
        layers.append(Fire(width, squeezed, layer, bypass=number in bypassed))
        width = 8 * squeezed
    return layers


def _large_pool() -> nn.Module:
    return nn.MaxPool2d(3, 2, ceil_mode=True)


def _small_pool() -> nn.Module:
    return nn.MaxPool2d(2)


def _head(shrink: int, classes: int) -> list[nn.Module]:
    return [conv_relu(512 // shrink, classes, 1), Mean()]
