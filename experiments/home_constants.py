"""The constants that `python -m experiments.home_fit` found on `FITTED_ON` alone (MobileNet, VGG16, Plain20)."""

from dataclasses import replace

from experiments.home_costs import Constants

FITTED = Constants(
    compute_efficiency=1.0,
    memory_efficiency=0.3244,
    depthwise_efficiency=0.04653,
    link_bytes_per_s=10.58e9,
    reserve_bytes=2_054_144_175,
)

PROPORTIONAL = replace(FITTED, reserve_bytes=750_000_000, reserve_share=0.1179)
"""The reserve in its other form, fitted on the same batches."""
