"""Mixed precision: what autocast casts is in the graph, and comes out as in eager PyTorch."""

from collections import Counter
from typing import Any

import pytest
import torch
from side_by_side import SideBySide
from torch import Tensor, nn
from torch.nn import functional

from stepsim.workloads import Phase
from stepsim.workloads.capture import capture, capture_workload


class Mixed(nn.Module):
    """A convolution, a norm and a linear layer, which bfloat16 is good for, and a loss, which stays in float32."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm, self.last = nn.Conv2d(3, 8, 3), nn.LayerNorm(32), nn.Linear(32, 4)

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        hidden = self.norm(self.conv(x).relu().flatten(1))
        return functional.cross_entropy(self.last(hidden), target)


class Autocast(Mixed):
    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return super().forward(x, target)


def factory_of(kind: type[Mixed]) -> Any:
    def factory(batch: int) -> Any:
        module = kind()
        inputs = (torch.randn(batch, 3, 4, 4), torch.randint(4, (batch,)))
        return module, inputs, torch.optim.AdamW(module.parameters(), lr=0.01)

    return factory


def test_three_steps_under_autocast_equal_those_of_eager_pytorch_bit_for_bit() -> None:
    both = SideBySide(factory_of(Autocast))

    for _ in range(3):
        both.step()

    assert both.unequal() == []


def test_products_are_in_bfloat16_and_the_rest_is_in_float32() -> None:
    workload = capture(factory_of(Autocast), 2, "mixed").workload

    dtypes = {(op.kind, op.dtype) for op in workload.ops if op.phase is not Phase.UPDATE}
    products = ("aten.convolution", "aten.addmm", "aten.convolution_backward.filter", "aten.mm")
    assert {(kind, "bfloat16") for kind in products} <= dtypes
    assert {("aten._log_softmax", "float32"), ("aten.nll_loss_forward", "float32")} <= dtypes
    assert workload.tensors[workload.loss].dtype == "float32"


def test_casts_are_ops_and_a_parameter_keeps_a_gradient_of_its_own_dtype() -> None:
    """To bfloat16, which halves: the images, two weights and two biases; back: the output. Backward: one, and four."""
    workload = capture(factory_of(Autocast), 2, "mixed").workload

    casts = Counter((op.phase, op.bytes_read / op.bytes_written) for op in workload.ops if op.kind == "aten._to_copy")
    assert casts == {
        (Phase.FORWARD, 2.0): 5,
        (Phase.FORWARD, 0.5): 1,
        (Phase.BACKWARD, 2.0): 1,
        (Phase.BACKWARD, 0.5): 4,
    }
    for parameter, gradient in workload.gradients.items():
        assert workload.tensors[parameter].dtype == workload.tensors[gradient].dtype == "float32"


def test_a_product_under_autocast_moves_half_of_the_bytes() -> None:
    full, mixed = (capture(factory_of(kind), 2, "step").workload for kind in (Mixed, Autocast))

    (one,), (half,) = ([op for op in workload.ops if op.kind == "aten.addmm"] for workload in (full, mixed))
    assert half.bytes_read * 2 == one.bytes_read
    assert half.flop == one.flop


def test_the_caller_may_set_autocast_as_well() -> None:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        around = capture(factory_of(Mixed), 2, "step").workload

    assert around.graph_hash == capture(factory_of(Autocast), 2, "step").workload.graph_hash


@pytest.mark.parametrize("batch", [3, 6])
def test_other_batches_are_known_too(batch: int) -> None:
    workload = capture_workload(factory_of(Autocast), 2, "step").at_batch(batch)

    assert workload.graph_hash == capture(factory_of(Autocast), batch, "step").workload.graph_hash
