"""The file of a calibration: JSON that a person can read, checked when it is read."""

from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import numpy as np
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from stepsim.costmodels.calibration import Calibration
from stepsim.costmodels.measured import Entry, MeasuredTable
from stepsim.costmodels.roofline import Roofline
from stepsim.costmodels.transfers import InterpolatedTransferModel
from stepsim.errors import FileError
from stepsim.tables import read_json, write_json

FORMAT = "stepsim-calibration"

_Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
_NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]


_Seconds = Annotated[float, Field(ge=0, le=1e9, allow_inf_nan=False)]
"""At most some decades: sums of them stay finite."""


def _rises(ends: list[float]) -> list[float]:
    if ends[0] > ends[1]:
        raise ValueError("a range must not end before it begins")
    return ends


_Range = Annotated[list[_NotNegative], Field(min_length=2, max_length=2), AfterValidator(_rises)]


class _Strict(BaseModel):
    model_config = ConfigDict(strict=True)


class _Entry(_Strict):
    kind: str
    seconds: _Positive
    spread_s: _NotNegative
    count: Annotated[int, Field(ge=1)]


class _Roofline(_Strict):
    """A rate of null bounds nothing: no work has shown it."""

    flop_per_s: _Positive | None
    bytes_per_s: _Positive | None
    fitted: dict[Literal["flop", "size_bytes"], _Range]
    left_out_error: _NotNegative


class _Transfers(_Strict):
    size_bytes: Annotated[list[_Positive], Field(min_length=2)]
    seconds: list[_Positive]
    size_error: _NotNegative | None
    noise: _NotNegative = 0.0

    @model_validator(mode="after")
    def _check_order(self) -> Self:
        if len(self.seconds) != len(self.size_bytes):
            raise ValueError(f"{len(self.size_bytes)} sizes have {len(self.seconds)} times")
        if any(a >= b for a, b in pairwise(self.size_bytes)) or any(a > b for a, b in pairwise(self.seconds)):
            raise ValueError("size_bytes must rise, and seconds must not fall")
        return self


_Way = Literal["device to host", "host to device", "device to pageable", "pageable to device"]


class _Calibration(_Strict):
    machine: str
    provenance: dict[str, str]
    launch_s: _Seconds
    roofline: _Roofline
    transfers: dict[_Way, _Transfers]
    repeat_error: _NotNegative | None
    work: dict[str, _Entry]


def write_calibration(calibration: Calibration, path: str | Path) -> None:
    """Write ``calibration`` as JSON."""
    roofline, work = calibration.roofline, calibration.work
    body: dict[str, Any] = {
        "format": FORMAT,
        "machine": calibration.machine,
        "provenance": dict(calibration.provenance),
        "launch_s": calibration.launch_s,
        "roofline": {
            "flop_per_s": _shown(roofline.flop_per_s_),
            "bytes_per_s": _shown(roofline.bytes_per_s_),
            "fitted": {name: list(ends) for name, ends in roofline.fitted_.items()},
            "left_out_error": roofline.left_out_error_,
        },
        "transfers": {name: model.as_json() for name, model in calibration.transfers.items()},
        "repeat_error": work.repeat_error_,
        "work": {signature: asdict(entry) for signature, entry in work.entries_.items()},
    }
    write_json(path, body)


def read_calibration(path: str | Path) -> Calibration:
    """Raises `FileError`, which names the field, if ``path`` holds no calibration."""
    try:
        body = _Calibration.model_validate(read_json(path, FORMAT))
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"])
        value = None if first["type"] == "missing" else first["input"]
        raise FileError(path, field, value, first["msg"].lower()) from error
    work, roofline = MeasuredTable(), Roofline()
    work.entries_ = {signature: Entry(**entry.model_dump()) for signature, entry in body.work.items()}
    work.repeat_error_ = body.repeat_error
    roofline.flop_per_s_ = _bound(body.roofline.flop_per_s)
    roofline.bytes_per_s_ = _bound(body.roofline.bytes_per_s)
    roofline.fitted_ = {name: (low, high) for name, (low, high) in body.roofline.fitted.items()}
    roofline.left_out_error_ = body.roofline.left_out_error
    return Calibration(
        machine=body.machine,
        work=work,
        roofline=roofline,
        transfers={
            name: InterpolatedTransferModel.from_json(entry.model_dump()) for name, entry in body.transfers.items()
        },
        launch_s=body.launch_s,
        provenance=body.provenance,
    )


def _shown(rate: float) -> float | None:
    return rate if np.isfinite(rate) else None


def _bound(rate: float | None) -> float:
    return np.inf if rate is None else rate
