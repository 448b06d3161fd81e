"""What the families of language models share: their sizes, the inputs, how heads are split and joined, the loss."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from stepsim.workloads.families import SEED

DROPOUT = 0.1
"""Of BERT (Devlin et al. 2019, appendix A.2), and of GPT-2 and OPT as released."""

TokenStep = tuple[nn.Module, tuple[Tensor], torch.optim.AdamW]


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


def token_step(build: Callable[[Size], nn.Module], size: Size, batch: int, length: int) -> TokenStep:
    """One step of what ``build`` makes of ``size``, on ``batch`` sequences of ``length`` random tokens.

    The optimizer is that of BERT (Devlin et al. 2019, appendix A.2): Adam with decay of the weights themselves.
    """
    torch.manual_seed(SEED)
    module = build(size)
    tokens = torch.randint(size.vocabulary, (batch, length))
    return module, (tokens,), torch.optim.AdamW(module.parameters(), lr=1e-4, weight_decay=0.01, foreach=False)


def token_loss(logits: Tensor, tokens: Tensor) -> Tensor:
    """The cross entropy of ``logits``, batch x length x vocabulary, over all tokens."""
    return functional.cross_entropy(logits.view(-1, logits.shape[-1]), tokens.view(-1))


def split_heads(x: Tensor, heads: int) -> Tensor:
    """Batch x length x width to batch x heads x length x width of a head, a view."""
    return x.view(*x.shape[:2], heads, -1).permute(0, 2, 1, 3)


def join_heads(x: Tensor) -> Tensor:
    """Batch x heads x length x width of a head to batch x length x width."""
    return x.permute(0, 2, 1, 3).contiguous().flatten(2)
