"""LayerProfile: what a profiler measured of each layer of a network, and which layers feed which.

The input of planners that cut a network into stages (PipeDream, EffTra): time forward and backward, bytes that cross a
cut, bytes to be reduced between replicas.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stepsim.tables import Columns, Ragged
from stepsim.traces.log_lines import Sample


@dataclass(frozen=True, eq=False, kw_only=True)
class LayerProfile(Columns):
    """A row a layer, in an order in which every layer stands behind its ``inputs`` (rows of this table).

    ``layer`` is the identity in the file and ``name`` the description. ``activation_bytes`` are those of its outputs.
    """

    layer: tuple[str, ...]
    name: tuple[str, ...]
    forward_s: NDArray[np.float64]
    backward_s: NDArray[np.float64]
    activation_bytes: NDArray[np.int64]
    parameter_bytes: NDArray[np.int64]
    inputs: Ragged

    def __post_init__(self) -> None:
        assert len(self.inputs) == len(self.layer)
        assert (self.inputs.values < self.inputs.owners()).all(), "a layer stands before one of its inputs"

    @property
    def outputs(self) -> Ragged:
        """For each layer the rows of those that read its output."""
        return Ragged.from_pairs(self.inputs.values, self.inputs.owners(), len(self))

    @property
    def is_input(self) -> NDArray[np.bool_]:
        """Layers that stand for the data. Their forward time is that of loading it, which is no work of a stage."""
        named = np.array([name.startswith("Input") for name in self.name], np.bool_)
        named[np.diff(self.inputs.starts) > 0] = False
        return named


def layer_samples(profile: LayerProfile, device: str) -> list[Sample]:
    """Each layer as a kernel: all forward, then all backward in the opposite order.

    Left out is what took no time, because it was not timed, and the loading of data.
    """
    rows = np.flatnonzero(~profile.is_input).tolist()
    timed = [("forward", row, profile.forward_s[row]) for row in rows]
    timed += [("backward", row, profile.backward_s[row]) for row in reversed(rows)]
    return [
        Sample(
            kind="kernel",
            name=profile.name[row],
            device=device,
            size_bytes=0,
            duration_s=float(seconds),
            work=f"{phase} {profile.name[row]} {profile.activation_bytes[row]}",
        )
        for phase, row, seconds in timed
        if seconds > 0
    ]
