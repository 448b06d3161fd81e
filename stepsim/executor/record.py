"""Record a machine: time the distinct work of captured steps, and copies, the very way the executor runs them.

What is timed is no step. Each distinct piece of work is one row, on inputs taken from a real step, beside one row for
each size of copy; the executor's interpreter runs all of them over and over, so that repeats are interleaved.
"""

import datetime
import platform
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch

from stepsim.executor.bound import BoundProgram
from stepsim.executor.instructions import HostCopy, Instruction, RowAction, interpret
from stepsim.executor.lanes import CpuLanes, Lanes
from stepsim.machines.this_cpu import processor
from stepsim.traces.trace import Trace, events_of

COPY_SIZES_BYTES = tuple(2**power for power in range(12, 26))
"""4 KiB to 32 MiB: from what any cache holds to what none does."""

WARM_UP = 3
"""Passes that are thrown away: caches, memory pools and the processor's clock settle in them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """One thing to time: what `Trace` says of it, and the call with its inputs.

    ``fresh`` are the places of those inputs that the op just before it makes: in a step they are still in the caches.
    """

    facts: Mapping[str, object]
    action: RowAction
    values: Sequence[torch.Tensor]
    fresh: Sequence[int] = ()


class Recorder:
    """Times the distinct work of ``programs``, and copies both ways, one pass after another.

    Their steps are run once, op by op and untimed, for real inputs: the modules are trained by that one step. Then come
    `WARM_UP` passes that are thrown away.
    """

    def __init__(self, programs: Sequence[BoundProgram], lanes: Lanes | None = None) -> None:
        self._programs = programs
        self._lanes = CpuLanes() if lanes is None else lanes
        self._probes: list[Probe | None] = []
        self._live: list[torch.Tensor | None] = []
        self._instructions: list[Instruction] = []
        self._rows: list[dict[str, object]] = []
        self._spent_s = 0.0
        self._passes = 0
        for probe, num_outputs in (*_work_probes(programs), *_copy_probes(self._lanes)):
            self._add(probe, num_outputs)
        for _ in range(WARM_UP):
            self._time()

    def _add(self, probe: Probe, num_outputs: int) -> None:
        """A row on values of its own, which drops the outputs that it makes; before it one that reads what is fresh."""
        first = len(self._live)
        self._live += [*probe.values, *[None] * num_outputs]
        outputs = range(first + len(probe.values), len(self._live))
        if probe.fresh:
            self._add_row(_read, [first + place for place in probe.fresh], ())
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
        starts_s, ends_s = self._time()
        self._rows += _events(self._probes, starts_s, ends_s, self._spent_s)
        self._spent_s += ends_s[-1]
        self._passes += 1

    def _time(self) -> tuple[list[float], list[float]]:
        with torch.no_grad():
            interpret(self._instructions, self._live, self._lanes)
        return self._lanes.finish()

    def trace(self) -> Trace:
        """The samples of all passes so far, in seconds."""
        return Trace(events=events_of(self._rows), provenance=_provenance(self._programs, self._passes))


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


def _work_probes(programs: Sequence[BoundProgram]) -> list[tuple[Probe, int]]:
    """The first op of each signature, with copies of the inputs that it has in its step."""
    found: dict[str, tuple[Probe, int]] = {}
    for bound in programs:
        workload = bound.workload
        values = bound.values()
        last = {tensor: index for index, op in enumerate(workload.ops) for tensor in (*op.inputs, *op.outputs)}
        just_made: set[int] = set()
        for index, op in enumerate(workload.ops):
            inputs = [values[tensor] for tensor in op.inputs]
            run = bound.program.ops[index].run
            if op.signature not in found:
                moved = {"flop": op.flop, "size_bytes": op.bytes_read + op.bytes_written}
                facts = {"kind": "kernel", "name": op.kind, "work": op.signature, **moved}
                own = [value.clone(memory_format=torch.preserve_format) for value in inputs]
                fresh = [place for place, tensor in enumerate(op.inputs) if tensor in just_made]
                found[op.signature] = (Probe(facts=facts, action=run, values=own, fresh=fresh), len(op.outputs))
            just_made = set(op.outputs)
            values.update(zip(op.outputs, run(inputs), strict=True))
            del inputs
            for tensor in {*op.inputs, *op.outputs}:
                if last[tensor] == index:
                    del values[tensor]
    return list(found.values())


def _read(values: Sequence[torch.Tensor]) -> Sequence[torch.Tensor]:
    """Bring ``values`` into the caches."""
    for value in values:
        if value.numel():
            value.max()
    return ()


def _copy_probes(lanes: Lanes) -> list[tuple[Probe, int]]:
    """Out to host memory that is there, and into memory that is new: as a swap does it."""
    probes = []
    for size_bytes in COPY_SIZES_BYTES:
        copy, on_device = HostCopy(lanes, size_bytes), lanes.new_storage(size_bytes).fill_(1)
        facts: dict[str, object] = {"kind": "copy", "name": "copy", "size_bytes": size_bytes}
        out = {**facts, "source": "device", "destination": "host"}
        back = {**facts, "source": "host", "destination": "device"}
        probes.append((Probe(facts=out, action=copy.swap_out, values=(on_device,)), 1))
        probes.append((Probe(facts=back, action=copy.swap_in, values=(copy.storage,)), 1))
    return probes


def _events(
    probes: Sequence[Probe | None], starts_s: Sequence[float], ends_s: Sequence[float], began_s: float
) -> list[dict[str, object]]:
    """One event for each row with a probe, and the time before it as a launch."""
    rows: list[dict[str, object]] = []
    for number, probe in enumerate(probes):
        if probe is None:
            continue
        timed = {"start_s": began_s + starts_s[number], "duration_s": ends_s[number] - starts_s[number]}
        rows.append({**probe.facts, **timed, "device": "cpu0", "stream": 0, "thread": 0})
        if number:
            gap = {"start_s": began_s + ends_s[number - 1], "duration_s": starts_s[number] - ends_s[number - 1]}
            rows.append({**gap, "kind": "launch", "name": "interpreter", "thread": 0})
    return rows


def _provenance(programs: Sequence[BoundProgram], repeats: int) -> dict[str, str]:
    return {
        "source": "stepsim record",
        "machine": "this_cpu",
        "processor": processor(),
        "system": platform.platform(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "threads": str(torch.get_num_threads()),
        "repeats": str(repeats),
        "workloads": ", ".join(f"{bound.workload.name} (batch {bound.workload.batch})" for bound in programs),
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }
