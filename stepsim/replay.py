"""Replay a recorded trace: rebuild its run as a plan, simulate it, and compare each step with what was recorded."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from stepsim.costmodels import RecordedCosts
from stepsim.simulator import simulate
from stepsim.timeline import Timeline
from stepsim.traces.explained import explained
from stepsim.traces.kineto import read_kineto
from stepsim.traces.replay import StepError, machine_of, rebuild, step_errors


@dataclass(frozen=True, eq=False, kw_only=True)
class Replay:
    """A recorded run and its simulation. ``explained`` has the share of the steps' time by what was active."""

    path: Path
    num_events: int
    num_kernels: int
    num_streams: int
    steps: tuple[StepError, ...]
    explained: Mapping[str, float]
    timeline: Timeline
    seconds: float

    @property
    def median_error(self) -> float:
        """Median over the steps of the absolute relative error."""
        return float(np.median([abs(step.relative) for step in self.steps]))

    def as_json(self) -> dict[str, Any]:
        return {
            "trace": str(self.path),
            "events": self.num_events,
            "kernels": self.num_kernels,
            "streams": self.num_streams,
            "steps": [
                {"name": step.name, "measured_s": step.measured_s, "predicted_s": step.predicted_s}
                for step in self.steps
            ],
            "explained": dict(self.explained),
            "median_error": self.median_error,
            "seconds": self.seconds,
        }


def replay(path: Path) -> Replay:
    """Read, rebuild and simulate the Kineto trace at ``path``. Raises `FileError` for a file that is none."""
    began_s = time.monotonic()
    trace = read_kineto(path)
    rebuilt = rebuild(trace)
    costs = RecordedCosts(seconds=rebuilt.seconds, launch_s=rebuilt.launch_s)
    timeline = simulate(rebuilt.plan, machine_of(trace), costs)
    kernels = trace.of("kernel", "collective")
    return Replay(
        path=path,
        num_events=len(trace.events),
        num_kernels=len(kernels),
        num_streams=len(kernels[["device", "stream"]].drop_duplicates()),
        steps=step_errors(rebuilt, timeline),
        explained=explained(trace),
        timeline=timeline,
        seconds=time.monotonic() - began_s,
    )
