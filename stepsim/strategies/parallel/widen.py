"""From one device a stage to a team of data x tensor devices a stage, column by column: no loop over tasks.

Every device of a plan becomes one for each rank, and its entries (rows, buffers, streams) are copied for each of them.
References to entries of the own device move with them; what ranks share is numbered by who shares it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stepsim.plan import (
    NONE,
    BufferTable,
    CollectiveTable,
    DeviceTable,
    Plan,
    RouteTable,
    StreamTable,
    TaskTable,
    ThreadTable,
)
from stepsim.strategies.parallel.stage_rows import TENSOR_STREAM
from stepsim.tables import Columns, Ragged

Numbers = NDArray[Any]


def widened(plan: Plan, devices: Sequence[str], *, data: int, tensor: int) -> Plan:
    """``plan`` on ``data * tensor`` of ``devices`` for each of its own; tensor ranks stand next to each other.

    A send goes to the same rank of the other stage. Collectives on streams called ``tensor`` join the devices of a
    stage that differ in that rank alone, other collectives those that differ in the data rank alone. The entries of
    ``plan`` must stand device by device.
    """
    ranks, every = data * tensor, np.arange(len(devices), dtype=np.int32)
    bounds = np.arange(len(plan.devices) + 1)
    rows, buffers, streams = (
        _Copies(np.searchsorted(table.device, bounds), ranks) for table in (plan.tasks, plan.buffers, plan.streams)
    )
    to_stream, to_device = streams.moves(), _Copies(bounds, ranks).moves()
    tasks = rows.table(plan.tasks) | _shared(plan, rows, data, tensor)
    tasks |= {name: rows.lists(getattr(plan.tasks, name), buffers) for name in _OF_BUFFERS}
    tasks["dependencies"] = rows.lists(plan.tasks.dependencies, rows)
    tasks["stream"] = rows.copied(plan.tasks.stream, to_stream)
    tasks["device"] = tasks["thread"] = rows.copied(plan.tasks.device, to_device)
    stored = buffers.table(plan.buffers)
    stored["device"] = buffers.copied(plan.buffers.device, to_device)
    stored["owner"] = buffers.copied(plan.buffers.owner, to_stream)
    lanes = streams.table(plan.streams) | {"device": streams.copied(plan.streams.device, to_device)}
    return Plan(
        tasks=TaskTable(**tasks),
        work=plan.work,
        buffers=BufferTable(**stored),
        streams=StreamTable(**lanes),
        threads=ThreadTable(plan.threads.name * ranks, every),
        devices=DeviceTable(tuple(devices), every),
        routes=RouteTable(_for_ranks(plan.routes.source, ranks), _for_ranks(plan.routes.destination, ranks)),
        collectives=_collectives(every, data, tensor),
        marks=plan.marks,
    )


_OF_BUFFERS = ("reads", "writes", "allocates", "releases")


@dataclass(frozen=True, slots=True, eq=False)
class _Copies:
    """Entries of a table, copied for each of ``ranks``. Those of a device are between two of ``bounds``."""

    bounds: NDArray[np.int64]
    ranks: int

    def table(self, table: Columns) -> dict[str, Any]:
        """Numbers and names, as they are."""
        columns = table.columns().items()
        numbers = {name: self.copied(column) for name, column in columns if isinstance(column, np.ndarray)}
        return numbers | {name: self.names(column) for name, column in columns if isinstance(column, tuple)}

    def names(self, column: tuple[str, ...]) -> tuple[str, ...]:
        bounds = pairwise(self.bounds.tolist())
        return tuple(chain.from_iterable(column[begin:end] * self.ranks for begin, end in bounds))

    def copied(self, column: Numbers, moves: Numbers | None = None) -> Numbers:
        """``column`` for all ranks, plus ``moves`` of each device and rank (shape (devices, ranks))."""
        wide = np.empty(len(column) * self.ranks, column.dtype)
        for device, (begin, end) in enumerate(pairwise(self.bounds.tolist())):
            block = wide[begin * self.ranks : end * self.ranks].reshape(self.ranks, end - begin)
            block[:] = column[begin:end]
            if moves is not None:
                block += moves[device, :, np.newaxis].astype(column.dtype)
        return wide

    def lists(self, lists: Ragged, target: "_Copies") -> Ragged:
        """``lists`` for all ranks, whose values are references into the table of ``target``."""
        values = _Copies(lists.starts[self.bounds], self.ranks)
        starts = self.copied(lists.starts[:-1], values.moves())
        return Ragged(np.append(starts, len(lists.values) * self.ranks), values.copied(lists.values, target.moves()))

    def moves(self) -> NDArray[np.int64]:
        """How far an entry of each device and rank is from where it stood: shape (devices, ranks)."""
        begins: Numbers = self.bounds[:-1, np.newaxis]
        sizes: Numbers = np.diff(self.bounds)[:, np.newaxis]
        return begins * (self.ranks - 1) + sizes * np.arange(self.ranks)


def _for_ranks(device: NDArray[np.int32], ranks: int) -> NDArray[np.int32]:
    """The ends of each route, for one rank after the other."""
    first: Numbers = device[:, np.newaxis] * np.int32(ranks)
    return (first + np.arange(ranks, dtype=np.int32)).ravel()


def _collectives(devices: NDArray[np.int32], data: int, tensor: int) -> CollectiveTable:
    """Teams that differ in the tensor rank alone, then those that differ in the data rank alone."""
    grid = devices.reshape(-1, data, tensor)
    tensor_teams: list[list[int]] = grid.reshape(-1, tensor).tolist() if tensor > 1 else []
    data_teams: list[list[int]] = grid.swapaxes(1, 2).reshape(-1, data).tolist() if data > 1 else []
    teams = tensor_teams + data_teams
    return CollectiveTable(("all_reduce",) * len(teams), ("auto",) * len(teams), Ragged.from_lists(teams))


def _shared(plan: Plan, rows: _Copies, data: int, tensor: int) -> dict[str, NDArray[np.int32]]:
    """The columns that number what ranks share: ``route``, ``group`` and ``collective``.

    What a rank has for itself is there as often as there are ranks, what a tensor team shares as often as there are
    data ranks, what a data team shares as often as there are tensor ranks.
    """
    tasks, ranks = plan.tasks, data * tensor
    who = _who_shares(plan)
    times = np.array([ranks, data, tensor])[who]
    times_of_group = np.zeros(tasks.group.max(initial=NONE) + 2, np.int64)  # one more, which stands for NONE
    times_of_group[tasks.group] = times
    first_group = (np.cumsum(times_of_group) - times_of_group)[tasks.group]
    num_tensor_teams = len(plan.devices) * data if tensor > 1 else 0
    first_team = tasks.device * times + np.where(who == _DATA_TEAM, num_tensor_teams, 0)

    rank = np.arange(ranks, dtype=np.int32)
    place = np.stack([rank, rank // tensor, rank % tensor, np.zeros_like(rank)])
    rank_of_rows = rows.copied(np.zeros(len(plan), np.int32), np.tile(rank, (len(plan.devices), 1)))

    def numbered(column: NDArray[np.int32], first: Numbers) -> NDArray[np.int32]:
        nothing = column == NONE
        wide = rows.copied(np.where(nothing, NONE, first).astype(np.int32))
        wide += place[rows.copied(np.where(nothing, _NOBODY, who)), rank_of_rows]
        return wide

    return {
        "route": numbered(tasks.route, tasks.route * ranks),
        "group": numbered(tasks.group, first_group),
        "collective": numbered(tasks.collective, first_team),
    }


def _who_shares(plan: Plan) -> Numbers:
    """For each row who of its stage shares what it refers to."""
    tensor_streams = np.array([name == TENSOR_STREAM for name in plan.streams.name])
    teams = np.where(tensor_streams, _TENSOR_TEAM, _DATA_TEAM)[plan.tasks.stream]
    return np.where(plan.tasks.collective == NONE, _ALONE, teams)


_ALONE, _TENSOR_TEAM, _DATA_TEAM, _NOBODY = range(4)
