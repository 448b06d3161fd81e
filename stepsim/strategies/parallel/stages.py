"""Which stage of a pipeline runs each op of a step.

Forward ops are cut into contiguous stages of about equal FLOP. A backward op goes where its parameter is; one without,
to the latest stage that made an activation which it reads; one that reads gradients alone, to the earliest stage that
made one of them. An update op goes where its parameter is.
"""

from collections.abc import Sequence
from itertools import accumulate

from stepsim.errors import PlanError
from stepsim.workloads import Op, Phase, Role, Tensor, Workload


def stages_of_ops(workload: Workload, num_stages: int) -> list[int]:
    """The stage of each op. Raises `PlanError` for a workload that cannot be cut into ``num_stages``."""
    placement = _Placement(workload)
    placement.place_forward(cuts(workload, num_stages))
    placement.place_backward(last=num_stages - 1)
    placement.place_updates()
    placement.check()
    return placement.stages


def phases_of_ops(workload: Workload) -> list[Phase]:
    """In which phase each op runs: an update from activations (of a batch norm's statistics) in every forward pass."""
    made: set[int] = set()
    phases = []
    for op in workload.ops:
        late = op.phase is Phase.UPDATE and not made.isdisjoint(op.inputs)
        phases.append(Phase.FORWARD if late else op.phase)
        if phases[-1] is Phase.FORWARD:
            made.update(op.outputs)
    return phases


def tensors_of_microbatch(workload: Workload) -> frozenset[int]:
    """What each microbatch makes for itself: the outputs of forward and backward ops, without weight gradients."""
    phases = phases_of_ops(workload)
    made = {
        tensor
        for op, phase in zip(workload.ops, phases, strict=True)
        if phase is not Phase.UPDATE
        for tensor in op.outputs
    }
    return frozenset(made - set(workload.gradients.values()))


def cuts(workload: Workload, num_stages: int) -> list[int]:
    """At which of the forward ops each stage begins.

    A cut stands where the FLOP before it come closest to its share of all; where ops without FLOP leave a choice,
    where the fewest bytes cross.
    """
    forward = [op for op in workload.ops if op.phase is Phase.FORWARD]
    if num_stages > len(forward):
        raise PlanError(f"pipeline: must be at most {len(forward)}, the forward ops of the workload, got {num_stages}")
    before = [0, *accumulate(op.flop for op in forward)]
    crossing = _crossing_bytes(forward, workload.tensors)
    found = [0]
    for stage in range(1, num_stages):
        allowed = range(found[-1] + 1, len(forward) - (num_stages - stage) + 1)
        goal = before[-1] * stage
        found.append(min(allowed, key=lambda cut: (abs(before[cut] * num_stages - goal), crossing[cut], cut)))
    return found


def _crossing_bytes(forward: Sequence[Op], tensors: Sequence[Tensor]) -> list[int]:
    """For each place to cut, the bytes made before it and read after it."""
    made_at = {tensor: place for place, op in enumerate(forward) for tensor in op.outputs}
    read_at = {tensor: place for place, op in enumerate(forward) for tensor in op.inputs}
    crossing = [0] * (len(forward) + 1)
    for tensor, made in made_at.items():
        for cut in range(made + 1, read_at.get(tensor, made) + 1):
            crossing[cut] += tensors[tensor].size_bytes
    return crossing


class _Placement:
    """Walks over the ops, phase by phase; ``home`` is the stage where each tensor was first touched."""

    def __init__(self, workload: Workload) -> None:
        self.workload = workload
        self.stages = [0] * len(workload.ops)
        self.home: dict[int, int] = {}
        self.phases = phases_of_ops(workload)
        self.made_in = {tensor: self.phases[index] for tensor, index in workload.producer.items()}

    def place_forward(self, begins: Sequence[int]) -> None:
        for place, index in enumerate(self._ops_of(Phase.FORWARD)):
            self._place(index, sum(place >= begin for begin in begins) - 1)

    def place_backward(self, last: int) -> None:
        parameter_of = {gradient: parameter for parameter, gradient in self.workload.gradients.items()}
        for index in self._ops_of(Phase.BACKWARD):
            op = self.workload.ops[index]
            touched = [*op.inputs, *(parameter_of[tensor] for tensor in op.outputs if tensor in parameter_of)]
            made_in = {tensor: self.made_in.get(tensor) for tensor in touched if tensor in self.home}
            parameters, activations, gradients = (
                [self.home[tensor] for tensor, phase in made_in.items() if phase is wanted]
                for wanted in (None, Phase.FORWARD, Phase.BACKWARD)
            )
            self._place(index, max(parameters or activations or [min(gradients, default=last)]))

    def place_updates(self) -> None:
        """An op on optimizer state alone waits until another op has told whose state it is."""
        waiting = self._ops_of(Phase.UPDATE)
        while waiting:
            known = [index for index in waiting if not self.home.keys().isdisjoint(self.workload.ops[index].inputs)]
            for index in known or waiting:
                homes = [self.home[tensor] for tensor in self.workload.ops[index].inputs if tensor in self.home]
                self._place(index, min(homes, default=0))
            waiting = sorted(set(waiting) - set(known)) if known else []

    def check(self) -> None:
        """Activations travel to later stages, gradients of activations to earlier ones; all else stays."""
        of_microbatch = tensors_of_microbatch(self.workload)
        for op, phase, stage in zip(self.workload.ops, self.phases, self.stages, strict=True):
            for tensor in op.inputs:
                name, home = self.workload.tensors[tensor].name, self.home.get(tensor, stage)
                made_in = self.made_in.get(tensor) if tensor in of_microbatch else None
                if made_in is not None and (phase is Phase.UPDATE or (phase, made_in) == _TOO_EARLY):
                    raise PlanError(f"op {op.name!r} runs once a step, and reads {name!r}, which each microbatch makes")
                comes = (made_in is Phase.FORWARD and stage > home) or (made_in is Phase.BACKWARD and stage < home)
                if stage != home and not comes:
                    raise PlanError(f"op {op.name!r} of stage {stage} reads {name!r}, which stays on stage {home}")

    def _ops_of(self, phase: Phase) -> list[int]:
        return [index for index, op in enumerate(self.workload.ops) if op.phase is phase]

    def _place(self, index: int, stage: int) -> None:
        """Inputs of the step have no home: every stage loads what it reads."""
        op = self.workload.ops[index]
        self.stages[index] = stage
        for tensor in (*op.inputs, *op.outputs):
            if self.workload.tensors[tensor].role is not Role.INPUT:
                self.home.setdefault(tensor, stage)


_TOO_EARLY = (Phase.FORWARD, Phase.BACKWARD)
"""Of an update from activations and gradients: it cannot run forward."""
