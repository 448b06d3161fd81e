"""Replay a recorded trace: rebuild its run as a plan, simulate it, and compare each step with what was recorded."""

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from stepsim.costmodels import RecordedCosts
from stepsim.errors import FileError
from stepsim.machines import Machine
from stepsim.simulator import simulate
from stepsim.tables import read_meta
from stepsim.timeline import Timeline
from stepsim.traces.detect import form_of, head_of
from stepsim.traces.explained import explained
from stepsim.traces.kineto import read_kineto
from stepsim.traces.replay import Rebuilt, StepError, machine_of, rebuild, step_errors
from stepsim.traces.trace import Trace


@dataclass(frozen=True, eq=False, kw_only=True)
class Replay:
    """A recorded run and its simulation, which took ``seconds`` together with reading it."""

    path: Path
    trace: Trace
    rebuilt: Rebuilt
    machine: Machine
    timeline: Timeline
    seconds: float

    @property
    def num_events(self) -> int:
        return len(self.trace.events)

    @property
    def num_kernels(self) -> int:
        return len(self.trace.of("kernel", "collective"))

    @property
    def num_streams(self) -> int:
        return len(self.trace.of("kernel", "collective")[["device", "stream"]].drop_duplicates())

    @property
    def steps(self) -> tuple[StepError, ...]:
        return step_errors(self.rebuilt, self.timeline)

    @cached_property
    def explained(self) -> Mapping[str, float]:
        """The share of the steps' time by what was active."""
        return explained(self.trace)

    @property
    def errors(self) -> list[float]:
        """The absolute relative error of each step."""
        return [abs(step.relative) for step in self.steps]

    @property
    def median_error(self) -> float:
        return float(np.median(self.errors))

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
    _refuse_others(path)
    trace = read_kineto(path)
    rebuilt, machine = rebuild(trace), machine_of(trace)
    timeline = run_again(rebuilt, machine)
    return Replay(
        path=path,
        trace=trace,
        rebuilt=rebuilt,
        machine=machine,
        timeline=timeline,
        seconds=time.monotonic() - began_s,
    )


def _refuse_others(path: Path) -> None:
    """Say what a file of another kind is; of JSON that is not known, the reader says what is wrong with it."""
    head = head_of(path)
    form, ours = form_of(head), _format_of_ours(path, head)
    if form is not None and form.read is not read_kineto:
        seems = f"a {form.name}, which stepsim traces show prints"
    elif ours is not None:
        seems = f"a {ours}, which stepsim show prints"
    elif form is None and head.lstrip()[:1] not in (b"{", b"["):
        seems = f"no JSON, it begins with {head[:20]!r}"
    else:
        return
    wanted = "must be the Kineto trace that torch.profiler exported, JSON or its gzip"
    raise FileError(path, "format", None, f"{wanted}: this is {seems}")


def _format_of_ours(path: Path, head: bytes) -> str | None:
    """What a file of stepsim says that it is: a zip of tables, or JSON."""
    if head.startswith(b"PK"):
        return str((read_meta(path) or {}).get("format", "zip archive"))
    told = re.search(rb'"format": ?"(stepsim-\w+)"', head)
    return told and told[1].decode()


def run_again(rebuilt: Rebuilt, machine: Machine) -> Timeline:
    """Simulate a rebuilt run with its recorded costs, or those that `stepsim.traces.changes` gave it."""
    return simulate(rebuilt.plan, machine, RecordedCosts(seconds=rebuilt.seconds, launch_s=rebuilt.launch_s))
