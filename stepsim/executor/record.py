"""Record a machine: time the distinct work of captured steps, and copies, the very way the executor runs them.

What is timed is no step. Each distinct piece of work is one row, on inputs taken from a real step, beside one row for
each size of copy; the executor's interpreter runs all of them over and over, so that repeats are interleaved. On a GPU
the host is given a start, so that no row waits for it; what calls to CUDA take the host is timed after each pass.
"""

from collections.abc import Callable, Iterable, Sequence

import torch

from stepsim.executor.bound import BoundProgram
from stepsim.executor.devices import device_name, lanes_of
from stepsim.executor.host_calls import Event, HostCalls
from stepsim.executor.instructions import Instruction, RowAction, interpret
from stepsim.executor.lanes import Lanes
from stepsim.executor.probes import Probe, copy_probes, read, work_probes
from stepsim.executor.provenance import provenance_of
from stepsim.traces.trace import Trace, events_of

COPY_SIZES_BYTES = tuple(2**power for power in range(12, 26))
"""4 KiB to 32 MiB: from what any cache holds to what none does."""

GPU_COPY_SIZES_BYTES = tuple(2**power for power in range(12, 29))
"""4 KiB to 256 MiB: the largest activation of VGG16 at batch 32, 392 MiB, is near."""

WARM_UP = 3
"""Passes that are thrown away: caches, memory pools and the processor's clock settle in them."""

HOLD_S_PER_ROW = 100e-6
"""The start that the host is given on a GPU, for each row. Chosen high: too long a start costs nothing but time."""

MOST_QUEUED = 200
"""Rows whose launches are told. A CUDA stream takes about a thousand submissions, of which a row has three or more;
beyond that the host waits for the device."""

SHORTEST_S = 1e-9
"""CUDA events count in steps of some nanoseconds, so that a row without a kernel may seem to take none."""


class Recorder:
    """Times the distinct work of ``programs``, and copies both ways, one pass after another.

    ``programs`` are on one device. Their steps are run once, op by op and untimed, for real inputs: the modules are
    trained by that one step. Then come `WARM_UP` passes that are thrown away.
    """

    def __init__(self, programs: Sequence[BoundProgram], lanes: Lanes | None = None) -> None:
        self._programs = programs
        self._lanes = lanes_of(programs[0].device) if lanes is None else lanes
        on_gpu = self._lanes.device.type == "cuda"
        sizes_bytes = GPU_COPY_SIZES_BYTES if on_gpu else COPY_SIZES_BYTES
        self._host_calls = HostCalls(self._lanes.device, sizes_bytes) if on_gpu else None
        self._probes: list[Probe | None] = []
        self._live: list[torch.Tensor | None] = []
        self._instructions: list[Instruction] = []
        self._rows: list[Event] = []
        self._spent_s = 0.0
        self._passes = 0
        for probes in (work_probes(programs), copy_probes(self._lanes, sizes_bytes)):
            for probe in probes:
                self._add(probe)
        for _ in range(WARM_UP):
            self._time()

    def _add(self, probe: Probe) -> None:
        """A row on values of its own, which drops the outputs that it makes; before it one that reads what is fresh."""
        first = len(self._live)
        self._live += [*probe.values, *[None] * probe.num_outputs]
        outputs = range(first + len(probe.values), len(self._live))
        if probe.fresh:
            self._add_row(read, [first + place for place in probe.fresh], ())
            self._probes.append(None)
        self._add_row(probe.action, range(first, first + len(probe.values)), outputs)
        self._probes.append(probe)

    def _add_row(self, action: RowAction, reads: Iterable[int], outputs: Iterable[int]) -> None:
        written = tuple(outputs)
        self._instructions.append(
            Instruction(
                row=len(self._instructions),
                lane=0,
                waits=(),
                reads=tuple(reads),
                writes=written,
                releases=written,
                action=action,
            )
        )

    def run_pass(self) -> None:
        """Time everything once more."""
        self._append(self._time())
        if self._host_calls is not None:
            self._append(self._host_calls.timed())
        self._passes += 1

    def _append(self, events: Sequence[Event]) -> None:
        """``events``, timed from a start of their own, behind those that are there."""
        self._rows += [{**event, "start_s": self._spent_s + event["start_s"]} for event in events]
        self._spent_s += max(event["start_s"] + event["duration_s"] for event in events)

    def _time(self) -> list[Event]:
        """One event for each probe, and one for its launch, in seconds from the start of the pass."""
        self._lanes.hold(HOLD_S_PER_ROW * len(self._instructions))
        with torch.no_grad():
            interpret(self._instructions, self._live, self._lanes)
        times = zip(*self._lanes.finish(), self._lanes.issue_times(), strict=True)
        rows: list[Event] = []
        for number, (probe, (start_s, end_s, (issued_s, issue_s))) in enumerate(zip(self._probes, times, strict=True)):
            if probe is None:
                continue
            timed = {"start_s": start_s, "duration_s": max(end_s - start_s, SHORTEST_S)}
            rows.append({**probe.facts, **timed, "device": device_name(self._lanes.device), "stream": 0, "thread": 0})
            if 0 < number < MOST_QUEUED:
                issued = {"start_s": issued_s, "duration_s": issue_s}
                rows.append({"kind": "launch", "name": "interpreter", **issued, "thread": 0})
        return rows

    def trace(self) -> Trace:
        """The samples of all passes so far, in seconds."""
        return Trace(events=events_of(self._rows), provenance=provenance_of(self._programs, self._passes))


def record(
    programs: Sequence[BoundProgram],
    lanes: Lanes | None = None,
    *,
    repeats: int = 25,
    progress: Callable[[int, int], None] | None = None,
) -> Trace:
    """What a `Recorder` of ``programs`` sees in ``repeats`` passes; ``progress(done, all)`` is called after each."""
    recorder = Recorder(programs, lanes)
    for number in range(1, repeats + 1):
        recorder.run_pass()
        if progress is not None:
            progress(number, repeats)
    return recorder.trace()
