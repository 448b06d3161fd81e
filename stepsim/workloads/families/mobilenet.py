"""MobileNet (Howard et al., "MobileNets: Efficient Convolutional Neural Networks for Mobile Vision", 2017)."""

from torch import nn

from stepsim.workloads.families.classifier import ImageStep, Mean, conv_norm_relu, image_step

STEM = 32
"""Channels of the first convolution (table 1)."""

BLOCKS = (
    (64, 1),
    (128, 2),
    (128, 1),
    (256, 2),
    (256, 1),
    (512, 2),
    *[(512, 1)] * 5,
    (1024, 2),
    (1024, 1),
)
"""Channels and stride of each depthwise separable convolution: table 1, but for its last stride of 2, which is 1 by the
sizes beside it."""


def mobilenet(batch: int, *, image: int = 224, shrink: int = 1, classes: int = 1000) -> ImageStep:
    """All channels are divided by ``shrink``."""
    return _mobilenet(batch, image, shrink, classes, stride=2)


def mobilenet_cifar(batch: int, *, shrink: int = 1) -> ImageStep:
    """For the images of 32 pixels of CIFAR-10: the first convolution keeps them whole."""
    return _mobilenet(batch, 32, shrink, 10, stride=1)


def _mobilenet(batch: int, image: int, shrink: int, classes: int, *, stride: int) -> ImageStep:
    def build() -> nn.Module:
        width = STEM // shrink
        layers: list[nn.Module] = [conv_norm_relu(3, width, 3, stride=stride, padding=1)]
        for channels, step in BLOCKS:
            layers.append(separable(width, channels // shrink, step))
            width = channels // shrink
        return nn.Sequential(*layers, Mean(), nn.Linear(width, classes))

    return image_step(build, batch, image=image, classes=classes)


def separable(channels_in: int, channels: int, stride: int) -> nn.Sequential:
    """3 x 3 within each channel, then 1 x 1 across them, each with batch norm and ReLU (figure 3)."""
    depthwise = conv_norm_relu(channels_in, channels_in, 3, stride=stride, padding=1, groups=channels_in)
    return nn.Sequential(depthwise, conv_norm_relu(channels_in, channels, 1))
