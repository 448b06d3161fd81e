"""Calibrations of named GPUs that ship: one JSON file each, parameters with their held-out errors and sources.

`experiments/ship_calibrations.py` fits them to public measurements and writes them here.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stepsim.costmodels.alpha_beta import AlphaBeta
from stepsim.costmodels.collectives import CollectiveTable
from stepsim.costmodels.copies import CopyModel
from stepsim.costmodels.demands import DemandModel
from stepsim.costmodels.gpu_calibration import GpuCalibration
from stepsim.costmodels.kernels import KernelRegression
from stepsim.costmodels.power_bound import PowerBoundRooflines
from stepsim.costmodels.trust import Fitted, ForDtypes
from stepsim.errors import CalibrationError
from stepsim.machines import DeviceKind, Machine
from stepsim.tables import read_json

FORMAT = "stepsim-gpu-calibration"

FOLDER = Path(__file__).parent


def shipped_calibrations() -> tuple[str, ...]:
    """Names that `shipped_calibration` knows."""
    return tuple(sorted(path.stem for path in FOLDER.glob("*.json")))


def shipped_calibration(name: str) -> GpuCalibration:
    """Raises `CalibrationError` for an unknown name."""
    if name not in shipped_calibrations():
        raise CalibrationError(f"unknown calibration {name!r}; known: {', '.join(shipped_calibrations())}")
    return _calibration(read_json(FOLDER / f"{name}.json", FORMAT))


def calibration_of(machine: Machine) -> GpuCalibration | None:
    """The shipped calibration of the GPUs of ``machine``; None where it has no GPU, several kinds, or unknown ones."""
    models = {device.model for device in machine.devices if device.kind is DeviceKind.GPU}
    if len(models) != 1:
        return None
    (model,) = models
    found = (shipped_calibration(name) for name in shipped_calibrations())
    return next((calibration for calibration in found if model in calibration.gpus), None)


def _calibration(body: Mapping[str, Any]) -> GpuCalibration:
    kernels = [ForDtypes(model=_kernels(entry), dtypes=tuple(entry["dtypes"])) for entry in body["kernels"]]
    links = body["collectives"]
    collectives = [] if links is None else [CollectiveTable.from_json(links["table"])]
    collectives_left = [] if links is None else [AlphaBeta.from_json(links["alpha_beta"])]
    return GpuCalibration(
        name=body["name"],
        gpus=tuple(body["gpus"]),
        work=kernels,
        copies=None if body["copies"] is None else CopyModel.from_json(body["copies"]),
        collectives=[*collectives, *collectives_left],
        fabrics=tuple(body["fabrics"]),
        launch_s=body["launch_s"],
        demands=DemandModel.from_json(body["demands"]["tiles"]),
        collective_sm_share=body["demands"]["collective_sm_share"],
        errors=body["errors"],
        sources=body["sources"],
        extrapolated_from=body["extrapolated_from"],
    )


def _kernels(entry: Mapping[str, Any]) -> Fitted:
    """The file has them in the order of trust."""
    if "regression" in entry:
        return KernelRegression.from_json(entry["regression"])
    return PowerBoundRooflines.from_json(entry["rooflines"])
