"""Closed forms: a send that meets its receive, and collectives. A link moves 1 byte per second."""

import pytest
from small_machines import RowCosts, gpus, spans_of

from stepsim.plan.builder import PlanBuilder
from stepsim.simulator import simulate


def handover(*, sender_busy, receiver_busy):
    """gpu0 sends 4 bytes to gpu1; each of the two streams may have a kernel in front."""
    builder = PlanBuilder()
    one, two = builder.device("gpu0"), builder.device("gpu1")
    out, into = builder.stream("send", one, role="send"), builder.stream("receive", two, role="receive")
    group = builder.group()
    if sender_busy:
        builder.compute(builder.work("F"), out)
    if receiver_busy:
        builder.compute(builder.work("G"), into)
    builder.send(builder.buffer(4, one), two, out, group)
    builder.receive(builder.buffer(4, two), one, into, group)
    return builder.build()


@pytest.mark.parametrize(
    ("sender_busy", "receiver_busy", "seconds"),
    [(True, False, [3.0, 0.0, 0.0]), (False, True, [3.0, 0.0, 0.0]), (True, True, [1.0, 3.0, 0.0, 0.0])],
    ids=["receive waits", "send waits", "both work first"],
)
def test_a_send_and_its_receive_start_together_when_the_later_arrives(sender_busy, receiver_busy, seconds, engine):
    """Both run from 3 to 3 + l + n / b.

    send     FFF lSSSS
    receive  ... lSSSS        it arrived first and waits, holding its stream
    """
    plan = handover(sender_busy=sender_busy, receiver_busy=receiver_busy)

    timeline = simulate(plan, gpus(2), RowCosts(seconds=seconds, latency_s=0.5), engine=engine)

    assert spans_of(timeline)[-2:] == [(3.0, 7.5), (3.0, 7.5)]


def test_a_send_takes_no_copy_engine(engine):
    """The copy to the host and the send leave gpu0 at once.

    d2h      0000
    send     1111
    """
    builder = PlanBuilder()
    one, two, host = (builder.device(name) for name in ("gpu0", "gpu1", "host"))
    d2h, out, into = (builder.stream(name, at) for name, at in (("d2h", one), ("send", one), ("receive", two)))
    group = builder.group()
    builder.copy(builder.buffer(4, one), builder.buffer(4, host), d2h)
    builder.send(builder.buffer(4, one), two, out, group)
    builder.receive(builder.buffer(4, two), one, into, group)

    timeline = simulate(builder.build(), gpus(2), RowCosts(), engine=engine)

    assert timeline.makespan_s == 4.0


def test_two_sends_over_one_link_share_it(engine):
    """
    send 0   00000000         at half the rate
    send 1   11111111         from another stream of the same gpu
    """
    builder = PlanBuilder()
    one, two = builder.device("gpu0"), builder.device("gpu1")
    for number in range(2):
        out, into = builder.stream(f"send {number}", one), builder.stream(f"receive {number}", two)
        group = builder.group()
        builder.send(builder.buffer(4, one), two, out, group)
        builder.receive(builder.buffer(4, two), one, into, group)

    timeline = simulate(builder.build(), gpus(2), RowCosts(), engine=engine)

    assert timeline.spans.end_s.tolist() == [8.0, 8.0, 8.0, 8.0]


@pytest.mark.parametrize("num_members", [1, 2, 3])
def test_a_collective_starts_with_its_last_member_and_ends_for_all_at_once(num_members, engine):
    """Members arrive at 1, 2, ... m; all run from m to m + t.

    gpu0     0...AAAA
    gpu1     00..AAAA
    gpu2     000.AAAA
    """
    collective_s = 4.0
    builder = PlanBuilder()
    streams = [builder.stream("compute", builder.device(f"gpu{i}")) for i in range(num_members)]
    group = builder.group()
    for stream in streams:
        builder.compute(builder.work("B"), stream)
    for stream in streams:
        builder.collective("all_reduce", range(num_members), stream, group, size_bytes=100)
    arrivals_s = [1.0 + i for i in range(num_members)]
    costs = RowCosts(seconds=[*arrivals_s, *[collective_s] * num_members], fixed=True)

    timeline = simulate(builder.build(), gpus(num_members), costs, engine=engine)

    assert spans_of(timeline)[num_members:] == [(num_members, num_members + collective_s)] * num_members


def test_a_collective_costs_what_its_first_member_says(engine):
    builder = PlanBuilder()
    streams = [builder.stream("compute", builder.device(f"gpu{i}")) for i in range(2)]
    group = builder.group()
    for stream in streams:
        builder.collective("all_reduce", [0, 1], stream, group, size_bytes=100)

    timeline = simulate(builder.build(), gpus(2), RowCosts(seconds=[3.0, 5.0], fixed=True), engine=engine)

    assert timeline.makespan_s == 3.0


def test_a_waiting_member_holds_its_stream(engine):
    """
    gpu0     ..AAAAF          the kernel behind the collective waits too
    gpu1     GGAAAA
    """
    builder = PlanBuilder()
    s0, s1 = (builder.stream("compute", builder.device(f"gpu{i}")) for i in range(2))
    group = builder.group()
    builder.collective("all_reduce", [0, 1], s0, group, size_bytes=1)
    behind = builder.compute(builder.work("F"), s0)
    builder.compute(builder.work("G"), s1)
    builder.collective("all_reduce", [0, 1], s1, group, size_bytes=1)

    timeline = simulate(builder.build(), gpus(2), RowCosts(seconds=[4.0, 1.0, 2.0, 4.0], fixed=True), engine=engine)

    assert timeline.span(behind).start_s == 6.0


def test_each_member_is_launched_by_its_own_thread(engine):
    """Launches of 1 and 3: the collective starts at 3.

    thread 0   L
    thread 1   LLL
    gpu0       ...AA
    gpu1       ...AA
    """
    builder = PlanBuilder()
    group = builder.group()
    for process in range(2):
        thread = builder.thread(f"thread {process}", process=process)
        stream = builder.stream("compute", builder.device(f"gpu{process}", process=process))
        builder.collective("all_reduce", [0, 1], stream, group, size_bytes=1, thread=thread)

    timeline = simulate(builder.build(), gpus(2), RowCosts(seconds=2.0, launch_s=[1.0, 3.0], fixed=True), engine=engine)

    assert spans_of(timeline) == [(3.0, 5.0), (3.0, 5.0)]
