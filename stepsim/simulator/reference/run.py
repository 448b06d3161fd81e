"""The state of one simulated run: the clock, what rows share, and what has happened to each."""

from collections import defaultdict
from dataclasses import dataclass
from itertools import pairwise
from math import nan

import numpy as np
import simpy

from stepsim.plan import NONE
from stepsim.simulator.outcome import Outcome, Progress, Sharing
from stepsim.simulator.problem import Problem, Stages
from stepsim.simulator.reference.copy_engines import CopyEngine
from stepsim.simulator.reference.flows import SharedLinks
from stepsim.simulator.reference.instants import RATES, STARTS, Phase, Steps
from stepsim.simulator.reference.kernels import SharedDevice

TOLD_EVERY = 1000
"""Rows between two calls of progress: a fraction of a second."""


@dataclass(eq=False)
class Group:
    """Rows that meet: a send and its receive, or the members of a collective. ``missing`` have yet to arrive."""

    rows: list[int]
    missing: int
    done: simpy.Event


@dataclass(frozen=True, slots=True, eq=False)
class Stage:
    """Bytes that flow together: of `stepsim.machines.collectives.Stage`, with links by their number."""

    volume: float
    rate_bytes_per_s: float
    weights: dict[int, float]


class Run:
    """Columns of the problem as lists, the things that rows share, and the events that processes wait for."""

    def __init__(self, problem: Problem, sharing: Sharing, progress: Progress | None) -> None:
        self.env = env = simpy.Environment()
        starts, rates = Phase(env, STARTS), Phase(env, RATES)
        prices, rows = problem.prices, range(len(problem.plan))

        self.kind = problem.kind.tolist()
        self.blocks = problem.blocks.tolist()
        self.device = problem.device.tolist()
        self.priority = problem.priority.tolist()
        self.engine = problem.engine.tolist()
        self.path = problem.path.tolist()
        self.dependencies = problem.dependencies.to_lists()
        self.seconds = prices.seconds.tolist()
        self.launch_s = prices.launch_s.tolist()
        self.latency_s = prices.latency_s.tolist()
        self.size_bytes = prices.size_bytes.tolist()
        self.rate_cap_bytes_per_s = prices.rate_cap_bytes_per_s.tolist()
        self.needs = list(zip(prices.sm_share.tolist(), prices.bandwidth_share.tolist(), strict=True))

        self.devices = [SharedDevice(env, rates, sharing) for _ in problem.plan.devices.name]
        self.engines = [CopyEngine(env, starts, slots) for slots in problem.engine_slots.tolist()]
        self.links = SharedLinks(env, rates, problem.link_bytes_per_s.tolist())
        self.stages = _stages(problem.stages)
        self.group = _groups(problem.group.tolist(), env)

        self.issued = [env.event() for _ in rows]
        self.ended = [env.event() for _ in rows]
        self.ready_s, self.start_s, self.end_s = ([nan for _ in rows] for _ in range(3))
        self.num_ended, self._progress = 0, progress

    def arrive(self, row: int) -> None:
        """It has been issued, is at the head of its stream, and all that it depends on has ended."""
        self.ready_s[row] = self.env.now

    def begin(self, row: int) -> None:
        self.start_s[row] = self.env.now

    def finish(self, row: int) -> None:
        self.end_s[row] = self.env.now
        self.ended[row].succeed()
        self.num_ended += 1
        if self._progress is not None and self.num_ended % TOLD_EVERY == 0:
            self._progress(self.num_ended, len(self.ended))

    def wait(self, row: int) -> Steps:
        """Until everything that ``row`` depends on has ended."""
        for earlier in self.dependencies[row]:
            yield self.ended[earlier]

    def spend(self, seconds: float) -> Steps:
        if seconds > 0:
            yield self.env.timeout(seconds)

    def outcome(self) -> Outcome:
        start_s = np.array(self.start_s, np.float64)
        return Outcome(
            ready_s=np.where(np.isnan(start_s), nan, np.array(self.ready_s, np.float64)),
            start_s=start_s,
            end_s=np.array(self.end_s, np.float64),
            issued=np.array([event.triggered for event in self.issued], np.bool_),
        )


def _stages(stages: Stages) -> list[list[Stage]]:
    """By path; and, as the last, the stages of a row without one."""
    volumes, rates = stages.volume.tolist(), stages.rate_bytes_per_s.tolist()
    links, weights, starts = stages.links.to_lists(), stages.weights.tolist(), stages.links.starts.tolist()
    flat = [
        Stage(volumes[s], rates[s], dict(zip(links[s], weights[starts[s] : starts[s + 1]], strict=True)))
        for s in range(len(volumes))
    ]
    first = stages.first.tolist()
    return [*(flat[a:b] for a, b in pairwise(first)), []]


def _groups(numbers: list[int], env: simpy.Environment) -> list[Group | None]:
    """By row."""
    members: dict[int, list[int]] = defaultdict(list)
    for row, number in enumerate(numbers):
        members[number].append(row)
    groups = {number: Group(rows, len(rows), env.event()) for number, rows in members.items() if number != NONE}
    return [groups.get(number) for number in numbers]
