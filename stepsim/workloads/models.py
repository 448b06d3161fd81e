"""Two models that train on a laptop, for the demo and the tests; those of the literature are in `families`.

Each factory gives ``(module that returns its loss, inputs, optimizer)`` with weights and inputs from a fixed seed.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

_SEED = 0

Step = tuple[nn.Module, tuple[Tensor, Tensor], torch.optim.SGD]


def small_resnet(batch: int, *, width: int = 32, blocks: int = 1, classes: int = 10) -> Step:
    """A residual network on images of 3 x 32 x 32, as those of CIFAR-10."""
    torch.manual_seed(_SEED)
    module = SmallResnet(width, blocks, classes)
    images, labels = torch.randn(batch, 3, 32, 32), torch.randint(classes, (batch,))
    return module, (images, labels), torch.optim.SGD(module.parameters(), lr=0.05, momentum=0.9)


def small_transformer(
    batch: int, *, width: int = 256, blocks: int = 2, heads: int = 4, length: int = 128, vocabulary: int = 1000
) -> Step:
    """A causal language model on sequences of ``length`` random tokens."""
    torch.manual_seed(_SEED)
    module = SmallTransformer(width, blocks, heads, length, vocabulary)
    tokens = torch.randint(vocabulary, (batch, length + 1))
    inputs = (tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous())
    return module, inputs, torch.optim.SGD(module.parameters(), lr=0.05, momentum=0.9)


class ResidualBlock(nn.Module):
    """conv-bn-relu-conv-bn beside the input (He et al. 2016, figure 2), which a 1 x 1 convolution fits where needed."""

    def __init__(self, channels_in: int, channels: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels_in, channels, 3, stride, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(channels)
        self.shortcut: nn.Module = nn.Identity()
        if channels_in != channels:
            self.shortcut = nn.Conv2d(channels_in, channels, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        hidden = functional.relu(self.norm1(self.conv1(x)))
        return functional.relu(self.norm2(self.conv2(hidden)) + self.shortcut(x))


class SmallResnet(nn.Module):
    """A stem and three stages of ``blocks`` blocks; the second and third halve the image and double the width."""

    def __init__(self, width: int, blocks: int, classes: int) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, width, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(width)
        stages = []
        for channels_in, channels in ((width, width), (width, 2 * width), (2 * width, 4 * width)):
            stages.append(ResidualBlock(channels_in, channels, stride=channels // channels_in))
            stages += [ResidualBlock(channels, channels, stride=1) for _ in range(blocks - 1)]
        self.stages = nn.Sequential(*stages)
        self.head = nn.Linear(4 * width, classes)

    def forward(self, images: Tensor, labels: Tensor) -> Tensor:
        hidden = self.stages(functional.relu(self.norm(self.stem(images))))
        return functional.cross_entropy(self.head(hidden.mean((2, 3))), labels)


class TransformerBlock(nn.Module):
    """Causal attention and a GELU network, each behind a layer norm and beside a residual connection."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(width)
        self.query_key_value = nn.Linear(width, 3 * width)
        self.project = nn.Linear(width, width)
        self.norm2 = nn.LayerNorm(width)
        self.expand = nn.Linear(width, 4 * width)
        self.contract = nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.project(self._attend(self.query_key_value(self.norm1(x))))
        widened: Tensor = self.contract(functional.gelu(self.expand(self.norm2(x))))
        return x + widened

    def _attend(self, packed: Tensor) -> Tensor:
        """``packed`` is batch x length x (3 * width)."""
        query, key, value = packed.view(*packed.shape[:2], 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        return mixed.transpose(1, 2).flatten(2)


class SmallTransformer(nn.Module):
    """Token and position embeddings, blocks, a final norm, and the cross entropy of the next token."""

    def __init__(self, width: int, blocks: int, heads: int, length: int, vocabulary: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        self.position = nn.Parameter(torch.zeros(length, width))
        self.blocks = nn.Sequential(*(TransformerBlock(width, heads) for _ in range(blocks)))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens: Tensor, targets: Tensor) -> Tensor:
        hidden = self.norm(self.blocks(self.embed(tokens) + self.position))
        return functional.cross_entropy(self.head(hidden).flatten(0, 1), targets.flatten())
