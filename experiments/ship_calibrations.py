"""Fits the calibrations that ship to the public measurements, and writes them: python -m experiments.ship_calibrations

Kernels: rooflines under the power of the board, one for each op class, of float32 (NeuSight's tables of P4, P100, V100
and T4; DeepBench's of the GTX 1080 Ti) and of 16-bit products (aiconfigurator's of A100 and H100, vidur's of A40). A
GPU without a table of its own has those of all that were measured: its errors are those of each measured GPU when it is
left out. One with a table has besides, for products and convolutions, a small regression of its own, which is asked
first. Links: what `experiments.link_machines` fits. Only parameters are written.
"""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from experiments.link_machines import BOTH_WAYS, link_calibrations
from experiments.recorded_grids import Demands, recorded_demands
from stepsim.costmodels.board_power import comparable_power_w
from stepsim.costmodels.kernels import KernelRegression, with_device
from stepsim.costmodels.kernels.trees import Boosting
from stepsim.costmodels.launch_floor import without_launch
from stepsim.costmodels.power_bound import LONG_S, PowerBoundRooflines
from stepsim.costmodels.shipped import FOLDER, FORMAT
from stepsim.datasets import data_folder
from stepsim.errors import FileError
from stepsim.machines import Device, DeviceKind, load_machine
from stepsim.tables import write_json
from stepsim.traces.deepbench import read_deepbench
from stepsim.traces.kernel_tables import merged, read_gemm_table, read_neusight, read_vidur_mlp, without_drift

NEUSIGHT = {
    "Tesla P4": "p4",
    "Tesla P100-PCIE-16GB": "p100_pcie_4",
    "Tesla V100-PCIE-32GB": "v100_pcie",
    "Tesla T4": "t4",
}
"""GPUs of NeuSight's kernel tables, and machines that have one."""

THROTTLED = ("Tesla P4", "linear")
"""Large linear layers reached 0.15 of the peak on this P4 and large batched products 0.55: left out of other GPUs."""

PRODUCTS = {
    "dgx_a100": "aiconfigurator/gemm_bf16_a100_sxm.csv.gz",
    "hgx_h100": "aiconfigurator/gemm_bf16_h100_sxm.csv.gz",
}
"""Tables of 16-bit products by the machine of their GPU."""

A40_LAYERS = "vidur/compute/a40/Llama-2-7b-hf/mlp.csv.gz"

PAGEABLE, TAKEN_EQUAL = "pageable to device", "device to pageable"
"""Nobody's trace holds large copies of the latter way. Either way the driver copies through a pinned buffer of its own
(CUDA C++ best practices guide, pinned memory)."""

FLOAT32, SIXTEEN_BITS = ("float32",), ("float16", "bfloat16")

REGRESSED = ("linear", "bmm", "conv")
"""Classes of which rooflines tell little: they are 10 to 56 % off, those of other classes 2 to 13 %."""

COMPACT = Boosting(trees=40, depth=5, rate=0.3, share=1.0)
"""5.8 kB an op class, where the 300 trees of the default take 36 kB. Mean errors over P4, P100, V100 and T4 for shapes
held out, with 20, 40 and 80 such trees: linear 12.4, 11.6, 11.0 %; bmm 11.7, 10.5, 9.5 %; conv 12.1, 11.3, 10.7 %."""


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


def calibrations(data: Path) -> dict[str, dict[str, Any]]:
    """The body of each file, by name. Raises `FileError` where ``data`` lacks a table."""
    float32, products, links = float32_kernels(data), products_16_bit(data), link_calibrations(data)
    others = float32[(float32["gpu"] != THROTTLED[0]) | (float32["op_class"] != THROTTLED[1])]
    demands = recorded_demands(data, {gpu: _gpu(machine).num_sms for gpu, machine in NEUSIGHT.items()})
    bodies = {gpu.name: _with_demands(_body(gpu, float32, others, products, links), gpu, demands) for gpu in GPUS}
    deepbench = {gpu.name: deepbench_kernels(data, gpu) for gpu in GPUS if gpu.deepbench}
    return {name: _with_deepbench(body, deepbench.get(name)) for name, body in bodies.items()}


def float32_kernels(data: Path) -> pd.DataFrame:
    """NeuSight's kernels with the data sheets of their GPUs, as in a stream that is never empty."""
    paths = sorted((data / "neusight/kernels").glob("*/*.csv.gz"))
    if not paths:
        raise FileError(data, "neusight/kernels", None, "must hold the kernel tables of NeuSight: set STEPSIM_DATA")
    tables = pd.concat([read_neusight(path) for path in paths], ignore_index=True)
    is_conv = tables["op_class"] == "conv"
    steady = pd.concat([tables[~is_conv], without_drift(tables[is_conv])])
    samples = without_launch(merged(steady))
    return pd.concat([_with_gpu(rows, NEUSIGHT[str(gpu)]) for gpu, rows in samples.groupby("gpu")])


def products_16_bit(data: Path) -> dict[str, pd.DataFrame]:
    """By the file of the table."""
    found = {file: _with_gpu(read_gemm_table(data / file), machine) for machine, file in PRODUCTS.items()}
    return {**found, A40_LAYERS: _with_gpu(read_vidur_mlp(data / A40_LAYERS, "NVIDIA A40"), "a40")}


def deepbench_kernels(data: Path, gpu: Gpu) -> pd.DataFrame:
    """DeepBench queues its kernels behind each other, so that no launch is in their times."""
    return _with_gpu(read_deepbench(data / gpu.deepbench).assign(gpu=gpu.models[0]), gpu.machine)


def _with_gpu(samples: pd.DataFrame, machine: str) -> pd.DataFrame:
    gpu = _gpu(machine)
    return with_device(samples, gpu).assign(power_w=comparable_power_w(gpu))


def _gpu(machine: str) -> Device:
    return next(device for device in load_machine(machine).devices if device.kind is DeviceKind.GPU)


def _body(
    gpu: Gpu,
    float32: pd.DataFrame,
    others: pd.DataFrame,
    products: Mapping[str, pd.DataFrame],
    links: Mapping[str, Mapping[str, Any]],
) -> dict[str, Any]:
    own = float32[float32["gpu"] == gpu.own]
    errors = own_errors("float32", own) if gpu.own else left_out_errors(others)
    kernels = [_kernels(FLOAT32, part) for part in _parts(own if gpu.own else others)]
    if gpu.own:
        kernels = [_regression(FLOAT32, own), *kernels]
        errors |= regression_errors("float32", kernels[0])
    sources = {"float32 kernels": f"sitar-lab/NeuSight: {gpu.own or 'extrapolated from ' + ', '.join(NEUSIGHT)}"}
    table = pd.concat(products.values()) if not gpu.products else products[gpu.products]
    if gpu.products:
        kernels.append(_regression(SIXTEEN_BITS, table))
    kernels.append(_kernels(SIXTEEN_BITS, table))
    sources["16-bit products"] = gpu.products or f"extrapolated from {', '.join(products)}"
    if gpu.products:
        errors |= own_errors("16-bit", table) | regression_errors("16-bit", kernels[-2])
    copies = _copies(links, gpu, sources)
    collectives = _fitted(links, gpu.collectives, "collectives", sources)
    errors |= link_errors(copies, collectives)
    launch_s, sources["launch_s"] = _launch(gpu.launches, links[gpu.launches])
    return {
        "format": FORMAT,
        "name": gpu.name,
        "gpus": list(gpu.models),
        "extrapolated_from": "" if gpu.own or gpu.products else ", ".join(NEUSIGHT),
        "kernels": kernels,
        "copies": copies,
        "collectives": collectives,
        "fabrics": list(gpu.fabrics),
        "launch_s": launch_s,
        "errors": errors,
        "sources": sources,
    }


def _with_deepbench(body: dict[str, Any], samples: pd.DataFrame | None) -> dict[str, Any]:
    """Its own kernels before those of other GPUs, which remain for the other classes."""
    if samples is None:
        return body
    own = _regression(FLOAT32, samples)
    told = f"float32 {', '.join(own['regression'])}: DeepBench; others: {body['sources']['float32 kernels']}"
    errors = {name: error for name, error in body["errors"].items() if not name.startswith(tuple(_told(own)))}
    return {
        **body,
        "extrapolated_from": "",
        "kernels": [own, *body["kernels"]],
        "errors": errors | regression_errors("float32", own),
        "sources": {**body["sources"], "float32 kernels": told},
    }


def _told(entry: Mapping[str, Any]) -> list[str]:
    """What the errors of these classes begin with."""
    return [f"float32 {name}," for name in entry["regression"]]


def _with_demands(body: dict[str, Any], gpu: Gpu, demands: Demands) -> dict[str, Any]:
    share, source = demands.collectives(gpu.name, _gpu(gpu.machine).num_sms)
    sources = {**body["sources"], "demands": f"grids of sitar-lab/NeuSight; of collectives: {source}"}
    return {**body, "demands": {"tiles": demands.tiles, "collective_sm_share": share}, "sources": sources}


def _copies(links: Mapping[str, Mapping[str, Any]], gpu: Gpu, sources: dict[str, str]) -> Any:
    """Pinned and pageable memory, and both ways at once, were timed on different machines."""
    found = _fitted(links, gpu.copies, "copies", sources)
    if gpu.pageable:
        curve = _fitted(links, gpu.pageable, "copies", sources, of="copies of pageable memory")["curves"][PAGEABLE]
        found = {**found, "curves": {**found["curves"], PAGEABLE: curve, TAKEN_EQUAL: curve}}
    if gpu.both_ways:
        found = {**found, "both_ways_factor": _fitted(links, gpu.both_ways, "both_ways", sources)["factor"]}
    return found


def _fitted(
    links: Mapping[str, Mapping[str, Any]], machine: str, what: str, sources: dict[str, str], of: str = ""
) -> Any:
    """What was fitted for ``machine``, whose files become one of ``sources``; None without a machine."""
    if not machine:
        return None
    sources[of or what] = f"{machine}: {', '.join(links[machine][what]['files'])}"
    return links[machine][what]


def _kernels(dtypes: Sequence[str], samples: pd.DataFrame) -> dict[str, Any]:
    return {"dtypes": list(dtypes), "rooflines": PowerBoundRooflines().fit(samples).as_json()}


def _regression(dtypes: Sequence[str], samples: pd.DataFrame) -> dict[str, Any]:
    regressed = samples[samples["op_class"].isin(REGRESSED)]
    return {"dtypes": list(dtypes), "regression": KernelRegression(COMPACT).fit(regressed).as_json()}


def regression_errors(prefix: str, entry: Mapping[str, Any]) -> dict[str, float]:
    """Mean absolute relative error by op class for a fifth of the shapes, left out, however short their kernels."""
    return {f"{prefix} {name}, left out": fit["left_out_error"] for name, fit in entry["regression"].items()}


def own_errors(prefix: str, samples: pd.DataFrame) -> dict[str, float]:
    """Mean absolute relative error of one kernel in five, left out, by op class; of kernels above `LONG_S`."""
    fits = [PowerBoundRooflines().fit(part).rooflines_ for part in _parts(samples)]
    return {f"{prefix} {name}, left out": fit.left_out_error_ for found in fits for name, fit in found.items()}


def left_out_errors(samples: pd.DataFrame) -> dict[str, float]:
    """By op class, of the kernels of each GPU where the fit never saw that GPU; the mean over the GPUs."""
    errors: dict[str, list[float]] = {}
    for part in _parts(samples):
        for gpu in part["gpu"].unique():
            out = part[(part["gpu"] == gpu) & (part["seconds"] > LONG_S)]
            said = PowerBoundRooflines().fit(part[part["gpu"] != gpu]).predict(out)
            relative = pd.Series(np.abs(said.seconds / out["seconds"].to_numpy() - 1))
            for name, error in relative.groupby(out["op_class"].to_numpy()).mean().items():
                errors.setdefault(f"float32 {name}, GPU left out", []).append(float(error))
    return {name: float(np.mean(found)) for name, found in errors.items()}


def _parts(samples: pd.DataFrame) -> list[pd.DataFrame]:
    """Convolutions apart: Winograd kernels compute less than their FLOP say, so that those tell nothing of power."""
    is_conv = samples["op_class"] == "conv"
    return [part for part in (samples[~is_conv], samples[is_conv]) if len(part)]


def link_errors(copies: Mapping[str, Any] | None, collectives: Mapping[str, Any] | None) -> dict[str, float]:
    """Those of copies by way, and of collectives for sizes and for groups left out, as far as there are any."""
    curves = {} if copies is None else copies["curves"]
    found = {
        f"copies {way}, sizes left out": curve["size_error"] for way, curve in curves.items() if way != TAKEN_EQUAL
    }
    if collectives is not None:
        found["collectives, sizes left out"] = collectives["table"]["size_error"]
        found["collectives, groups left out"] = collectives["table"]["group_error"]
    return {name: error for name, error in found.items() if error is not None}


def _launch(machine: str, fitted: Mapping[str, Any]) -> tuple[float, str]:
    """What issuing one kernel costs its thread, and where that is from."""
    if "launches" in fitted:
        launches = fitted["launches"]
        return launches["floor_s"]["stream"], f"{machine}, kernels back to back: {', '.join(launches['files'])}"
    calls = fitted["calls"]
    return calls["median_s"], f"{machine}, median call under the profiler: {', '.join(calls['files'])}"


def main() -> None:
    data = data_folder()
    for name, body in calibrations(data).items():
        write_json(FOLDER / f"{name}.json", body)
        print(f"{name}: {len(body['errors'])} errors", file=sys.stderr)


if __name__ == "__main__":
    main()
