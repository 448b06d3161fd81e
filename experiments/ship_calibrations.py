"""Fits the calibrations that ship to the public measurements, and writes them: python -m experiments.ship_calibrations

Kernels: rooflines under the power of the board, one for each op class, of float32 (NeuSight's tables of P4, P100, V100
and T4; DeepBench's of the GTX 1080 Ti) and of 16-bit products (aiconfigurator's of A100 and H100, vidur's of A40). A
GPU without a table of its own has those of all that were measured: its errors are those of each measured GPU when it is
left out. One with a table has besides, for products and convolutions, a small regression of its own, which is asked
first. Links: what `experiments.link_machines` fits. Only parameters are written.
"""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from experiments.calibration_errors import (
    PAGEABLE,
    TAKEN_EQUAL,
    left_out_errors,
    link_errors,
    own_errors,
    parts,
    regression_errors,
)
from experiments.calibration_samples import deepbench_kernels, float32_kernels, products_16_bit
from experiments.link_machines import link_calibrations
from experiments.recorded_grids import Demands, recorded_demands
from experiments.shipped_gpus import GPUS, NEUSIGHT, Gpu, device_of
from stepsim.costmodels.kernels import KernelRegression
from stepsim.costmodels.kernels.trees import Boosting
from stepsim.costmodels.power_bound import PowerBoundRooflines
from stepsim.costmodels.shipped import FOLDER, FORMAT
from stepsim.datasets import data_folder
from stepsim.tables import write_json

THROTTLED = ("Tesla P4", "linear")
"""Large linear layers reached 0.15 of the peak on this P4 and large batched products 0.55: left out of other GPUs."""


FLOAT32, SIXTEEN_BITS = ("float32",), ("float16", "bfloat16")

REGRESSED = ("linear", "bmm", "conv")
"""Classes of which rooflines tell little: they are 10 to 56 % off, those of other classes 2 to 13 %."""

COMPACT = Boosting(trees=40, depth=5, rate=0.3, share=1.0)
"""5.8 kB an op class, where the 300 trees of the default take 36 kB. Mean errors over P4, P100, V100 and T4 for shapes
held out, with 20, 40 and 80 such trees: linear 12.4, 11.6, 11.0 %; bmm 11.7, 10.5, 9.5 %; conv 12.1, 11.3, 10.7 %."""


def calibrations(data: Path) -> dict[str, dict[str, Any]]:
    """The body of each file, by name. Raises `FileError` where ``data`` lacks a table."""
    float32, products, links = float32_kernels(data), products_16_bit(data), link_calibrations(data)
    others = float32[(float32["gpu"] != THROTTLED[0]) | (float32["op_class"] != THROTTLED[1])]
    demands = recorded_demands(data, {gpu: device_of(machine).num_sms for gpu, machine in NEUSIGHT.items()})
    bodies = {gpu.name: _with_demands(_body(gpu, float32, others, products, links), gpu, demands) for gpu in GPUS}
    deepbench = {gpu.name: deepbench_kernels(data, gpu) for gpu in GPUS if gpu.deepbench}
    return {name: _with_deepbench(body, deepbench.get(name)) for name, body in bodies.items()}


def _body(
    gpu: Gpu,
    float32: pd.DataFrame,
    others: pd.DataFrame,
    products: Mapping[str, pd.DataFrame],
    links: Mapping[str, Mapping[str, Any]],
) -> dict[str, Any]:
    own = float32[float32["gpu"] == gpu.own]
    errors = own_errors("float32", own) if gpu.own else left_out_errors(others)
    kernels = [_kernels(FLOAT32, part) for part in parts(own if gpu.own else others)]
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
    share, source = demands.collectives(gpu.name, device_of(gpu.machine).num_sms)
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
