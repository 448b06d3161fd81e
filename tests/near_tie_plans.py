"""Plans whose ends tie on paper, as 0.1 + 0.2 does with 0.3, before a copy engine that serves the first to come.

lane 0   11 2222.333.CC        three lanes do work of equal sums, cut differently, each behind a kernel or a transfer,
lane 1   1111.22  ...CCC       and then all want the one engine: which goes first hangs on the last place of a sum
beside   - --- - -- ---        while others come and go that change nobody's rate
"""

import numpy as np
from numpy.random import Generator
from seeded_plans import Case
from small_machines import RowCosts, device, link

from stepsim.machines import DeviceKind, Machine, Route
from stepsim.plan.builder import PlanBuilder

PACE_BYTES_PER_S = 10.0
"""A byte takes what a tick does: a tenth of a second."""


def near_tie_case(seed: int, num_rounds: int) -> Case:
    draft = TieDraft(np.random.default_rng(seed))
    for _ in range(num_rounds):
        draft.add_round()
    costs = RowCosts(
        seconds=[ticks / 10 for ticks in draft.ticks],
        rate_cap_bytes_per_s=PACE_BYTES_PER_S,
        sm_share=draft.sm_share,
        bandwidth_share=draft.bandwidth_share,
    )
    return Case(draft.builder.build(), _machine(draft.random), costs)


def _machine(random: Generator) -> Machine:
    """``gpu0`` with its engine to the host, and ``gpu1``, which sends to it over a link that may be too narrow."""
    peers_bytes_per_s = PACE_BYTES_PER_S * float(random.choice([1.5, 2.5, 4.0]))
    ways = {"gpu1 to gpu0": peers_bytes_per_s, "gpu0 to host": PACE_BYTES_PER_S}
    return Machine(
        name="near ties",
        devices=(
            device("gpu0", DeviceKind.GPU),
            device("gpu1", DeviceKind.GPU),
            device("host", DeviceKind.HOST),
        ),
        links=tuple(link(way, bytes_per_s) for way, bytes_per_s in ways.items()),
        routes=tuple(Route(source=way[:4], destination=way[8:], links=(way,)) for way in ways),
    )


class TieDraft:
    """Lanes of a plan, each a stream on ``gpu0`` with a thread of its own."""

    def __init__(self, random: Generator) -> None:
        self.random, self.builder = random, PlanBuilder()
        self.gpu, self.peer, self.host = (self.builder.device(name) for name in ("gpu0", "gpu1", "host"))
        lanes = range(random.integers(2, 5))
        self.lane = [self.builder.stream(f"lane {i}", self.gpu) for i in lanes]
        self.sender = [self.builder.stream(f"sender {i}", self.peer) for i in lanes]
        self.thread = [self.builder.thread(f"thread {i}") for i in lanes]
        self.last: list[int | None] = [None for _ in lanes]
        self.beside = self.builder.stream("beside", self.gpu)
        self.share = float(random.choice([0.1, 0.2, 0.4]))
        self.ticks: list[int] = []
        self.sm_share: list[float] = []
        self.bandwidth_share: list[float] = []

    def add_round(self) -> None:
        """Each lane does the same number of ticks in pieces of its own, and then copies what it likes to the host."""
        ticks = int(self.random.integers(3, 13))
        for lane in range(len(self.lane)):
            cuts = self.random.choice(np.arange(1, ticks), self.random.integers(0, 3), replace=False)
            for piece in np.diff([0, *sorted(cuts.tolist()), ticks]).tolist():
                self._add_piece(lane, piece)
            self._add_beside()
        for lane, stream in enumerate(self.lane):
            size_bytes = int(self.random.integers(1, 10))
            buffers = self.builder.buffer(size_bytes, self.gpu), self.builder.buffer(size_bytes, self.host)
            self._note(lane, self.builder.copy(*buffers, stream, **self._behind(lane)))

    def _add_piece(self, lane: int, ticks: int) -> None:
        match self.random.integers(4):
            case 0:
                self._note(lane, self.builder.host(self._work(), **self._behind(lane)), ticks=ticks)
            case 1:
                buffers = self.builder.buffer(ticks, self.gpu), self.builder.buffer(ticks, self.gpu)
                self._note(lane, self.builder.copy(*buffers, self.lane[lane], **self._behind(lane)))
            case 2:
                self._add_message(lane, ticks)
            case _:
                row = self.builder.compute(self._work(), self.lane[lane], **self._behind(lane))
                self._note(lane, row, ticks=ticks, share=self.share)

    def _add_message(self, lane: int, ticks: int) -> None:
        source, target = self.builder.buffer(ticks, self.peer), self.builder.buffer(ticks, self.gpu)
        group, behind = self.builder.group(), self._behind(lane)
        self._note(lane, self.builder.send(source, self.gpu, self.sender[lane], group, **behind))
        self._note(lane, self.builder.receive(target, self.peer, self.lane[lane], group, **behind))

    def _add_beside(self) -> None:
        ticks = self.random.integers(1, 5, 3) / 3
        for piece in ticks.tolist():
            row = self.builder.compute(self._work(), self.beside)
            self._note(None, row, ticks=piece, share=0.1)

    def _note(self, lane: int | None, row: int, *, ticks: float = 0.0, share: float = 0.0) -> None:
        self.ticks.append(ticks)
        self.sm_share.append(share)
        self.bandwidth_share.append(share / 2)
        if lane is not None:
            self.last[lane] = row

    def _behind(self, lane: int) -> dict[str, object]:
        """On the thread of the lane, after its last row."""
        return {"thread": self.thread[lane], "after": [row for row in [self.last[lane]] if row is not None]}

    def _work(self) -> int:
        return self.builder.work("work")
