"""Residual networks (He et al., "Deep Residual Learning for Image Recognition", CVPR 2016), and the plain one of HOME.

A block that halves the image does so in its 3 x 3 convolution, as residual networks are trained today; the paper has it
in the 1 x 1 convolution before.
"""

from collections.abc import Callable, Sequence

from torch import Tensor, nn

from stepsim.workloads.families.classifier import ImageStep, Mean, conv_norm_relu, image_step

Block = Callable[[int, int, int], nn.Module]
"""From channels in, width and stride to a block."""


class Residual(nn.Module):
    """``branch`` beside its input, which a 1 x 1 convolution fits where the shape changes; then ReLU."""

    def __init__(self, branch: nn.Module, channels_in: int, channels: int, stride: int) -> None:
        super().__init__()
        self.branch = branch
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or channels_in != channels:
            convolution = nn.Conv2d(channels_in, channels, 1, stride, bias=False)
            self.shortcut = nn.Sequential(convolution, nn.BatchNorm2d(channels))
        self.relu = nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        summed: Tensor = self.relu(self.branch(x) + self.shortcut(x))
        return summed


def basic_block(channels_in: int, width: int, stride: int) -> Residual:
    """Two 3 x 3 convolutions (figure 5, left)."""
    branch = nn.Sequential(
        conv_norm_relu(channels_in, width, 3, stride=stride, padding=1),
        nn.Conv2d(width, width, 3, padding=1, bias=False),
        nn.BatchNorm2d(width),
    )
    return Residual(branch, channels_in, width, stride)


WIDENED = 4
"""A bottleneck gives so many times the channels that it computes on (figure 5, right)."""


def bottleneck(channels_in: int, width: int, stride: int) -> Residual:
    branch = nn.Sequential(
        conv_norm_relu(channels_in, width, 1),
        conv_norm_relu(width, width, 3, stride=stride, padding=1),
        nn.Conv2d(width, WIDENED * width, 1, bias=False),
        nn.BatchNorm2d(WIDENED * width),
    )
    return Residual(branch, channels_in, WIDENED * width, stride)


def resnet50(
    batch: int, *, image: int = 224, width: int = 64, blocks: Sequence[int] = (3, 4, 6, 3), classes: int = 1000
) -> ImageStep:
    """``width`` is that of the first stage, ``blocks`` the number of bottlenecks in each stage (table 1)."""

    def build() -> nn.Module:
        stem = (conv_norm_relu(3, width, 7, stride=2, padding=3), nn.MaxPool2d(3, 2, padding=1))
        stages = _stages(bottleneck, width, width, blocks, WIDENED)
        return nn.Sequential(*stem, stages, Mean(), nn.Linear(WIDENED * width * 2 ** (len(blocks) - 1), classes))

    return image_step(build, batch, image=image, classes=classes)


def resnet152(batch: int) -> ImageStep:
    return resnet50(batch, blocks=(3, 8, 36, 3))


def resnet18_cifar(batch: int, *, width: int = 64, blocks: Sequence[int] = (2, 2, 2, 2)) -> ImageStep:
    """ResNet-18 for images of 32 pixels: its stem is a 3 x 3 convolution that keeps them whole."""

    def build() -> nn.Module:
        stem = conv_norm_relu(3, width, 3, padding=1)
        stages = _stages(basic_block, width, width, blocks, 1)
        return nn.Sequential(stem, stages, Mean(), nn.Linear(width * 2 ** (len(blocks) - 1), 10))

    return image_step(build, batch, image=32, classes=10)


def plain20_cifar(batch: int, *, width: int = 64, layers: int = 6) -> ImageStep:
    """The plain network of 20 layers (section 4.2), four times as wide: three stages of ``layers`` convolutions."""

    def build() -> nn.Module:
        stem = conv_norm_relu(3, width, 3, padding=1)
        stages = _stages(_plain, width, width, (layers, layers, layers), 1)
        return nn.Sequential(stem, stages, Mean(), nn.Linear(4 * width, 10))

    return image_step(build, batch, image=32, classes=10)


def _plain(channels_in: int, width: int, stride: int) -> nn.Module:
    return conv_norm_relu(channels_in, width, 3, stride=stride, padding=1)


def _stages(block: Block, channels: int, width: int, blocks: Sequence[int], widened: int) -> nn.Sequential:
    """Each stage but the first halves the image and doubles the width, both in its first block."""
    stages = []
    for stage, number in enumerate(blocks):
        for place in range(number):
            stride = 2 if stage and place == 0 else 1
            stages.append(block(channels, width << stage, stride))
            channels = widened * (width << stage)
    return nn.Sequential(*stages)
