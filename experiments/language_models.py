"""Language models of published sizes as plain torch modules that return their loss, op for op as they run eagerly.

What the library of the measured runs (Hugging Face transformers, "eager" attention) computes, written anew: matrix of
scores in memory, dropout of 0.1, float32. The optimizer adds to each parameter once, as gradients of an earlier step
are added to: the measured runs accumulate gradients and update nothing.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

Step = tuple[nn.Module, tuple[Tensor, ...], torch.optim.SGD]

_DROPOUT = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """``wide`` is the inner width of the feed-forward layers; ``source`` says where all of it is published."""

    family: str
    layers: int
    width: int
    heads: int
    wide: int
    vocabulary: int
    positions: int
    source: str


SIZES = {
    "bert_large": Size(
        family="bert",
        layers=24,
        width=1024,
        heads=16,
        wide=4096,
        vocabulary=30522,
        positions=512,
        source="Devlin et al., BERT, NAACL 2019, section 3; vocabulary and positions of the released model",
    ),
    "gpt2_large": Size(
        family="gpt",
        layers=36,
        width=1280,
        heads=20,
        wide=5120,
        vocabulary=50257,
        positions=1024,
        source="Radford et al., Language models are unsupervised multitask learners, 2019, table 2",
    ),
    "gpt3_xl": Size(
        family="gpt",
        layers=24,
        width=3072,
        heads=24,
        wide=12288,
        vocabulary=50257,
        positions=2048,
        source="Brown et al., GPT-3, NeurIPS 2020, table 2.1: 24 heads of 128; width 24 x 128 as in NeuSight's shapes, "
        "where the paper has 2048",
    ),
    "gpt3_27": Size(
        family="gpt",
        layers=32,
        width=2560,
        heads=32,
        wide=10240,
        vocabulary=50257,
        positions=2048,
        source="Brown et al., GPT-3, NeurIPS 2020, table 2.1, 2.7B",
    ),
    "opt_13": Size(
        family="opt",
        layers=24,
        width=2048,
        heads=32,
        wide=8192,
        vocabulary=50272,
        positions=2050,
        source="Zhang et al., OPT, 2022, table 1, 1.3B; vocabulary and positions of the released model",
    ),
}


def training_step(size: Size, batch: int, sequence: int) -> Step:
    """Module, inputs (the tokens, which are the targets too) and optimizer."""
    module: nn.Module = {"bert": Bert, "gpt": Gpt, "opt": Opt}[size.family](size)
    tokens = torch.ones(batch, sequence, dtype=torch.int64)
    return module, (tokens,), torch.optim.SGD(module.parameters(), lr=1.0)


def _loss(logits: Tensor, tokens: Tensor) -> Tensor:
    return functional.cross_entropy(logits.view(-1, logits.shape[-1]), tokens.view(-1))


def _split_heads(x: Tensor, heads: int) -> Tensor:
    """Batch x length x width to batch x heads x length x width of a head, a view."""
    return x.view(*x.shape[:2], heads, -1).permute(0, 2, 1, 3)


def _join_heads(x: Tensor) -> Tensor:
    return x.permute(0, 2, 1, 3).contiguous().flatten(2)


class Bert(nn.Module):
    """Normalises behind each residual connection. The pooler, which this loss does not read, is left out."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.words = nn.Embedding(size.vocabulary, size.width)
        self.kinds = nn.Embedding(2, size.width)
        self.places = nn.Embedding(size.positions, size.width)
        self.norm = nn.LayerNorm(size.width)
        self.blocks = nn.Sequential(*(BertBlock(size) for _ in range(size.layers)))
        self.transform = nn.Linear(size.width, size.width)
        self.last_norm = nn.LayerNorm(size.width)
        self.head_bias = nn.Parameter(torch.zeros(size.vocabulary))

    def forward(self, tokens: Tensor) -> Tensor:
        places = torch.arange(tokens.shape[1], device=tokens.device)[None]
        x = self.words(tokens) + self.kinds(torch.zeros_like(tokens)) + self.places(places)
        x = self.blocks(functional.dropout(self.norm(x), _DROPOUT))
        x = self.last_norm(functional.gelu(self.transform(x)))
        return _loss(functional.linear(x, self.words.weight, self.head_bias), tokens)


class BertBlock(nn.Module):
    def __init__(self, size: Size) -> None:
        super().__init__()
        self.heads = size.heads
        self.query, self.key, self.value, self.project = (nn.Linear(size.width, size.width) for _ in range(4))
        self.norm1, self.norm2 = nn.LayerNorm(size.width), nn.LayerNorm(size.width)
        self.expand = nn.Linear(size.width, size.wide)
        self.contract = nn.Linear(size.wide, size.width)

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = (_split_heads(part(x), self.heads) for part in (self.query, self.key, self.value))
        scores = query @ key.transpose(-1, -2) / math.sqrt(query.shape[-1])
        masked = scores + x.new_zeros(x.shape[0], 1, 1, x.shape[1])
        weights = functional.dropout(functional.softmax(masked, -1), _DROPOUT)
        mixed = self.project(_join_heads(weights @ value))
        x = self.norm1(functional.dropout(mixed, _DROPOUT) + x)
        widened = self.contract(functional.gelu(self.expand(x)))
        normed: Tensor = self.norm2(functional.dropout(widened, _DROPOUT) + x)
        return normed


class Gpt(nn.Module):
    """Normalises ahead of each part; weights are stored input first, and the head is the embedding."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.words = nn.Embedding(size.vocabulary, size.width)
        self.places = nn.Embedding(size.positions, size.width)
        self.blocks = nn.Sequential(*(GptBlock(size) for _ in range(size.layers)))
        self.norm = nn.LayerNorm(size.width)

    def forward(self, tokens: Tensor) -> Tensor:
        places = torch.arange(tokens.shape[1], device=tokens.device)[None]
        x = functional.dropout(self.words(tokens) + self.places(places), _DROPOUT)
        return _loss(functional.linear(self.norm(self.blocks(x)), self.words.weight), tokens)


class InputFirst(nn.Module):
    """A linear layer whose weight is input x output."""

    def __init__(self, width_in: int, width_out: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(width_in, width_out))
        self.bias = nn.Parameter(torch.empty(width_out))

    def forward(self, x: Tensor) -> Tensor:
        return torch.addmm(self.bias, x.view(-1, x.shape[-1]), self.weight).view(*x.shape[:-1], -1)


class GptBlock(nn.Module):
    def __init__(self, size: Size) -> None:
        super().__init__()
        self.heads = size.heads
        self.norm1, self.norm2 = nn.LayerNorm(size.width), nn.LayerNorm(size.width)
        self.query_key_value = InputFirst(size.width, 3 * size.width)
        self.project = InputFirst(size.width, size.width)
        self.expand = InputFirst(size.width, size.wide)
        self.contract = InputFirst(size.wide, size.width)

    def forward(self, x: Tensor) -> Tensor:
        packed = self.query_key_value(self.norm1(x)).split(x.shape[-1], dim=2)
        query, key, value = (_split_heads(part, self.heads) for part in packed)
        scores = query @ key.transpose(-1, -2) / torch.full([], math.sqrt(query.shape[-1]))
        past = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()[None, None]
        scores = torch.where(past, scores, torch.full([], torch.finfo(scores.dtype).min))
        weights = functional.dropout(functional.softmax(scores, -1), _DROPOUT)
        x = x + functional.dropout(self.project(_join_heads(weights @ value)), _DROPOUT)
        return x + functional.dropout(self.contract(_tanh_gelu(self.expand(self.norm2(x)))), _DROPOUT)


def _tanh_gelu(x: Tensor) -> Tensor:
    """Op by op, as GPT-2 has it."""
    return 0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0))))


class Opt(nn.Module):
    """Normalises ahead of each part, and adds a mask to scores that it then bounds from below."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.words = nn.Embedding(size.vocabulary, size.width)
        self.places = nn.Embedding(size.positions, size.width)
        self.blocks = nn.ModuleList(OptBlock(size) for _ in range(size.layers))
        self.norm = nn.LayerNorm(size.width)

    def forward(self, tokens: Tensor) -> Tensor:
        length = tokens.shape[1]
        mask = torch.full((length, length), torch.finfo(torch.float32).min).triu(1)
        x = self.words(tokens) + self.places(torch.ones_like(tokens).cumsum(1) + 1)
        for block in self.blocks:
            x = block(x, mask[None, None])
        return _loss(functional.linear(self.norm(x), self.words.weight), tokens)


class OptBlock(nn.Module):
    def __init__(self, size: Size) -> None:
        super().__init__()
        self.heads = size.heads
        self.query, self.key, self.value, self.project = (nn.Linear(size.width, size.width) for _ in range(4))
        self.norm1, self.norm2 = nn.LayerNorm(size.width), nn.LayerNorm(size.width)
        self.expand = nn.Linear(size.width, size.wide)
        self.contract = nn.Linear(size.wide, size.width)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        normed = self.norm1(x)
        scaled = self.query(normed) * (x.shape[-1] // self.heads) ** -0.5
        parts = (scaled, self.key(normed), self.value(normed))
        query, key, value = (_split_heads(part, self.heads).contiguous().flatten(0, 1) for part in parts)
        scores = torch.bmm(query, key.transpose(1, 2)).view(x.shape[0], self.heads, *mask.shape[-2:]) + mask
        scores = torch.max(scores, torch.tensor(torch.finfo(torch.float32).min)).flatten(0, 1)
        mixed = torch.bmm(functional.softmax(scores, -1), value).view(x.shape[0], self.heads, x.shape[1], -1)
        x = x + functional.dropout(self.project(mixed.transpose(1, 2).reshape(x.shape)), _DROPOUT)
        widened = self.contract(functional.relu(self.expand(self.norm2(x))))
        return x + functional.dropout(widened, _DROPOUT)
