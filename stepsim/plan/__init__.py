"""Plans: what runs, where, and after what; and the costs that are given beside them.

`plan` and `costs` are the nouns, `builder` writes a plan row by row, `repeat` joins steps, `paths` says over which
links the rows of a plan move on a machine. `check` is the self-check that every built or loaded plan has passed, with
`groups`, and with `order`, `uses` and `clocks` for what is read and reused when.
"""

from stepsim.plan.costs import Costs, CostTable, Origin, TaskCosts
from stepsim.plan.plan import (
    NONE,
    TRANSFERS,
    BufferTable,
    CollectiveTable,
    DeviceTable,
    MarkTable,
    Plan,
    RouteTable,
    StreamTable,
    Task,
    TaskKind,
    TaskTable,
    ThreadTable,
    WorkTable,
)

__all__ = [
    "NONE",
    "TRANSFERS",
    "BufferTable",
    "CollectiveTable",
    "CostTable",
    "Costs",
    "DeviceTable",
    "MarkTable",
    "Origin",
    "Plan",
    "RouteTable",
    "StreamTable",
    "Task",
    "TaskCosts",
    "TaskKind",
    "TaskTable",
    "ThreadTable",
    "WorkTable",
]
