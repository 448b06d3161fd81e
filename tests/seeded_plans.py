"""Plans in which everything happens, drawn from a numpy generator: quick to draw, thousands of them.

Rows are drawn one after the other, each with its price, so that of one seed fewer rows are the begin of more: a plan on
which two engines differ shrinks to the rows up to the first difference.
"""

import math
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.random import Generator
from seeded_machines import seeded_machine
from small_machines import RowCosts

from stepsim.machines import DeviceKind, Machine
from stepsim.plan import Plan
from stepsim.plan.builder import PlanBuilder


class Case(NamedTuple):
    plan: Plan
    machine: Machine
    costs: RowCosts


SECONDS: tuple[Callable[[Generator], float], ...] = (
    lambda random: random.integers(0, 9) / 8,
    lambda random: random.integers(0, 11) / 10,
    lambda random: float(random.exponential()),
)
"""Of exact sums, so that many instants coincide; of sums that tie on paper only; and any."""

SHARES = (0.0, 0.1, 0.2, 0.25, 1 / 3, 0.5, 0.7, 0.75, 1.0)
KINDS = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "all_to_all")


def busy_case(seed: int, num_rows: int) -> Case:
    """Every mechanism. In one of ten cases members of groups may hold their thread, and the plan may deadlock."""
    draft = BusyDraft(np.random.default_rng(seed))
    while len(draft.rows) < num_rows:
        draft.add_rows()
    return Case(draft.builder.build(), draft.machine, draft.costs())


@dataclass
class BusyDraft:
    """A plan and its prices, as far as they are drawn."""

    random: Generator
    builder: PlanBuilder = field(default_factory=PlanBuilder)
    rows: list[int] = field(default_factory=list)
    earlier: list[int] = field(default_factory=list)
    prices: dict[str, list[Any]] = field(default_factory=lambda: defaultdict(list))
    live: list[tuple[int, int]] = field(default_factory=list)  # buffer and owner stream
    device_of: dict[int, int] = field(default_factory=dict)  # by stream

    def __post_init__(self) -> None:
        random, builder = self.random, self.builder
        self.machine = seeded_machine(random, num_gpus=int(random.integers(1, 5)), with_cpu=random.random() < 0.2)
        self.devices = [builder.device(device.name) for device in self.machine.devices]
        self.host = self.devices[-1]
        self.gpus = [at for at in self.devices if self.machine.devices[at].kind is DeviceKind.GPU]
        self.compute = [self._streams(at, "c", int(random.integers(1, 4))) for at in self.devices[:-1]]
        self.side = [self._streams(at, "m", 3) for at in self.devices[:-1]]
        self.threads = [builder.thread(f"t{i}") for i in range(random.integers(1, 4))]
        self.seconds = SECONDS[random.integers(len(SECONDS))]
        self.launches, self.deadlocks = random.random(2) < (0.5, 0.1)
        self.shares = random.choice([0.0, 0.5, 1.0])

    def _streams(self, device: int, name: str, number: int) -> list[int]:
        priority = self.random.integers(0, 3, number).tolist()
        streams = [self.builder.stream(f"{name}{i}", device, priority=priority[i]) for i in range(number)]
        self.device_of |= dict.fromkeys(streams, device)
        return streams

    def add_rows(self) -> None:
        """One row, or all rows of a group, which do not wait for each other."""
        self.earlier = list(self.rows)
        kinds = ("kernel", "in_place", "release", "host_work", "swap_out", "swap_in", "copy", "message", "collective")
        kind = self.random.choice(kinds, p=(0.34, 0.06, 0.06, 0.1, 0.09, 0.09, 0.1, 0.06, 0.1))
        getattr(self, f"_{kind}")()

    def costs(self) -> RowCosts:
        return RowCosts(**self.prices)

    # --- what a row may be ---------------------------------------------------------------------------------------

    def _kernel(self) -> None:
        stream = self._one(self.compute)
        buffer = self.builder.buffer(1, self.device_of[stream], owner=stream)
        self.live.append((buffer, stream))
        self._note(self.builder.compute(self._work(), stream, writes=[buffer], allocates=[buffer], **self._free()))

    def _in_place(self) -> None:
        for buffer, stream in self._any(self.live):
            self._note(self.builder.recompute(self._work(), stream, reads=[buffer], writes=[buffer], **self._free()))

    def _release(self) -> None:
        for entry in self._any(self.live):
            self.live.remove(entry)
            self._note(self.builder.release([entry[0]], entry[1], **self._free()))

    def _host_work(self) -> None:
        columns = self._in_group()
        del columns["blocks_thread"]
        self._note(self.builder.host(self._work(), **columns))

    def _swap_out(self) -> None:
        stream = self._one(self.side)
        ends = self._pair(self.device_of[stream], self.host)
        self._note(self.builder.swap_out(*ends, stream, **self._free()))

    def _swap_in(self) -> None:
        stream = self._one(self.side)
        ends = self._pair(self.host, self.device_of[stream])
        self._note(self.builder.swap_in(*ends, stream, **self._free()))

    def _copy(self) -> None:
        """From, to or within a device; now and then on a stream of kernels."""
        stream = self._one(self.side if self.random.random() < 0.8 else self.compute)
        ends = [self.device_of[stream], int(self.random.choice(self.devices))]
        source, target = ends if self.random.random() < 0.7 else ends[::-1]
        self._note(self.builder.copy(*self._pair(source, target), stream, **self._free()))

    def _message(self) -> None:
        if len(self.gpus) > 1:
            one, two = self.random.choice(self.gpus, 2, replace=False).tolist()
            group, (source, target) = self.builder.group(), self._pair(one, two)
            self._note(self.builder.send(source, two, self._on(one), group, **self._in_group()))
            self._note(self.builder.receive(target, one, self._on(two), group, **self._in_group()))

    def _collective(self) -> None:
        """Over some gpus, in any order; the members stand side by side in that order."""
        team = self.random.permutation(self.gpus)[: self.random.integers(1, len(self.gpus) + 1)].tolist()
        kind, algorithm = self._pattern(team)
        group, size_bytes = self.builder.group(), self._size_bytes()
        for device in team:
            columns = {"size_bytes": size_bytes, "algorithm": algorithm, **self._in_group()}
            self._note(self.builder.collective(kind, team, self._on(device), group, **columns))

    def _pattern(self, team: list[int]) -> tuple[str, str]:
        """Kind and algorithm: not every kind has a tree, and a hierarchy needs as many members on each node."""
        known = [(kind, algorithm) for kind in KINDS for algorithm in ("auto", "ring")]
        known += [("all_reduce", "tree"), ("broadcast", "tree")]
        nodes = [self.machine.devices[device].node for device in team]
        if len({nodes.count(node) for node in nodes}) == 1:
            known += [(kind, "hierarchical") for kind in KINDS]
        return known[self.random.integers(len(known))]

    # --- parts of a row ------------------------------------------------------------------------------------------

    def _note(self, row: int) -> None:
        """Draws its price."""
        random = self.random
        price = {
            "seconds": 0.0 if random.random() < 0.1 else self.seconds(random),
            "launch_s": self.seconds(random) / 8 if self.launches else 0.0,
            "latency_s": self.seconds(random) / 4 if random.random() < 0.5 else 0.0,
            "rate_cap_bytes_per_s": random.choice([math.inf, 0.3, 0.5, 0.7, 1.0, 2.0]),
            "fixed": random.random() < 0.1,
            "sm_share": random.choice(SHARES) if random.random() < self.shares else 0.0,
            "bandwidth_share": random.choice(SHARES) if random.random() < self.shares else 0.0,
        }
        self.rows.append(row)
        for name, value in price.items():
            self.prices[name].append(value)

    def _free(self) -> dict[str, Any]:
        return {**self._in_group(), "blocks_thread": self.random.random() < 0.1}

    def _in_group(self) -> dict[str, Any]:
        random = self.random
        after = {self.earlier[-back] for back in random.integers(1, 9, 2).tolist() if back <= len(self.earlier)}
        return {
            "thread": int(random.choice(self.threads)),
            "after": after if random.random() < 0.5 else (),
            "blocks_thread": bool(self.deadlocks and random.random() < 0.2),
        }

    def _pair(self, source: int, target: int) -> tuple[int, int]:
        """Two buffers of one size, there from the start unless the row allocates them."""
        size_bytes = self._size_bytes()
        return self.builder.buffer(size_bytes, source), self.builder.buffer(size_bytes, target)

    def _size_bytes(self) -> int:
        return int(self.random.integers(0, 7))

    def _work(self) -> int:
        return self.builder.work("work")

    def _one(self, streams: list[list[int]]) -> int:
        return int(self.random.choice(streams[self.random.integers(len(streams))]))

    def _on(self, device: int) -> int:
        """A stream of ``device``; now and then one of kernels."""
        return int(self.random.choice((self.side if self.random.random() < 0.8 else self.compute)[device]))

    def _any(self, entries: list[Any]) -> list[Any]:
        return [entries[self.random.integers(len(entries))]] if entries else []
