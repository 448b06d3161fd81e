"""What rows take when nothing hides them, for strategies that count before they plan."""

from collections.abc import Iterable, Mapping

from stepsim.machines import Machine
from stepsim.plan import Costs, TaskKind
from stepsim.strategies.memory.lowering import plan_for_policy
from stepsim.strategies.memory.rows import Row
from stepsim.strategies.memory.schedule import Action, candidates, schedule
from stepsim.workloads import Workload

Prices = Mapping[tuple[TaskKind, int], float]
"""Seconds of a row by its kind and subject (op, or tensor to move)."""


def prices_of(workload: Workload, machine: Machine, costs: Costs) -> Prices:
    """Read off the plan that swaps everything: it has a row for each op and for each move."""
    everything = dict.fromkeys(candidates(workload), Action.SWAP)
    plan = plan_for_policy(workload, machine, everything, memory_bytes=0)
    seconds = costs.task_costs(plan, machine).seconds_alone(plan, machine)
    rows = schedule(workload, everything, 0)
    prices = {(row.kind, row.subject): float(s) for row, s in zip(rows, seconds, strict=True)}
    again = {(TaskKind.RECOMPUTE, op): s for (kind, op), s in prices.items() if kind is TaskKind.COMPUTE}
    return prices | again


def seconds_of(rows: Iterable[Row], prices: Prices) -> float:
    """All rows, one after another."""
    return sum(prices[row.kind, row.subject] for row in rows if row.kind is not TaskKind.RELEASE)
