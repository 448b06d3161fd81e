"""What rows take when nothing hides them, for strategies that count before they plan."""

from collections.abc import Iterable, Mapping

from stepsim.machines import Machine
from stepsim.plan import Costs, TaskKind
from stepsim.strategies.memory.lowering import host_of, no_host, plan_for_policy
from stepsim.strategies.memory.rows import Row
from stepsim.strategies.memory.schedule import Action, candidates, schedule
from stepsim.workloads import Workload

Prices = Mapping[tuple[TaskKind, int], float]
"""Seconds of a row by its kind and subject (op, or tensor to move)."""


def prices_of(workload: Workload, machine: Machine, costs: Costs) -> Prices:
    """Read off the plan that swaps everything: it has a row for each op and for each move.

    On a machine without a host only ops have a price: to ask for that of a move raises `MachineError`.
    """
    everything = dict.fromkeys(candidates(workload) if host_of(machine) else (), Action.SWAP)
    plan = plan_for_policy(workload, machine, everything, memory_bytes=0)
    seconds = costs.task_costs(plan, machine).seconds_alone(plan, machine)
    rows = schedule(workload, everything, 0)
    prices = {(row.kind, row.subject): float(s) for row, s in zip(rows, seconds, strict=True)}
    again = {(TaskKind.RECOMPUTE, op): s for (kind, op), s in prices.items() if kind is TaskKind.COMPUTE}
    return _Prices(machine, prices | again)


class _Prices(dict[tuple[TaskKind, int], float]):
    """Says why a move has no price."""

    def __init__(self, machine: Machine, prices: Prices) -> None:
        super().__init__(prices)
        self.machine = machine

    def __missing__(self, row: tuple[TaskKind, int]) -> float:
        raise KeyError(row) if host_of(self.machine) else no_host(self.machine)


def seconds_of(rows: Iterable[Row], prices: Prices) -> float:
    """All rows, one after another."""
    return sum(prices[row.kind, row.subject] for row in rows if row.kind is not TaskKind.RELEASE)
