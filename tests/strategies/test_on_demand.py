"""What has to go when there is no room, and when it comes back."""

from hypothesis import given
from proposing import MACHINE
from random_workloads import steps
from small_workloads import chain

from stepsim.costmodels import GivenCosts
from stepsim.plan import TaskKind
from stepsim.simulator import simulate
from stepsim.strategies.memory.earlier import live_bytes
from stepsim.strategies.memory.lowering import plan_for_rows
from stepsim.strategies.memory.on_demand import evicting
from stepsim.strategies.memory.rows import Row, settle
from stepsim.strategies.memory.schedule import Policy, candidates, order
from stepsim.strategies.memory.writer import Writer
from stepsim.workloads import Workload

X0 = 1
SHORT = {TaskKind.SWAP_OUT: "out", TaskKind.SWAP_IN: "in", TaskKind.RECOMPUTE: "again"}


def told(workload: Workload, rows: list[Row]) -> str:
    """``F0 F1 out x0 B1 in x0 B0``."""
    copies = (TaskKind.SWAP_OUT, TaskKind.SWAP_IN)
    parts = []
    for row in rows:
        name = workload.tensors[row.subject].name if row.kind in copies else workload.ops[row.subject].name
        parts += [SHORT[row.kind], name] if row.kind in SHORT else [name]
    return " ".join(parts)


def test_what_was_used_least_recently_goes_when_there_is_no_room_and_is_back_when_it_is_read() -> None:
    """B3 takes 61 bytes: the input, four activations, the loss, and the gradient that it makes; B2 as many less x3."""
    workload = chain(4)
    rows = order(workload, {}, 0)

    assert told(workload, evicting(workload, rows, 51)) == "F0 F1 F2 F3 L out x0 B3 B2 B1 in x0 B0"
    assert told(workload, evicting(workload, rows, 41)) == "F0 F1 F2 out x0 F3 L out x1 B3 B2 in x1 B1 in x0 B0"


def test_nothing_goes_where_there_is_room() -> None:
    workload = chain(4)
    rows = order(workload, {}, 0)

    assert evicting(workload, rows, 61) == rows


def test_what_is_out_when_it_was_to_leave_does_not_leave_twice() -> None:
    workload = chain(3)
    writer = Writer(workload)
    for op in range(4):
        writer.compute(op)
    writer.swap_out(X0)
    writer.drop(X0)
    for op in range(4, 6):
        writer.compute(op)
    writer.swap_in(X0)
    writer.compute(6)

    assert told(workload, evicting(workload, writer.rows, 100)) == "F0 F1 F2 L out x0 B2 B1 in x0 B0"
    assert told(workload, evicting(workload, writer.rows, 40)) == "F0 F1 F2 out x0 L out x1 B2 in x1 B1 in x0 B0"


def test_a_tensor_may_have_to_go_again() -> None:
    """x0 is read by what is recomputed, and has no place beside B2. B1 alone takes 41 bytes."""
    workload = chain(3)
    writer = Writer(workload)
    for op in range(4):
        writer.compute(op)
    writer.recompute(1, [])
    for op in range(4, 7):
        writer.compute(op)

    rows = evicting(workload, writer.rows, 40)

    expected = "F0 F1 F2 out x0 L out x1 in x0 out x2 again F1 in x2 out x0 B2 in x1 B1 in x0 B0"
    assert told(workload, rows) == expected
    assert max(live_bytes(workload, rows)) == 41
    run(workload, rows, 40)


def run(workload: Workload, rows: list[Row], memory_bytes: int) -> None:
    """As a plan, whose copies are checked."""
    plan = plan_for_rows(workload, MACHINE, settle(workload, rows, memory_bytes))
    simulate(plan, MACHINE, GivenCosts(seconds={op.kind: 1.0 for op in workload.ops}))


@given(steps())
def test_it_exceeds_the_limit_only_where_nothing_else_can_go(step: tuple[Workload, Policy, int]) -> None:
    workload, policy, memory_bytes = step
    given_rows = order(workload, policy, 0)

    rows = evicting(workload, given_rows, memory_bytes)

    level_bytes = live_bytes(workload, rows)
    computes = [row for row in rows if row.kind in (TaskKind.COMPUTE, TaskKind.RECOMPUTE)]
    assert [(row.kind, row.subject) for row in computes] == [
        (row.kind, row.subject) for row in given_rows if row.kind in (TaskKind.COMPUTE, TaskKind.RECOMPUTE)
    ]
    for row, level in zip(rows, level_bytes.tolist(), strict=True):
        if row.kind in (TaskKind.COMPUTE, TaskKind.RECOMPUTE):
            assert level <= max(memory_bytes, staying_bytes(workload) + used_bytes(workload, row))
    run(workload, rows, memory_bytes)


def staying_bytes(workload: Workload) -> int:
    """Most that all take that never leaves."""
    may_go = candidates(workload)
    return sum(each.size_bytes for tensor, each in enumerate(workload.tensors) if tensor not in may_go)


def used_bytes(workload: Workload, row: Row) -> int:
    return sum(workload.tensors[tensor].size_bytes for tensor, _ in {*row.reads, *row.writes})
