"""Stages: what each part of a pipeline runs, what goes from one to the next, and how long a tensor is needed.

An activation goes up to the last stage that reads it, a gradient of one down to the first, from neighbour to neighbour.
It leaves when its stage has read it for the last time in that phase.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from stepsim.plan import NONE
from stepsim.strategies.parallel.stages import phases_of_ops, stages_of_ops, tensors_of_microbatch
from stepsim.workloads import Phase, Workload

Numbers = tuple[int, ...]
"""Of ops or of tensors."""

ByPhase = Mapping[Phase, Numbers]

Sends = Mapping[Phase, Mapping[int, Numbers]]
"""By phase: an op, or NONE, to what leaves after it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """What one stage does for each microbatch, by phase; its update comes once.

    ``sends`` has the tensors that leave after an op, or after NONE: as soon as they have come. ``receives`` are in the
    order in which the neighbour sends them. ``ends`` has, for an op, the tensors of which it is the last user;
    ``sent_away`` are those of which the send is.
    """

    ops: ByPhase
    sends: Sends
    receives: ByPhase
    ends: Mapping[int, Numbers]
    sent_away: Mapping[int, Phase]


def stages_of(workload: Workload, num_stages: int) -> list[Stage]:
    """The stages of ``workload``, first to last. Raises `PlanError` for a workload that cannot be cut so."""
    placed = stages_of_ops(workload, num_stages)
    ways = _ways(workload, placed)
    ops = [_ops_of(workload, placed, stage) for stage in range(num_stages)]
    sends = [_sends(workload, ops[stage], ways, stage) for stage in range(num_stages)]
    nothing: Sends = {Phase.FORWARD: {}, Phase.BACKWARD: {}}
    below, above = [nothing, *sends[:-1]], [*sends[1:], nothing]
    stages = []
    for mine, leaving, from_below, from_above in zip(ops, sends, below, above, strict=True):
        receives = {
            Phase.FORWARD: _all(from_below[Phase.FORWARD]),
            Phase.BACKWARD: _all(from_above[Phase.BACKWARD]),
        }
        ends, sent_away = _ends_and_departures(workload, mine, leaving)
        stages.append(Stage(ops=mine, sends=leaving, receives=receives, ends=ends, sent_away=sent_away))
    return stages


def _ops_of(workload: Workload, placed: list[int], stage: int) -> ByPhase:
    here = [(index, phase) for index, phase in enumerate(phases_of_ops(workload)) if placed[index] == stage]
    return {wanted: tuple(index for index, phase in here if phase is wanted) for wanted in Phase}


def _ways(workload: Workload, placed: list[int]) -> dict[Phase, dict[int, range]]:
    """For each tensor that a microbatch makes forward or backward: the stages that send it on."""
    ways: dict[Phase, dict[int, range]] = {Phase.FORWARD: {}, Phase.BACKWARD: {}}
    phases = phases_of_ops(workload)
    for tensor in sorted(tensors_of_microbatch(workload)):
        producer = workload.producer[tensor]
        home, readers = placed[producer], [placed[reader] for reader in workload.consumers[tensor]]
        if phases[producer] is Phase.FORWARD:
            ways[Phase.FORWARD][tensor] = range(home, max(readers, default=home))
        else:
            ways[Phase.BACKWARD][tensor] = range(min(readers, default=home) + 1, home + 1)
    return ways


def _sends(workload: Workload, ops: ByPhase, ways: Mapping[Phase, Mapping[int, range]], stage: int) -> Sends:
    """What ``stage`` sends after which op: the one of the phase that touches it last."""
    found: dict[Phase, dict[int, Numbers]] = {}
    for phase, way_of in ways.items():
        last = {tensor: index for index in ops[phase] for tensor in _touched(workload, index)}
        after: dict[int, Numbers] = {}
        for tensor in (tensor for tensor, way in way_of.items() if stage in way):
            op = last.get(tensor, NONE)
            after[op] = (*after.get(op, ()), tensor)
        found[phase] = dict(sorted(after.items()))
    return found


def _ends_and_departures(workload: Workload, ops: ByPhase, sends: Sends) -> tuple[dict[int, Numbers], dict[int, Phase]]:
    """`Stage.ends` and `Stage.sent_away`."""
    last = {tensor: (phase, index) for phase in Phase for index in ops[phase] for tensor in _touched(workload, index)}
    sent = {tensor: phase for phase, after in sends.items() for tensor in _all(after)}
    away = {tensor: phase for tensor, phase in sent.items() if tensor not in last or last[tensor][0] is phase}
    of_microbatch = tensors_of_microbatch(workload)
    ends: dict[int, Numbers] = {}
    for tensor, (phase, index) in last.items():
        is_made = tensor in of_microbatch or (tensor in workload.producer and phase is Phase.UPDATE)
        if is_made and tensor not in away:
            ends[index] = (*ends.get(index, ()), tensor)
    return ends, away


def _touched(workload: Workload, index: int) -> Numbers:
    return (*workload.ops[index].inputs, *workload.ops[index].outputs)


def _all(after: Mapping[int, Numbers]) -> Numbers:
    return tuple(tensor for tensors in after.values() for tensor in tensors)
