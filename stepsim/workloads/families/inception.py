"""Inception v3 (Szegedy et al., "Rethinking the Inception Architecture for Computer Vision", CVPR 2016).

Layer by layer as in the code that its authors released ("slim" models of TensorFlow), without the auxiliary classifier.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from torch import nn

from stepsim.workloads.families.classifier import ImageStep, Mean, SideBySide, conv_norm_relu, image_step

Convolution = tuple[int, tuple[int, int] | int | str]
"""Channels and kernel; the kernel ``FORK`` is 1 x 3 and 3 x 1 side by side, with so many channels each."""

FORK = "1 x 3 | 3 x 1"

EPSILON = 1e-3
"""Of batch norm, as released."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mixed:
    """A module: chains of convolutions side by side, and a pool followed by a 1 x 1 convolution of ``pooled`` channels.

    One that ``halves`` the image does so in the last convolution of each chain and in its pool, which is a maximum and
    has no convolution behind it.
    """

    chains: tuple[tuple[Convolution, ...], ...]
    pooled: int = 0
    halves: bool = False


def _fine(pooled: int) -> Mixed:
    """Figures 4 and 5: a chain with 5 x 5, and one with two times 3 x 3."""
    return Mixed(chains=(((64, 1),), ((48, 1), (64, 5)), ((64, 1), (96, 3), (96, 3))), pooled=pooled)


def _factored(inner: int) -> Mixed:
    """Figure 6 with n = 7; ``inner`` channels within the chains."""
    wide, high = (1, 7), (7, 1)
    return Mixed(
        chains=(
            ((192, 1),),
            ((inner, 1), (inner, wide), (192, high)),
            ((inner, 1), (inner, high), (inner, wide), (inner, high), (192, wide)),
        ),
        pooled=192,
    )


_COARSE = Mixed(chains=(((320, 1),), ((384, 1), (384, FORK)), ((448, 1), (384, 3), (384, FORK))), pooled=192)
"""Figure 7."""

MODULES = (
    _fine(32),
    _fine(64),
    _fine(64),
    Mixed(chains=(((384, 3),), ((64, 1), (96, 3), (96, 3))), halves=True),
    _factored(128),
    _factored(160),
    _factored(160),
    _factored(192),
    Mixed(chains=(((192, 1), (320, 3)), ((192, 1), (192, (1, 7)), (192, (7, 1)), (192, 3))), halves=True),
    _COARSE,
    _COARSE,
)
"""Table 1, from the first Inception module on."""


def inception3(
    batch: int, *, image: int = 299, shrink: int = 1, modules: Sequence[Mixed] = MODULES, classes: int = 1000
) -> ImageStep:
    """All channels are divided by ``shrink``."""

    def build() -> nn.Module:
        layers, width = _stem(shrink), 192 // shrink
        for module in modules:
            layers.append(_module(module, width, shrink))
            width = _channels(module, width, shrink)
        return nn.Sequential(*layers, Mean(), nn.Dropout(), nn.Linear(width, classes))

    return image_step(build, batch, image=image, classes=classes)


def _stem(shrink: int) -> list[nn.Module]:
    narrow, wide, squeezed, last = (channels // shrink for channels in (32, 64, 80, 192))
    return [
        _convolution(3, narrow, 3, stride=2, same=False),
        _convolution(narrow, narrow, 3, same=False),
        _convolution(narrow, wide, 3),
        nn.MaxPool2d(3, 2),
        _convolution(wide, squeezed, 1),
        _convolution(squeezed, last, 3, same=False),
        nn.MaxPool2d(3, 2),
    ]


def _module(module: Mixed, channels_in: int, shrink: int) -> SideBySide:
    chains = [_chain(chain, channels_in, shrink, halves=module.halves) for chain in module.chains]
    if module.halves:
        return SideBySide([*chains, nn.MaxPool2d(3, 2)])
    pool = nn.AvgPool2d(3, 1, padding=1)
    return SideBySide([*chains, nn.Sequential(pool, _convolution(channels_in, module.pooled // shrink, 1))])


def _chain(chain: Sequence[Convolution], channels_in: int, shrink: int, *, halves: bool) -> nn.Sequential:
    layers: list[nn.Module] = []
    for place, (unshrunk, kernel) in enumerate(chain, start=1):
        channels, halved = unshrunk // shrink, halves and place == len(chain)
        if isinstance(kernel, str):
            layers.append(SideBySide(_convolution(channels_in, channels, side) for side in ((1, 3), (3, 1))))
        else:
            layers.append(_convolution(channels_in, channels, kernel, stride=1 + halved, same=not halved))
        channels_in = channels
    return nn.Sequential(*layers)


def _channels(module: Mixed, channels_in: int, shrink: int) -> int:
    """Of all branches together."""
    ends = [channels // shrink * (2 if kernel == FORK else 1) for *_, (channels, kernel) in module.chains]
    return sum(ends) + (channels_in if module.halves else module.pooled // shrink)


def _convolution(
    channels_in: int, channels: int, kernel: int | tuple[int, int], *, stride: int = 1, same: bool = True
) -> nn.Sequential:
    """With ``same`` the image keeps its size."""
    height, width = (kernel, kernel) if isinstance(kernel, int) else kernel
    padding = (height // 2, width // 2) if same else 0
    return conv_norm_relu(channels_in, channels, kernel, stride=stride, padding=padding, epsilon=EPSILON)
