"""Deadlock is a result: plans that pass their self-check and still can never end."""

import pytest
from small_machines import RowCosts, gpus

from stepsim.errors import DeadlockError
from stepsim.plan.builder import PlanBuilder
from stepsim.simulator import simulate


def ring(*, streams_a_gpu):
    """Three gpus, each sends to the next and then receives from the one before."""
    builder = PlanBuilder()
    devices = [builder.device(f"gpu{i}") for i in range(3)]
    sends = [builder.stream("talk", device) for device in devices]
    receives = sends if streams_a_gpu == 1 else [builder.stream("listen", device) for device in devices]
    groups = [builder.group() for _ in devices]
    for i, device in enumerate(devices):
        builder.send(builder.buffer(1, device, name=f"out{i}"), devices[(i + 1) % 3], sends[i], groups[i])
        receive = builder.buffer(1, device, name=f"in{i}")
        builder.receive(receive, devices[i - 1], receives[i], groups[i - 1])
    return builder.build()


def test_a_ring_of_sends_before_receives_on_one_stream_each_is_a_deadlock_that_names_who_waits_for_whom(engine):
    """Every send waits for a receive that stands behind another send.

    gpu0     S01 R20
    gpu1     S12 R01
    gpu2     S20 R12
    """
    with pytest.raises(DeadlockError) as caught:
        simulate(ring(streams_a_gpu=1), gpus(3), RowCosts(), engine=engine)

    assert str(caught.value) == (
        "6 of 6 tasks can never start: "
        "row 0 (send out0 on gpu0 talk) waits for the others of its group, rows [3]; "
        "row 1 (receive in0 on gpu0 talk) waits for row 0, before it on the same stream; "
        "row 2 (send out1 on gpu1 talk) waits for the others of its group, rows [5]; and 3 more"
    )


def test_the_same_ring_with_a_stream_for_each_direction_runs(engine):
    timeline = simulate(ring(streams_a_gpu=2), gpus(3), RowCosts(), engine=engine)

    assert timeline.makespan_s == 1.0


def test_a_thread_that_waits_for_what_it_has_yet_to_launch_is_a_deadlock(engine):
    """The receive holds the thread that would launch its send.

    thread   R...             neither S nor the kernel behind it is ever launched
    """
    builder = PlanBuilder()
    one, two = builder.device("gpu0"), builder.device("gpu1")
    out, into = builder.stream("send", one), builder.stream("receive", two)
    group = builder.group()
    builder.receive(builder.buffer(1, two, name="in"), one, into, group, blocks_thread=True)
    builder.send(builder.buffer(1, one, name="out"), two, out, group, blocks_thread=True)
    builder.compute(builder.work("F"), builder.stream("compute", one))

    with pytest.raises(DeadlockError) as caught:
        simulate(builder.build(), gpus(2), RowCosts(), engine=engine)

    assert str(caught.value) == (
        "3 of 3 tasks can never start: "
        "row 0 (receive in on gpu1 receive) waits for the others of its group, rows [1]; "
        "row 1 (send out on gpu0 send) waits for row 0 (receive in on gpu1 receive), which holds its thread; "
        "row 2 (F on gpu0 compute) waits for row 0 (receive in on gpu1 receive), which holds its thread"
    )


def test_rows_behind_a_deadlock_are_told_apart_from_those_that_ran(engine):
    """Row 0 ran; row 2 depends on the stuck row 1; the stuck host row 3 holds the thread of row 4.

    s0       0 1(waits) ...
    s1       2 waits for 1
    thread   3 waits for 2, so 4 is never launched
    """
    builder = PlanBuilder()
    one, two = builder.device("gpu0"), builder.device("gpu1")
    s0, s1, s2, other = (builder.stream(f"s{i}", device) for i, device in enumerate((one, one, one, two)))
    late = builder.thread("late", process=0)
    main = builder.thread("main", process=0)
    group = builder.group()
    work = builder.work("F")
    builder.compute(work, s0, thread=main)
    send = builder.send(builder.buffer(1, one, name="x"), two, s0, group, thread=main)
    reader = builder.compute(work, s1, after=[send], thread=main)
    builder.host(builder.work("synchronize"), after=[reader], thread=main)
    builder.compute(work, s2, thread=main)
    builder.host(builder.work("wait"), after=[4], thread=late)
    builder.receive(builder.buffer(1, two, name="y"), one, other, group, thread=late)

    with pytest.raises(DeadlockError) as caught:
        simulate(builder.build(), gpus(2), RowCosts(), engine=engine)

    assert str(caught.value) == (
        "6 of 7 tasks can never start: "
        "row 1 (send x on gpu0 s0) waits for the others of its group, rows [6]; "
        "row 2 (F on gpu0 s1) waits for row 1 (send x on gpu0 s0); "
        "row 3 (synchronize on main) waits for row 2 (F on gpu0 s1); and 3 more"
    )


def test_what_holds_a_thread_is_told_apart_from_what_is_stuck_beside_it(engine):
    """The receive is stuck, but row 1, which waits for it, is what keeps the thread from its send.

    thread   R |...           S is never launched
    """
    builder = PlanBuilder()
    one, two = builder.device("gpu0"), builder.device("gpu1")
    group = builder.group()
    receive = builder.receive(builder.buffer(1, two, name="in"), one, builder.stream("receive", two), group)
    builder.host(builder.work("synchronize"), after=[receive])
    builder.send(builder.buffer(1, one, name="out"), two, builder.stream("send", one), group)

    with pytest.raises(DeadlockError) as caught:
        simulate(builder.build(), gpus(2), RowCosts(), engine=engine)

    assert str(caught.value) == (
        "3 of 3 tasks can never start: "
        "row 0 (receive in on gpu1 receive) waits for the others of its group, rows [2]; "
        "row 1 (synchronize on main) waits for row 0 (receive in on gpu1 receive); "
        "row 2 (send out on gpu0 send) waits for row 1 (synchronize on main), which holds its thread"
    )
