"""GPT-2 (Radford et al., "Language models are unsupervised multitask learners", 2019), op for op as it runs eagerly.

What the library most use (Hugging Face transformers, "eager" attention) computes, written anew: a matrix of scores in
memory, dropout, float32. The loss takes the tokens for targets.
"""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from stepsim.workloads.families.language import (
    DROPOUT,
    Size,
    TokenStep,
    join_heads,
    split_heads,
    token_loss,
    token_step,
)

SMALL = Size(
    family="gpt",
    layers=12,
    width=768,
    heads=12,
    wide=3072,
    vocabulary=50257,
    positions=1024,
    source="Radford et al., Language models are unsupervised multitask learners, 2019, table 2; heads as released",
)

DEVIATION = 0.02
"""Of the weights at the start, as released."""


def gpt2(batch: int, *, length: int = 1024, size: Size = SMALL) -> TokenStep:
    """``length`` tokens a sequence; 1024 is the longest that GPT-2 takes."""
    return token_step(Gpt, size, batch, length)


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
        x = functional.dropout(self.words(tokens) + self.places(places), DROPOUT)
        return token_loss(functional.linear(self.norm(self.blocks(x)), self.words.weight), tokens)


class InputFirst(nn.Module):
    """A linear layer whose weight is input x output."""

    def __init__(self, width_in: int, width_out: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(DEVIATION * torch.randn(width_in, width_out))
        self.bias = nn.Parameter(torch.zeros(width_out))

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
        query, key, value = (split_heads(part, self.heads) for part in packed)
        scores = query @ key.transpose(-1, -2) / torch.full([], math.sqrt(query.shape[-1]))
        past = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()[None, None]
        scores = torch.where(past, scores, torch.full([], torch.finfo(scores.dtype).min))
        weights = functional.dropout(functional.softmax(scores, -1), DROPOUT)
        x = x + functional.dropout(self.project(join_heads(weights @ value)), DROPOUT)
        return x + functional.dropout(self.contract(_tanh_gelu(self.expand(self.norm2(x)))), DROPOUT)


def _tanh_gelu(x: Tensor) -> Tensor:
    """Op by op, as GPT-2 has it."""
    return 0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0))))
