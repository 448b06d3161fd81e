"""What all families of image classifiers share: the loss behind the layers, the inputs, the optimizer."""

from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn
from torch.nn import functional

from stepsim.workloads.families import SEED

ImageStep = tuple[nn.Module, tuple[Tensor, Tensor], torch.optim.SGD]


class Classifier(nn.Module):
    """``layers`` make batch x classes of the images; the loss is their cross entropy."""

    def __init__(self, layers: nn.Module) -> None:
        super().__init__()
        self.layers = layers

    def forward(self, images: Tensor, labels: Tensor) -> Tensor:
        return functional.cross_entropy(self.layers(images), labels)


def image_step(build: Callable[[], nn.Module], batch: int, *, image: int, classes: int) -> ImageStep:
    """One step of what ``build`` makes, on random square images of ``image`` pixels a side and three colours.

    The optimizer is that of most papers about these networks: stochastic gradient descent with momentum 0.9.
    """
    torch.manual_seed(SEED)
    module = Classifier(build())
    images, labels = torch.randn(batch, 3, image, image), torch.randint(classes, (batch,))
    return module, (images, labels), torch.optim.SGD(module.parameters(), lr=0.01, momentum=0.9)


ConvolutionLayer = Callable[..., nn.Sequential]
"""`conv_relu` or `conv_norm_relu`."""


def conv_relu(channels_in: int, channels: int, kernel: int, *, stride: int = 1, padding: int = 0) -> nn.Sequential:
    """A convolution with bias, ReLU."""
    return nn.Sequential(nn.Conv2d(channels_in, channels, kernel, stride, padding), nn.ReLU())


def conv_norm_relu(
    channels_in: int,
    channels: int,
    kernel: int | tuple[int, int],
    *,
    stride: int = 1,
    padding: int | tuple[int, int] = 0,
    groups: int = 1,
    epsilon: float = 1e-5,
) -> nn.Sequential:
    """A convolution without bias, batch norm, ReLU."""
    return nn.Sequential(
        nn.Conv2d(channels_in, channels, kernel, stride, padding, groups=groups, bias=False),
        nn.BatchNorm2d(channels, eps=epsilon),
        nn.ReLU(),
    )


class Mean(nn.Module):
    """Over the pixels: batch x channels x height x width to batch x channels."""

    def forward(self, x: Tensor) -> Tensor:
        return x.mean((2, 3))


class SideBySide(nn.Module):
    """Branches over one input, concatenated by channel."""

    def __init__(self, branches: Iterable[nn.Module]) -> None:
        super().__init__()
        self.branches = nn.ModuleList(branches)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([branch(x) for branch in self.branches], 1)
