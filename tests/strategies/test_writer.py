"""The writer knows which copy of a tensor is where, and what waits for what."""

import pytest
from proposing import MACHINE
from small_workloads import chain

from stepsim.costmodels import GivenCosts
from stepsim.plan import TaskKind
from stepsim.simulator import simulate
from stepsim.strategies.memory.lowering import plan_for_rows
from stepsim.strategies.memory.rows import HOST_COPY, settle
from stepsim.strategies.memory.writer import Writer

X0, X1 = 1, 2


def test_what_comes_from_outside_is_there_and_what_was_not_made_is_not() -> None:
    writer = Writer(chain(3))

    assert writer.has(0)
    assert not writer.has(X0)
    assert not writer.was_written(X0)


def test_each_return_of_a_tensor_is_another_copy() -> None:
    writer = Writer(chain(3))
    writer.compute(0)
    writer.swap_out(X0)
    writer.drop(X0)
    writer.swap_in(X0)
    writer.drop(X0)
    writer.recompute(0, [X0])

    assert [row.writes for row in writer.rows] == [((X0, 0),), ((X0, HOST_COPY),), ((X0, 1),), ((X0, 2),)]
    assert writer.present[X0] == (X0, 2)


def test_readers_read_the_copy_that_is_there() -> None:
    writer = Writer(chain(3))
    writer.compute(0)
    writer.drop(X0)
    writer.recompute(0, [X0])
    writer.compute(1)

    assert writer.rows[-1].reads == ((X0, 1),)


def test_recomputing_brings_back_only_what_is_wanted_and_gone() -> None:
    writer = Writer(chain(3))
    writer.compute(0)
    writer.recompute(0, [X0])

    assert writer.present[X0] == (X0, 0)

    writer.drop(X0)
    writer.recompute(0, [])

    assert not writer.has(X0)


@pytest.mark.parametrize(("waits", "expected_s"), [(False, 4.0), (True, 4.5)])
def test_computing_waits_for_a_return_only_when_told_to(waits: bool, expected_s: float) -> None:
    """Ops of half a second: F2 waits until x0 is out; L, which does not read it, can wait until it is back.

    compute  F0 F1    F2 L  B2 B1 B0         or  F0 F1    F2    L  B2 B1 B0
    copies      out.. in...                         out.. in...
    """
    workload = chain(3)
    writer = Writer(workload)
    writer.compute(0)
    writer.compute(1)
    writer.swap_out(X0)
    writer.drop(X0)
    writer.wait_for(X0)
    writer.swap_in(X0)
    writer.compute(2)
    if waits:
        writer.wait_for_return(X0)
    for op in range(3, len(workload.ops)):
        writer.compute(op)
    plan = plan_for_rows(workload, MACHINE, settle(workload, writer.rows, 10**9))

    costs = GivenCosts(seconds={op.kind: 0.5 for op in workload.ops})

    assert sum(row.kind is TaskKind.RELEASE for row in writer.rows) == 1 + waits
    assert simulate(plan, MACHINE, costs).makespan_s == pytest.approx(expected_s)
