"""OPT (Zhang et al., "OPT: Open Pre-trained Transformer Language Models", 2022), op for op as it runs eagerly.

What the library most use (Hugging Face transformers, "eager" attention) computes, written anew: a matrix of scores in
memory, dropout, float32. The loss takes the tokens for targets.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

from stepsim.workloads.families.language import DROPOUT, Size, split_heads, token_loss


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
        return token_loss(functional.linear(self.norm(x), self.words.weight), tokens)


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
        query, key, value = (split_heads(part, self.heads).contiguous().flatten(0, 1) for part in parts)
        scores = torch.bmm(query, key.transpose(1, 2)).view(x.shape[0], self.heads, *mask.shape[-2:]) + mask
        scores = torch.max(scores, torch.tensor(torch.finfo(torch.float32).min)).flatten(0, 1)
        mixed = torch.bmm(functional.softmax(scores, -1), value).view(x.shape[0], self.heads, x.shape[1], -1)
        x = x + functional.dropout(self.project(mixed.transpose(1, 2).reshape(x.shape)), DROPOUT)
        widened = self.contract(functional.relu(self.expand(self.norm2(x))))
        return x + functional.dropout(widened, DROPOUT)
