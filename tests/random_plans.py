"""Random plans for property tests: every plan drawn passes the self-check and can run to its end.

The builder adds what the data demands; the strategies draw the rest: how many devices, streams, threads and processes,
what each row does to which buffer, and what it waits for beyond that. The rows of a group stand side by side and never
block their thread, which is why no plan deadlocks.
"""

import math
from dataclasses import dataclass, field

from hypothesis import strategies as st
from near_tie_plans import near_tie_case
from seeded_plans import Case, busy_case
from small_machines import RowCosts, gpus

from stepsim.machines import Machine
from stepsim.plan import NONE, Plan
from stepsim.plan.builder import PlanBuilder

EIGHTHS = st.integers(0, 16).map(lambda eighths: eighths / 8)
"""Seconds whose sums are exact, so that many instants coincide."""

ANY_SECONDS = st.one_of(st.just(0.0), st.floats(1e-3, 10.0))
"""Seconds whose sums are rounded."""


@dataclass
class Draft:
    """A plan being drawn, on ``num_gpus`` devices with streams and threads each."""

    draw: st.DrawFn
    num_gpus: int
    builder: PlanBuilder = field(default_factory=PlanBuilder)
    rows: list[list[int]] = field(default_factory=list)  # by process
    written: set[int] = field(default_factory=set)  # live buffers with a value
    on_host: set[int] = field(default_factory=set)
    place: dict[int, tuple[int, int]] = field(default_factory=dict)  # buffer to gpu and owner stream
    size_bytes: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        draw, builder, gpus_ = self.draw, self.builder, range(self.num_gpus)
        apart = draw(st.booleans(), label="a process for each gpu")
        self.process = [gpu if apart else 0 for gpu in gpus_]
        self.rows = [[] for _ in gpus_]
        self.gpu = [builder.device(f"gpu{gpu}", process=self.process[gpu]) for gpu in gpus_]
        self.host = builder.device("host")
        self.compute = [
            [builder.stream(f"s{i}", gpu) for i in range(draw(st.integers(1, 2), label="streams"))] for gpu in self.gpu
        ]
        self.d2h, self.h2d = (
            [[builder.stream(f"{role} {i}", gpu, role=role) for i in range(2)] for gpu in self.gpu]
            for role in ("d2h", "h2d")
        )
        self.talk = {
            (a, b): (builder.stream(f"to {b}", self.gpu[a]), builder.stream(f"from {a}", self.gpu[b]))
            for a in gpus_
            for b in gpus_
            if a != b
        }
        self.reduce = [builder.stream("reduce", gpu) for gpu in self.gpu]
        self.threads = [
            [builder.thread(f"t{i}", process=process) for i in range(draw(st.integers(1, 2), label="threads"))]
            for process in sorted(set(self.process))
        ]
        for gpu in gpus_:
            self._new_buffer(gpu)
        self.written |= set(self.place)

    def add_row(self, kind: str) -> None:
        getattr(self, f"_{kind}")(self.draw(st.integers(0, self.num_gpus - 1), label="gpu"))

    # --- what a row may be ---------------------------------------------------------------------------------------

    def _kernel(self, gpu: int) -> None:
        inputs = self._some(self._live(gpu), 2)
        stream = self.draw(st.sampled_from(self.compute[gpu]))
        output = self._new_buffer(gpu, stream)
        again = self.draw(st.booleans(), label="recompute")
        add = self.builder.recompute if again else self.builder.compute
        row = add(self._work(), stream, reads=inputs, writes=[output], allocates=[output], **self._free(gpu))
        self._note(gpu, row, output)

    def _in_place(self, gpu: int) -> None:
        for target in self._one(self._live(gpu)):
            stream = self.draw(st.sampled_from(self.compute[gpu]))
            row = self.builder.compute(self._work(), stream, reads=[target], writes=[target], **self._free(gpu))
            self._note(gpu, row)

    def _host_work(self, gpu: int) -> None:
        columns = self._free(gpu)
        del columns["blocks_thread"]
        self._note(gpu, self.builder.host(self._work(), **columns))

    def _swap_out(self, gpu: int) -> None:
        if self.process[gpu] != 0:
            return  # the host device is of process 0
        for source in self._one(self._live(gpu)):
            copy = self.builder.buffer(self.size_bytes[source], self.host)
            self.size_bytes[copy] = self.size_bytes[source]
            stream = self.draw(st.sampled_from(self.d2h[gpu]))
            row = self.builder.swap_out(source, copy, stream, **self._free(gpu))
            self.on_host.add(copy)
            self._note(gpu, row)

    def _swap_in(self, gpu: int) -> None:
        if self.process[gpu] != 0:
            return
        for copy in self._one(sorted(self.on_host)):
            target = self._new_buffer(gpu, self.draw(st.sampled_from(self.compute[gpu])), self.size_bytes[copy])
            stream = self.draw(st.sampled_from(self.h2d[gpu]))
            row = self.builder.swap_in(copy, target, stream, **self._free(gpu))
            self.on_host.discard(copy)
            self._note(gpu, row, target)

    def _drop(self, gpu: int) -> None:
        for buffer in self._one([b for b in self._live(gpu) if self.place[b][1] >= 0]):
            row = self.builder.release([buffer], self.place[buffer][1], **self._free(gpu))
            self.written.discard(buffer)
            self._note(gpu, row)

    def _message(self, gpu: int) -> None:
        if self.num_gpus == 1:
            return
        to = (gpu + 1) % self.num_gpus
        out, into = self.talk[gpu, to]
        for source in self._one(self._live(gpu)):
            sending, receiving, group = self._in_group(gpu), self._in_group(to), self.builder.group()
            target = self._new_buffer(to, into, self.size_bytes[source])
            send = self.builder.send(source, self.gpu[to], out, group, **sending)
            receive = self.builder.receive(target, self.gpu[gpu], into, group, allocates=[target], **receiving)
            self._note(gpu, send)
            self._note(to, receive, target)

    def _all_reduce(self, _: int) -> None:
        group, members = self.builder.group(), [self._in_group(gpu) for gpu in range(self.num_gpus)]
        rows = [
            self.builder.collective("all_reduce", self.gpu, stream, group, size_bytes=8, **columns)
            for stream, columns in zip(self.reduce, members, strict=True)
        ]
        for gpu, row in enumerate(rows):
            self._note(gpu, row)

    # --- parts of a row ------------------------------------------------------------------------------------------

    def _free(self, gpu: int) -> dict[str, object]:
        return {**self._in_group(gpu), "blocks_thread": self.draw(st.integers(0, 9), label="blocks") == 1}

    def _in_group(self, gpu: int) -> dict[str, object]:
        thread = self.draw(st.sampled_from(self.threads[self.process[gpu]]), label="thread")
        return {"thread": thread, "after": self._some(self.rows[self.process[gpu]], 1)}

    def _some(self, pool: list[int], most: int) -> list[int]:
        if not pool:
            return []
        return self.draw(st.lists(st.sampled_from(pool), max_size=most, unique=True))

    def _one(self, pool: list[int]) -> list[int]:
        """One of ``pool``; none if it is empty, and then there will be no row."""
        return [self.draw(st.sampled_from(pool))] if pool else []

    def _live(self, gpu: int) -> list[int]:
        return sorted(buffer for buffer in self.written if self.place[buffer][0] == gpu)

    def _new_buffer(self, gpu: int, owner: int = -1, size_bytes: int | None = None) -> int:
        if size_bytes is None:
            size_bytes = self.draw(st.sampled_from([3, 2, 1, 0]), label="bytes")
        buffer = self.builder.buffer(size_bytes, self.gpu[gpu], owner=owner)
        self.place[buffer], self.size_bytes[buffer] = (gpu, owner), size_bytes
        return buffer

    def _work(self) -> int:
        return self.builder.work("work")

    def _note(self, gpu: int, row: int, *written: int) -> None:
        self.rows[self.process[gpu]].append(row)
        self.written |= set(written)


ON_STREAMS = ["kernel", "kernel", "in_place", "drop", "host_work", "all_reduce"]
"""Rows that never contend for an engine or a link."""

CROWDED = ["kernel", "swap_out", "swap_out", "swap_in"]
"""Rows that mostly wait for an engine."""

EVERYTHING = [*ON_STREAMS, *CROWDED, "message"]


@st.composite
def plans(draw: st.DrawFn, *, kinds: list[str] = EVERYTHING, max_rows: int = 20) -> tuple[Plan, Machine]:
    """A plan with the machine that it fits on; a byte takes a second."""
    draft = Draft(draw, num_gpus=draw(st.integers(1, 2), label="gpus"))
    for kind in draw(st.lists(st.sampled_from(kinds), min_size=draw(st.sampled_from([0, 8])), max_size=max_rows)):
        draft.add_row(kind)
    copy_engines = draw(st.integers(1, 2), label="copy engines")
    return draft.builder.build(), gpus(draft.num_gpus, copy_engines=copy_engines)


@st.composite
def costs_of(
    draw: st.DrawFn, plan: Plan, seconds: st.SearchStrategy[float] = EIGHTHS, *, launches: bool = True
) -> RowCosts:
    """Prices for each row, equal within a group; launch cost 0 when ``launches`` is false."""
    some = st.lists(seconds, min_size=len(plan), max_size=len(plan))
    first = [group if group != NONE else -2 - row for row, group in enumerate(plan.tasks.group.tolist())]
    price_of = [first.index(group) for group in first]
    seconds_, latencies = draw(some, label="seconds"), draw(some, label="latencies")
    return RowCosts(
        seconds=[seconds_[row] for row in price_of],
        launch_s=draw(some, label="launches") if launches else [0.0] * len(plan),
        latency_s=[latencies[row] for row in price_of],
        rate_cap_bytes_per_s=draw(st.sampled_from([0.5, 1.0, math.inf]), label="rate cap"),
    )


SEEDS = st.integers(0, 2**32 - 1)


def busy_plans(max_rows: int = 40) -> st.SearchStrategy[Case]:
    """Plan, machine and costs with every mechanism; fewer rows of a seed are the begin of more."""
    return st.builds(busy_case, SEEDS, st.integers(0, max_rows))


def near_ties(max_rounds: int = 4) -> st.SearchStrategy[Case]:
    """Plan, machine and costs whose ends tie on paper before a copy engine."""
    return st.builds(near_tie_case, SEEDS, st.integers(1, max_rounds))
