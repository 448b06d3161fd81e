"""GoogLeNet (Szegedy et al., "Going Deeper with Convolutions", CVPR 2015): the main branch, trained by itself.

Without local response normalisation and without the two auxiliary classifiers.
"""

from collections.abc import Sequence

from torch import nn

from stepsim.workloads.families.classifier import ImageStep, Mean, SideBySide, conv_relu, image_step

Widths = tuple[int, int, int, int, int, int]
"""Columns of table 1: 1 x 1; 3 x 3 reduced, 3 x 3; 5 x 5 reduced, 5 x 5; behind the pool."""

Modules = Sequence[Sequence[Widths]]

MODULES: Modules = (
    ((64, 96, 128, 16, 32, 32), (128, 128, 192, 32, 96, 64)),
    (
        (192, 96, 208, 16, 48, 64),
        (160, 112, 224, 24, 64, 64),
        (128, 128, 256, 24, 64, 64),
        (112, 144, 288, 32, 64, 64),
        (256, 160, 320, 32, 128, 128),
    ),
    ((256, 160, 320, 32, 128, 128), (384, 192, 384, 48, 128, 128)),
)
"""The Inception modules between pools (table 1)."""


def googlenet(
    batch: int, *, image: int = 224, shrink: int = 1, modules: Modules = MODULES, classes: int = 1000
) -> ImageStep:
    """All channels are divided by ``shrink``."""

    def build() -> nn.Module:
        narrow, width = 64 // shrink, 192 // shrink
        layers = [conv_relu(3, narrow, 7, stride=2, padding=3), _pool(), conv_relu(narrow, narrow, 1)]
        layers.append(conv_relu(narrow, width, 3, padding=1))
        for between_pools in modules:
            layers.append(_pool())
            for widths in between_pools:
                layers.append(_module(width, widths, shrink))
                width = sum(widths[place] // shrink for place in (0, 2, 4, 5))
        return nn.Sequential(*layers, Mean(), nn.Dropout(0.4), nn.Linear(width, classes))

    return image_step(build, batch, image=image, classes=classes)


def _module(channels_in: int, widths: Widths, shrink: int) -> nn.Module:
    """Figure 2b."""
    one, reduced3, three, reduced5, five, pooled = (width // shrink for width in widths)
    return SideBySide(
        [
            conv_relu(channels_in, one, 1),
            nn.Sequential(conv_relu(channels_in, reduced3, 1), conv_relu(reduced3, three, 3, padding=1)),
            nn.Sequential(conv_relu(channels_in, reduced5, 1), conv_relu(reduced5, five, 5, padding=2)),
            nn.Sequential(nn.MaxPool2d(3, 1, padding=1), conv_relu(channels_in, pooled, 1)),
        ]
    )


def _pool() -> nn.Module:
    return nn.MaxPool2d(3, 2, ceil_mode=True)
