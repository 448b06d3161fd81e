"""Probes: what a recorder times, one row each: the distinct work of captured steps, and copies to and from the host."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch

from stepsim.executor.bound import BoundProgram
from stepsim.executor.instructions import HostCopy, RowAction
from stepsim.executor.lanes import Lanes


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """One thing to time: what `Trace` says of it, and the call with its inputs.

    ``fresh`` are the places of those inputs that the op just before it makes: in a step they are still in the caches.
    """

    facts: Mapping[str, object]
    action: RowAction
    values: Sequence[torch.Tensor]
    num_outputs: int
    fresh: Sequence[int] = ()


def work_probes(programs: Sequence[BoundProgram]) -> Iterator[Probe]:
    """The first op of each signature, with copies of the inputs that it has in its step."""
    found: set[str] = set()
    for bound in programs:
        workload = bound.workload
        values = bound.values()
        last = {tensor: index for index, op in enumerate(workload.ops) for tensor in (*op.inputs, *op.outputs)}
        just_made: set[int] = set()
        for index, op in enumerate(workload.ops):
            inputs = [values[tensor] for tensor in op.inputs]
            run = bound.program.ops[index].run
            if op.signature not in found:
                found.add(op.signature)
                moved = {"flop": op.flop, "size_bytes": op.bytes_read + op.bytes_written}
                yield Probe(
                    facts={"kind": "kernel", "name": op.kind, "work": op.signature, **moved},
                    action=run,
                    values=[value.clone(memory_format=torch.preserve_format) for value in inputs],
                    num_outputs=len(op.outputs),
                    fresh=[place for place, tensor in enumerate(op.inputs) if tensor in just_made],
                )
            just_made = set(op.outputs)
            values.update(zip(op.outputs, run(inputs), strict=True))
            del inputs
            for tensor in {*op.inputs, *op.outputs}:
                if last[tensor] == index:
                    del values[tensor]


def copy_probes(lanes: Lanes, sizes_bytes: Sequence[int]) -> Iterator[Probe]:
    """Out to host memory that is there, and into memory that is new: as a swap does it."""
    host = "host" if lanes.device.type == "cpu" else "pinned"
    for size_bytes in sizes_bytes:
        copy, on_device = HostCopy(lanes, size_bytes), lanes.new_storage(size_bytes, lane=0).fill_(1)
        facts: dict[str, object] = {"kind": "copy", "name": "copy", "size_bytes": size_bytes}
        out = {**facts, "source": "device", "destination": host}
        back = {**facts, "source": host, "destination": "device"}
        yield Probe(facts=out, action=copy.swap_out, values=(on_device,), num_outputs=1)
        yield Probe(facts=back, action=copy.swap_in, values=(copy.storage,), num_outputs=1)


def read(values: Sequence[torch.Tensor]) -> Sequence[torch.Tensor]:
    """Bring ``values`` into the caches."""
    for value in values:
        if value.numel():
            value.max()
    return ()
