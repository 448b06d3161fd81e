"""The GPUs whose calibrations ship: the names they go by in machine files, and where their measurements are."""

from dataclasses import dataclass

from experiments.link_machines import BOTH_WAYS
from stepsim.machines import Device, DeviceKind, load_machine

NEUSIGHT = {
    "Tesla P4": "p4",
    "Tesla P100-PCIE-16GB": "p100_pcie_4",
    "Tesla V100-PCIE-32GB": "v100_pcie",
    "Tesla T4": "t4",
}
"""GPUs of NeuSight's kernel tables, and machines that have one."""

PRODUCTS = {
    "dgx_a100": "aiconfigurator/gemm_bf16_a100_sxm.csv.gz",
    "hgx_h100": "aiconfigurator/gemm_bf16_h100_sxm.csv.gz",
}
"""Tables of 16-bit products by the machine of their GPU."""

A40_LAYERS = "vidur/compute/a40/Llama-2-7b-hf/mlp.csv.gz"


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One calibration: the names of the GPU in machine files, and where its measurements are.

    ``own`` names it in `NEUSIGHT`; ``deepbench``, if any, is a file of its float32 products and convolutions, in all
    three directions. ``machine`` has it; ``products``, if any, is a table of its 16-bit products.
    ``copies``, ``pageable``, ``collectives`` and ``launches`` are machines of `link_calibrations`; `BOTH_WAYS` is where
    copies with others against them were timed.
    """

    name: str
    models: tuple[str, ...]
    machine: str
    own: str = ""
    deepbench: str = ""
    products: str = ""
    copies: str = ""
    pageable: str = ""
    both_ways: str = ""
    collectives: str = ""
    fabrics: tuple[str, ...] = ()
    launches: str = "V100-DGXS-32GB"


_V100 = ("Tesla V100-PCIE-32GB", "Tesla V100-PCIE-16GB", "Tesla V100-SXM2-16GB", "Tesla V100-SXM2-32GB")
_A100 = ("A100-SXM4-40GB", "NVIDIA A100-PCIE-40GB", "NVIDIA A100 80GB PCIe")
_H100_NODE = "NVIDIA H100 80GB HBM3, NVSwitch node"

GPUS = (
    Gpu(name="p4", models=("Tesla P4",), machine="p4", own="Tesla P4"),
    Gpu(name="p100", models=("Tesla P100-PCIE-16GB",), machine="p100_pcie_4", own="Tesla P100-PCIE-16GB"),
    Gpu(
        name="v100",
        models=_V100,
        machine="v100_pcie",
        own="Tesla V100-PCIE-32GB",
        copies="V100-PCIE-32GB",
        pageable="V100-DGXS-32GB",
    ),
    Gpu(name="t4", models=("Tesla T4",), machine="t4", own="Tesla T4"),
    Gpu(
        name="a100",
        models=_A100,
        machine="dgx_a100",
        products=PRODUCTS["dgx_a100"],
        copies="A100-PCIE-40GB (second run)",
        pageable="A100-PG509-200",
        both_ways=BOTH_WAYS,
        collectives="NVIDIA A100-SXM4-80GB, NVSwitch node",
        fabrics=("dgx_a100",),
        launches="A100 80",
    ),
    Gpu(
        name="h100",
        models=("H100-SXM5-80GB",),
        machine="hgx_h100",
        products=PRODUCTS["hgx_h100"],
        collectives=_H100_NODE,
        fabrics=("hgx_h100",),
        launches="A100 80",
    ),
    Gpu(
        name="h200",
        models=("H200-SXM5-141GB",),
        machine="hgx_h200",
        collectives=_H100_NODE,
        fabrics=("hgx_h200",),
        launches="A100 80",
    ),
    Gpu(name="a40", models=("NVIDIA A40",), machine="a40", products=A40_LAYERS, launches="A40"),
    Gpu(name="l4", models=("NVIDIA L4",), machine="l4", launches="A100 80"),
    Gpu(
        name="gtx_1080_ti",
        models=("GeForce GTX 1080 Ti",),
        machine="gtx_1080_ti",
        deepbench="deepbench/DeepBench_NV_1080Ti.xlsx",
    ),
    Gpu(name="rtx_2080_ti", models=("GeForce RTX 2080 Ti",), machine="rtx_2080_ti"),
    Gpu(name="p40", models=("Tesla P40",), machine="p40_8"),
    Gpu(name="k40", models=("Tesla K40",), machine="k40"),
    Gpu(name="titan_x_maxwell", models=("GeForce GTX Titan X",), machine="titan_x_maxwell"),
)


def device_of(machine: str) -> Device:
    """The first GPU of a machine that ships."""
    return next(device for device in load_machine(machine).devices if device.kind is DeviceKind.GPU)
