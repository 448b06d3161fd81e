"""The setting of the control experiments, fixed before any of their results was looked at.

They hold the rivals of HOME against what their own papers report, on the machines of those papers. What a paper does
not give is taken from elsewhere, or assumed, and says so.
"""

from collections.abc import Mapping
from dataclasses import dataclass

MEMORY_EFFICIENCY = 0.75
"""Of the data sheet's bandwidth, for ops without products. Assumed: what streaming kernels commonly reach."""

# vDNN (MICRO 2016), on titan_x_maxwell, whose link is the paper's.

VDNN_MACHINE = "titan_x_maxwell"

VDNN_STEPS: tuple[tuple[str, int], ...] = (
    ("alexnet", 128),
    ("googlenet", 128),
    ("vgg16", 64),
    ("vgg16", 128),
    ("vgg16", 256),
)
"""The paper's conventional networks and batches, but for OverFeat, which does not ship."""

VDNN_RESERVE_BYTES = 500_000_000
"""Of the 12 GB, for the CUDA context and the library's kernels. Assumed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Seconds of a forward and backward pass a sample, and how much longer it takes without workspaces."""

    fast_s: float
    slowdown: float


_VGG_A_S = 0.529 / 64
_FLOP_OF_VGG16_OVER_VGG_A = 15.47 / 7.61
_SLOWDOWNS = (231 / 81, 810 / 268, 1099 / 529)

VDNN_MEASURED: Mapping[str, Measured] = {
    "alexnet": Measured(fast_s=0.081 / 128, slowdown=231 / 81),
    "googlenet": Measured(
        fast_s=0.470 / 128, slowdown=(_SLOWDOWNS[0] * _SLOWDOWNS[1] * _SLOWDOWNS[2]) ** (1 / len(_SLOWDOWNS))
    ),
    "vgg16": Measured(fast_s=_VGG_A_S * _FLOP_OF_VGG16_OVER_VGG_A, slowdown=1099 / 529),
}
"""soumith/convnet-benchmarks (README at b9d22fe), on a Titan X and a Core i7-5930K, as vDNN has them, float32.

Fast is cuDNN R4, which is vDNN's. Without workspaces is cuDNN R2, which knew implicit products only: 81 and 231 ms on
AlexNet (batch 128), 268 and 810 on OverFeat (128), 529 and 1099 on VGG model A (64), 470 and not measured on GoogLeNet
(128), which takes the geometric mean of the three. VGG16 is not there: as many FLOP a second as model A, of which it
has 15.47/7.61 times as many (multiplications and additions at 224 x 224).
"""

WORKSPACE_SHARE = 1.0
"""Workspace of the fastest algorithm over the input of the convolution. Of VGG16 at batch 256 the paper says 28 GB in
all, and 16 GB of layer inputs: two gradients of 3.3 GB and the weights leave about 4 GB, for the layer whose input
takes 3.3 GB. So 1, about."""

WORKSPACE_SHARES = (0.0, 1.0, 2.0)
SLOWDOWN_FACTORS = (0.75, 1.0, 1.25)
"""What the sensitivity looks at; the second is what `VDNN_MEASURED` says, times it."""

# Capuchin (ASPLOS 2020).

CAPUCHIN_MACHINE = "p100_pcie_4"
"""One of its GPUs: the paper's server has two Tesla P100 on PCIe 3.0 x16."""

CAPUCHIN_LINK_BYTES_PER_S = 12e9
"""The paper's bandwidth for PCIe 3.0 x16, section 4.3."""

CAPUCHIN_FLOP_PER_S = 2 * 3 * 5.7e9 * 400 / 2.0
"""6.8e12: Inception v3 at batch 400 computes for about 2.0 s, the paper says; a sample takes 5.7e9 multiplications and
additions forward, and twice as many backward. Ops without products are a part of those 2.0 s, and take their own time
here besides: so this is a lower bound."""

CAPUCHIN_RESERVE_BYTES = 750_000_000
"""Of the 16 GB: what a CUDA context with cuDNN's and cuBLAS's kernels and workspaces takes, about. Assumed, as where
the fits of the HOME experiments start."""

CAPUCHIN_RESERVE_SHARE = 0.05
"""Of the rest, what TensorFlow 1 leaves to others (gpu_device.cc, MinSystemMemory: at least 5 %)."""

# Checkmate (MLSys 2020). Costs are FLOP, so no machine.

CHECKMATE_BATCHES: Mapping[str, int] = {"vgg16": 256, "vgg19": 256, "mobilenet": 512, "resnet50": 256}
"""Of the paper's figures for VGG16 and MobileNet; of the tables of its released code for the others."""

CHECKMATE_SHARES: tuple[float, ...] = (0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
"""Budgets, as parts of the way from what any schedule needs, a layer with all that it reads, to what the step that
keeps everything takes: the paper's code draws its budgets from there. As parts of the latter alone, as this said first,
VGG16 could meet one of the eight."""

GRADIENT_OVER_FORWARD = 2
"""Cost of a gradient node over that of its layer: a product forward has two gradients, of its data and its weights."""

CHECKMATE_TIME_LIMIT_S = 120.0
"""For one solve; the paper gave an hour."""
