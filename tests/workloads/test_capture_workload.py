"""One capture serves every batch: what `at_batch` gives is what a capture there gives."""

from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from stepsim.errors import CaptureError
from stepsim.workloads.capture import capture, capture_workload
from stepsim.workloads.factory import Factory
from stepsim.workloads.models import small_resnet, small_transformer

RESNET = partial(small_resnet, width=4)
TRANSFORMER = partial(small_transformer, width=16, blocks=1, heads=2, length=8, vocabulary=20)


class Recurrent(nn.Module):
    """The batch is the second dimension, as torch has it for recurrent layers; attention over the hidden states."""

    def __init__(self) -> None:
        super().__init__()
        self.cell, self.norm = nn.GRU(8, 8), nn.LayerNorm(8)
        self.dropout = nn.Dropout(0.2)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.dropout(self.norm(self.cell(x)[0]))
        scores = (hidden.transpose(0, 1) @ hidden.permute(1, 2, 0)).softmax(-1)
        return scores[:, -1].square().mean()


def recurrent(batch: int) -> Any:
    return Recurrent(), torch.randn(3, batch, 8), None


@pytest.mark.parametrize("factory", [RESNET, TRANSFORMER, recurrent], ids=["resnet", "transformer", "recurrent"])
def test_a_workload_at_a_batch_is_what_a_capture_gives_there(factory: Factory) -> None:
    workload = capture_workload(factory, 4, "step")

    for batch in (2, 7):
        direct = capture(factory, batch, "step").workload
        assert replace(workload.at_batch(batch), growth=None) == direct
        assert workload.at_batch(batch).graph_hash == direct.graph_hash


def test_one_sample_is_captured_as_such_and_serves_larger_batches() -> None:
    workload = capture_workload(RESNET, 1, "step")

    assert replace(workload, growth=None) == capture(RESNET, 1, "step").workload
    assert workload.at_batch(6) == capture_workload(RESNET, 6, "step")


class Against(nn.Module):
    def __init__(self, forward: Any) -> None:
        super().__init__()
        self.linear, self.function = nn.Linear(4, 4), forward

    def forward(self, x: Tensor) -> Tensor:
        loss: Tensor = self.function(self.linear(x)).mean()
        return loss


@pytest.mark.parametrize(
    ("forward", "problem"),
    [
        (lambda y: y @ y.T, r"tensor 'mm': more than one dimension of \(4, 4\) grows with the batch"),
        (lambda y: (y @ y.T).flatten()[: len(y) ** 2].relu(), "more than one dimension"),
        (lambda y: y.relu() if len(y) > 5 else y, r"the graph depends on the batch: it has \d+ and \d+ tensors"),
        (lambda y: y * (1 / len(y)), r"the graph depends on the batch: op 'mul' has arguments .*0.25.* and .*0.125"),
    ],
    ids=["every sample with every other", "seen as one dimension", "another path", "a decimal number"],
)
def test_a_model_that_does_not_grow_along_a_line_is_refused(forward: Any, problem: str) -> None:
    def factory(batch: int) -> Any:
        return Against(forward), torch.randn(batch, 4), None

    with pytest.raises(CaptureError, match=f"^step cannot be captured: .*{problem}"):
        capture_workload(factory, 4, "step")
