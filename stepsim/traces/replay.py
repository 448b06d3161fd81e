"""Rebuild a recorded run as a plan, so that the simulator can replay it.

What a trace tells, and what becomes of it:

- the time between two launches of a host thread is host work of that length;
- a kernel, copy or memset is a row of its stream, in the order of the launches; its launch cost is what the runtime
  call took; one launched before the recording began is issued when it started, by a thread of its own; its seconds
  hold the microseconds that the stream took to turn to it; what a graph left out is a row of its own (`RowWriter`);
- a stream that is told to wait for another depends on what was recorded; where that is not known, on what its next
  kernel can have waited for (`stepsim.traces.waits`);
- a synchronisation is host work of no length that depends on the last row of what it waits for;
- a copy that holds its thread has ``blocks_thread``;
- the main thread waits while another thread launches for it (`stepsim.traces.handover`);
- a collective is a group of one: its span holds the wait for the other members.

Durations, gaps, launches and order are recorded. When a row starts, and how long a thread waits, is left to the
simulator; what a call took beyond its wait is host work behind it.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stepsim.machines import Device, DeviceKind, Link, Machine, Route
from stepsim.plan import NONE, Plan
from stepsim.timeline import Timeline, end_mark
from stepsim.traces.moments import recording_of
from stepsim.traces.rows import GAP, RowWriter
from stepsim.traces.trace import Trace

WHOLE_TRACE = "trace"
"""Name of the one step of a trace without profiler steps."""


class RecordedStep(NamedTuple):
    """A step as recorded, and the marks of the plan at its borders."""

    name: str
    measured_s: float
    begin: str
    end: str


class StepError(NamedTuple):
    """A step as recorded and as simulated."""

    name: str
    measured_s: float
    predicted_s: float

    @property
    def relative(self) -> float:
        return self.predicted_s / self.measured_s - 1


@dataclass(frozen=True, kw_only=True)
class Rebuilt:
    """A recorded run as a plan, with the recorded start, seconds and launch cost of each of its rows."""

    plan: Plan
    start_s: NDArray[np.float64]
    seconds: NDArray[np.float64]
    launch_s: NDArray[np.float64]
    steps: tuple[RecordedStep, ...]

    @property
    def gaps(self) -> NDArray[np.bool_]:
        """Which rows stand for what a host thread did between two calls."""
        work = self.plan.tasks.work
        of_work = np.array([kind == GAP for kind in self.plan.work.kind])
        return np.where(work == NONE, False, of_work[work])


def rebuild(trace: Trace) -> Rebuilt:
    """The plan that ``trace`` recorded, with its costs. Without profiler steps the whole trace is one step."""
    recording = recording_of(trace)
    steps = recorded_steps(trace)
    writer = RowWriter(recording)
    whole = trace.of("step").empty
    if whole:
        writer.mark(steps[0].begin, writer.main)
    writer.write_launched_before(recording.launched_before)
    for moment in recording.moments:
        writer.write(moment)
    for thread, end_s in recording.thread_end_s.items():
        writer.host_until(thread, end_s)
    if whole:
        writer.mark(steps[0].end, writer.main, after=writer.last_rows())
    return Rebuilt(
        plan=writer.builder.build(),
        start_s=np.array(writer.start_s),
        seconds=np.array(writer.seconds),
        launch_s=np.array(writer.launch_s),
        steps=steps,
    )


def recorded_steps(trace: Trace) -> tuple[RecordedStep, ...]:
    """The profiler steps, or one that spans the whole trace, from its first to its last event."""
    events = trace.events
    steps = trace.of("step")
    if steps.empty:
        whole_s = float((events["start_s"] + events["duration_s"]).max() - events["start_s"].min())
        return (RecordedStep(WHOLE_TRACE, whole_s, WHOLE_TRACE, end_mark(WHOLE_TRACE)),)
    recorded = zip(steps["name"], steps["duration_s"], strict=True)
    return tuple(RecordedStep(name, float(taken_s), name, end_mark(name)) for name, taken_s in recorded)


def step_errors(rebuilt: Rebuilt, timeline: Timeline) -> tuple[StepError, ...]:
    """Each recorded step beside the time between its marks in ``timeline``."""
    return tuple(StepError(step.name, step.measured_s, seconds_of(step, timeline)) for step in rebuilt.steps)


def seconds_of(step: RecordedStep, timeline: Timeline) -> float:
    """The time between the marks of a step."""
    at_s: dict[str, float] = dict(zip(timeline.marks.name, timeline.marks.time_s.tolist(), strict=True))
    return at_s[step.end] - at_s[step.begin]


UNBOUNDED_BYTES = 2**50
"""Memory of a device whose memory is not recorded: no buffer of a replay fills it, because a replay has none."""


def machine_of(trace: Trace) -> Machine:
    """The GPUs that ``trace`` names, and their host, for simulating the plan of `rebuild` with its recorded costs."""
    facts = trace.provenance
    gpus = sorted(set(trace.of("kernel", "collective", "copy", "memset")["device"]))
    devices = [_device("host", DeviceKind.HOST, None)]
    devices += [_device(gpu, DeviceKind.GPU, facts.get(f"{gpu} memory_bytes"), facts.get(gpu, "")) for gpu in gpus]
    ends = [(one, two) for gpu in gpus for one, two in (("host", gpu), (gpu, "host"))]
    return Machine(
        name=facts.get("file", "trace"),
        description="as recorded",
        devices=tuple(devices),
        links=tuple(_link(f"{one} to {two}") for one, two in ends),
        routes=tuple(Route(source=one, destination=two, links=(f"{one} to {two}",)) for one, two in ends),
    )


def _device(name: str, kind: DeviceKind, memory_bytes: str | None, model: str = "") -> Device:
    source = "recorded in the trace" if memory_bytes else "not recorded, and not needed: a replay has no buffers"
    return Device(
        name=name,
        kind=kind,
        model=model,
        memory_bytes=int(memory_bytes or UNBOUNDED_BYTES),
        sources={"memory_bytes": source},
    )


def _link(name: str) -> Link:
    """A replayed copy takes its recorded time, whatever the link."""
    unused = "not used: a replayed copy takes its recorded time"
    sources = {"latency_s": unused, "bandwidth_bytes_per_s": unused}
    return Link(name=name, latency_s=0.0, bandwidth_bytes_per_s=1e12, sources=sources)
