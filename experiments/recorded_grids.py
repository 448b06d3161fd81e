"""Grids of kernels and the slowdown beside collectives, as public measurements have them, and what is learnt of both.

NeuSight's tables tell for each shape how many blocks its longest kernel had. Two traces of A100 hold kernels that ran
beside collectives in some steps and alone in others.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from stepsim.costmodels.demands import DemandModel, collective_sm_share, taken_share
from stepsim.traces.csv_tables import read_table
from stepsim.traces.detect import read_any
from stepsim.traces.kernel_tables import read_neusight
from stepsim.traces.slowdown import slowdowns

SLOWED = ("hta/nccl_parser_config/nccl_data.json.gz", "hta/trace_diff/control/control.json.gz")
"""Of 2 ranks on 8 channels of NCCL, and of 8 ranks on 7 to 24: so the grids of their collectives are."""

LEAST_S = 20e-6
"""Shorter kernels take what their launch takes, whatever runs beside them."""

CHANNELS = {"v100": 8}
"""By calibration: the most frequent grid of NCCL's kernels, 25 of 40 in param/dlrm_kineto; 12 and 1 are the others."""


def recorded_grids(data: Path, num_sms: Mapping[str, int]) -> pd.DataFrame:
    """Kernels of NeuSight's tables, as `read_neusight` has them, with ``blocks`` and the ``num_sms`` of their GPU."""
    frames = []
    for path in sorted((data / "neusight/kernels").glob("*/*.csv.gz")):
        table = read_table(path, ("Grid x", "Grid y", "Grid z"))
        samples = read_neusight(path)
        blocks = table["Grid x"] * table["Grid y"] * table["Grid z"]
        frames.append(samples.assign(blocks=blocks, num_sms=samples["gpu"].map(num_sms)))
    return pd.concat(frames, ignore_index=True)


def slowed_kernels(data: Path) -> pd.DataFrame:
    """Kernels from `LEAST_S` up of the traces `SLOWED`: `slowdowns` beside collectives, with ``file``."""
    frames = [slowdowns(read_any(data / file), "collective").assign(file=file) for file in SLOWED]
    found = pd.concat(frames, ignore_index=True)
    return found[found["alone_s"] > LEAST_S]


@dataclass(frozen=True, slots=True, kw_only=True)
class Demands:
    """``tiles`` are the JSON form of the `DemandModel` of all grids; ``slowed_share`` is what A100 showed."""

    tiles: Mapping[str, Any]
    slowed_share: float

    def collectives(self, name: str, num_sms: int) -> tuple[float, str]:
        """Share of the SMs that a collective takes on the GPU of calibration ``name``, and where that is from."""
        if name in CHANNELS:
            return collective_sm_share(CHANNELS[name], num_sms), f"{CHANNELS[name]} channels, param/dlrm_kineto"
        return self.slowed_share, f"slowdown of kernels on A100, {', '.join(SLOWED)}"


def recorded_demands(data: Path, num_sms: Mapping[str, int]) -> Demands:
    """``num_sms`` is by GPU, as NeuSight's tables call it."""
    slowed = slowed_kernels(data)
    return Demands(
        tiles=DemandModel().fit(recorded_grids(data, num_sms)).as_json(),
        slowed_share=taken_share(slowed["alone_s"], slowed["beside_s"]),
    )
