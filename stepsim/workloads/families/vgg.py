"""VGG (Simonyan & Zisserman, "Very Deep Convolutional Networks for Large-Scale Image Recognition", ICLR 2015)."""

from collections.abc import Sequence

from torch import nn

from stepsim.workloads.families.classifier import ConvolutionLayer, ImageStep, conv_norm_relu, conv_relu, image_step

Stages = Sequence[tuple[int, int]]
"""Channels and convolutions of each stage."""

VGG16 = ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3))
VGG19 = ((64, 2), (128, 2), (256, 4), (512, 4), (512, 4))
"""Configurations D and E of table 1."""


def vgg16(
    batch: int,
    *,
    stages: Stages = VGG16,
    image: int = 224,
    shrink: int = 1,
    hidden: int = 4096,
    classes: int = 1000,
) -> ImageStep:
    """On images of ``image`` pixels a side, a multiple of 32; all channels are divided by ``shrink``."""

    def build() -> nn.Module:
        flat = 512 // shrink * (image // 32) ** 2
        layers = (_stages(stages, shrink, conv_relu), nn.Flatten(), *_hidden(flat, hidden))
        return nn.Sequential(*layers, nn.Linear(hidden, classes))

    return image_step(build, batch, image=image, classes=classes)


def vgg19(batch: int) -> ImageStep:
    return vgg16(batch, stages=VGG19)


def vgg16_cifar(batch: int, *, shrink: int = 1) -> ImageStep:
    """For the images of 32 pixels of CIFAR-10: batch norm behind each convolution, and a single linear layer."""

    def build() -> nn.Module:
        return nn.Sequential(_stages(VGG16, shrink, conv_norm_relu), nn.Flatten(), nn.Linear(512 // shrink, 10))

    return image_step(build, batch, image=32, classes=10)


def _stages(stages: Stages, shrink: int, layer: ConvolutionLayer) -> nn.Sequential:
    """Stages of 3 x 3 convolutions, each of which ends in half the image."""
    layers: list[nn.Module] = []
    width = 3
    for channels, number in stages:
        for _ in range(number):
            layers.append(layer(width, channels // shrink, 3, padding=1))
            width = channels // shrink
        layers.append(nn.MaxPool2d(2))
    return nn.Sequential(*layers)


def _hidden(flat: int, hidden: int) -> list[nn.Module]:
    """Two layers with dropout behind each (section 3.1)."""
    layers: list[nn.Module] = []
    for width in (flat, hidden):
        layers += [nn.Linear(width, hidden), nn.ReLU(), nn.Dropout()]
    return layers
