"""BERT (Devlin et al., "BERT: Pre-training of Deep Bidirectional Transformers", NAACL 2019), op for op as run eagerly.

What the library most use (Hugging Face transformers, "eager" attention) computes, written anew: a matrix of scores in
memory, dropout, float32. The loss takes the tokens for targets; the pooler, which it does not read, is left out.
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

BASE = Size(
    family="bert",
    layers=12,
    width=768,
    heads=12,
    wide=3072,
    vocabulary=30522,
    positions=512,
    source="Devlin et al., BERT, NAACL 2019, section 3; vocabulary and positions of the released model",
)


def bert_base(batch: int, *, length: int = 512, size: Size = BASE) -> TokenStep:
    """``length`` tokens a sequence; 512 is the longest that BERT takes."""
    return token_step(Bert, size, batch, length)


class Bert(nn.Module):
    """Normalises behind each residual connection."""

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
        x = self.blocks(functional.dropout(self.norm(x), DROPOUT))
        x = self.last_norm(functional.gelu(self.transform(x)))
        return token_loss(functional.linear(x, self.words.weight, self.head_bias), tokens)


class BertBlock(nn.Module):
    def __init__(self, size: Size) -> None:
        super().__init__()
        self.heads = size.heads
        self.query, self.key, self.value, self.project = (nn.Linear(size.width, size.width) for _ in range(4))
        self.norm1, self.norm2 = nn.LayerNorm(size.width), nn.LayerNorm(size.width)
        self.expand = nn.Linear(size.width, size.wide)
        self.contract = nn.Linear(size.wide, size.width)

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = (split_heads(part(x), self.heads) for part in (self.query, self.key, self.value))
        scores = query @ key.transpose(-1, -2) / math.sqrt(query.shape[-1])
        masked = scores + x.new_zeros(x.shape[0], 1, 1, x.shape[1])
        weights = functional.dropout(functional.softmax(masked, -1), DROPOUT)
        mixed = self.project(join_heads(weights @ value))
        x = self.norm1(functional.dropout(mixed, DROPOUT) + x)
        widened = self.contract(functional.gelu(self.expand(x)))
        normed: Tensor = self.norm2(functional.dropout(widened, DROPOUT) + x)
        return normed
