"""Models that are small enough to be run under dozens of plans."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from stepsim.workloads.models import small_resnet, small_transformer
from stepsim.workloads.step_function import Microbatches

Made = tuple[nn.Module, tuple[Tensor, ...], torch.optim.Optimizer | None]


def tiny_resnet(batch: int) -> Made:
    return small_resnet(batch, width=4)


def tiny_transformer(batch: int) -> Made:
    return small_transformer(batch, width=16, blocks=1, heads=2, length=8, vocabulary=20)


class Layers(nn.Module):
    """``layers`` and the cross entropy, so that any stack of layers is a training step."""

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.layers = nn.Sequential(*layers)

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        return functional.cross_entropy(self.layers(x).flatten(1), target)


def _images(batch: int) -> tuple[Tensor, Tensor]:
    return torch.randn(batch, 3, 8, 8), torch.randint(4, (batch,))


def _convolutions() -> Layers:
    torch.manual_seed(0)
    shrink = (nn.Conv2d(3, 6, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 6, 3), nn.Flatten())
    return Layers(*shrink, nn.Linear(6, 4))


def conv_net_with_bias(batch: int) -> Made:
    module = _convolutions()
    return module, _images(batch), torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-3)


def nesterov(batch: int) -> Made:
    module = _convolutions()
    return module, _images(batch), torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.8, nesterov=True)


def adam(batch: int) -> Made:
    module = _convolutions()
    return module, _images(batch), torch.optim.Adam(module.parameters(), lr=0.01, weight_decay=1e-3)


class Autocast(nn.Module):
    """``inner`` in bfloat16 where torch finds that safe: its weights, losses and norms stay in float32."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, *inputs: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss: Tensor = self.inner(*inputs)
        return loss


def autocast(batch: int) -> Made:
    module, inputs, _ = tiny_transformer(batch)
    return Autocast(module), inputs, torch.optim.AdamW(module.parameters(), lr=0.01)


class Third(nn.Module):
    """A third of the loss of ``inner``: so that three microbatches give the mean of all."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, *inputs: Tensor) -> Tensor:
        loss: Tensor = self.inner(*inputs) / 3
        return loss


def microbatches(batch: int) -> tuple[nn.Module, Microbatches, torch.optim.Optimizer]:
    module, _, optimizer = tiny_resnet(batch)
    return Third(module), Microbatches(tiny_resnet(batch)[1] for _ in range(3)), optimizer


def no_optimizer(batch: int) -> Made:
    return _convolutions(), _images(batch), None


def frozen_first_layer(batch: int) -> Made:
    module = _convolutions()
    module.layers[0].requires_grad_(False)
    return module, _images(batch), torch.optim.SGD(module.parameters(), lr=0.1)


class Tied(nn.Module):
    """One weight used twice: as embedding and as head."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embed = nn.Embedding(12, 8)
        self.middle = nn.Linear(8, 8)
        self.head = nn.Linear(8, 12, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, tokens: Tensor) -> Tensor:
        hidden = functional.gelu(self.middle(self.embed(tokens[:, :-1])))
        return functional.cross_entropy(self.head(hidden).flatten(0, 1), tokens[:, 1:].flatten())


def tied_weights(batch: int) -> Made:
    module = Tied()
    return module, (torch.randint(12, (batch, 6)),), torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.9)


def with_dropout(batch: int) -> Made:
    torch.manual_seed(0)
    module = Layers(nn.Flatten(), nn.Linear(192, 16), nn.GELU(), nn.Dropout(0.5), nn.Linear(16, 4))
    return module, _images(batch), torch.optim.SGD(module.parameters(), lr=0.1)


def sliced_tokens(batch: int) -> Made:
    """Tokens and targets are slices of one tensor, as language models are usually fed."""
    module, _, optimizer = tiny_transformer(batch)
    tokens = torch.randint(20, (batch, 9))
    return module, (tokens[:, :-1], tokens[:, 1:]), optimizer


class AutoEncoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.encode, self.decode = nn.Linear(12, 4), nn.Linear(4, 12)

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        return functional.mse_loss(self.decode(torch.tanh(self.encode(x))), target)


def input_as_target(batch: int) -> Made:
    """One tensor is given twice, and it is a view that repeats itself."""
    module, x = AutoEncoder(), torch.randn(1, 12).expand(batch, 12)
    return module, (x, x), torch.optim.SGD(module.parameters(), lr=0.1)


EXACT = (
    tiny_resnet,
    tiny_transformer,
    conv_net_with_bias,
    nesterov,
    adam,
    autocast,
    microbatches,
    no_optimizer,
    frozen_first_layer,
    tied_weights,
    sliced_tokens,
    input_as_target,
)
"""Factories whose every plan must equal eager PyTorch."""
