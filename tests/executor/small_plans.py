"""Tiny models bound once for all tests of a run, and plans for them."""

from collections.abc import Mapping
from functools import cache
from itertools import cycle

import torch

from stepsim.executor import BoundProgram
from stepsim.machines import this_cpu
from stepsim.memory import memory_profile
from stepsim.plan import Plan
from stepsim.strategies.memory.lowering import plan_for_policy
from stepsim.strategies.memory.schedule import Action, can_recompute, candidates
from stepsim.workloads.factory import Factory

UNLIMITED = 10**15
CPU = "cpu0"


def bind(factory: Factory, batch: int = 2) -> BoundProgram:
    """A module of its own, for tests that look at what it was before or that spoil it."""
    torch.manual_seed(0)
    return BoundProgram.of(factory, batch, factory.__name__)


@cache
def bound_to(factory: Factory, batch: int = 2) -> BoundProgram:
    """The same module whenever it is asked for: every run trains it a little further."""
    return bind(factory, batch)


def plan_of(bound: BoundProgram, policy: Mapping[int, Action], memory_bytes: int = UNLIMITED) -> Plan:
    return plan_for_policy(bound.workload, this_cpu(), policy, memory_bytes)


def policy_of(bound: BoundProgram, *actions: Action) -> dict[int, Action]:
    """``actions`` in turns over all tensors, but for those that cannot be recomputed."""
    workload = bound.workload
    drawn = dict(zip(candidates(workload), cycle(actions), strict=False))
    return {t: action for t, action in drawn.items() if action is not Action.RECOMPUTE or can_recompute(workload, t)}


def keep_all_peak_bytes(bound: BoundProgram) -> int:
    return memory_profile(plan_of(bound, {})).peak_bytes(CPU)


def fresh_inputs(bound: BoundProgram, generator: torch.Generator) -> list[torch.Tensor]:
    return [_fresh(tensor, generator) for tensor in bound.step.inputs]


def _fresh(like: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    if like.is_floating_point():
        return torch.randn(like.shape, generator=generator)
    return torch.randint(4, like.shape, generator=generator)
