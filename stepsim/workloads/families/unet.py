"""U-Net (Ronneberger et al., "U-Net: Convolutional Networks for Biomedical Image Segmentation", MICCAI 2015).

Its convolutions are padded, so that no image is cropped.
"""

import torch
from torch import Tensor, nn

from stepsim.workloads.families import SEED
from stepsim.workloads.families.classifier import Classifier, ImageStep, conv_relu

LEVELS = 4
"""Times that the image is halved, and the channels doubled (figure 1)."""


def unet(batch: int, *, height: int = 416, width: int = 608, channels: int = 64, classes: int = 2) -> ImageStep:
    """A class for each pixel; ``channels`` are those of the first level, and the image a multiple of 16 each way.

    The size of the image is that of the evaluation of Jain et al., "Checkmate", MLSys 2020; momentum 0.99 is that of
    U-Net's own paper, section 3.
    """
    torch.manual_seed(SEED)
    module = Classifier(nn.Sequential(Unet(channels), nn.Conv2d(channels, classes, 1)))
    images, labels = torch.randn(batch, 3, height, width), torch.randint(classes, (batch, height, width))
    return module, (images, labels), torch.optim.SGD(module.parameters(), lr=0.01, momentum=0.99)


class Unet(nn.Module):
    """Down, across the bottom, and up again beside what came down."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        widths = [channels << level for level in range(LEVELS + 1)]
        inner = widths[:-1]
        self.down = nn.ModuleList(_twice(narrow, wide) for narrow, wide in zip([3, *inner], widths, strict=True))
        self.pool = nn.MaxPool2d(2)
        self.widen = nn.ModuleList(nn.ConvTranspose2d(2 * width, width, 2, 2) for width in inner)
        self.up = nn.ModuleList(_twice(2 * width, width) for width in inner)

    def forward(self, x: Tensor) -> Tensor:
        beside = []
        for twice in self.down[:-1]:
            beside.append(twice(x))
            x = self.pool(beside[-1])
        x = self.down[-1](x)
        for widen, twice, level in zip(self.widen[::-1], self.up[::-1], beside[::-1], strict=True):
            x = twice(torch.cat([level, widen(x)], 1))
        return x


def _twice(channels_in: int, channels: int) -> nn.Sequential:
    first = conv_relu(channels_in, channels, 3, padding=1)
    return nn.Sequential(first, conv_relu(channels, channels, 3, padding=1))
