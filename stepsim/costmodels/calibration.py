"""Calibration: the fitted cost models of one machine, with their errors; readable text on disk."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from stepsim.costmodels.distinct import collective_flows, cost_table, distinct, flows
from stepsim.costmodels.measured import MeasuredTable
from stepsim.costmodels.model import check_samples
from stepsim.costmodels.moves import latency_and_rate
from stepsim.costmodels.roofline import Roofline
from stepsim.costmodels.transfers import InterpolatedTransferModel
from stepsim.costmodels.trust import first_that_knows
from stepsim.errors import CalibrationError
from stepsim.machines import DeviceKind, Machine
from stepsim.machines.collectives import transfer_stages
from stepsim.plan import Origin, Plan, TaskCosts
from stepsim.traces.trace import Trace

DIRECTIONS = ("device to host", "host to device")

PAGEABLE = ("device to pageable", "pageable to device")
"""Copies of a GPU that hold their thread, because the driver copies them through a buffer of its own."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Calibration:
    """Prices the tasks of a plan on ``machine``: work by the measured table, else by the roofline; copies by size.

    ``transfers`` is by way, of `DIRECTIONS` and, as far as they were timed, `PAGEABLE`. ``launch_s`` is what issuing
    one row costs its thread.
    """

    machine: str
    work: MeasuredTable
    roofline: Roofline
    transfers: Mapping[str, InterpolatedTransferModel]
    launch_s: float
    provenance: Mapping[str, str]

    @classmethod
    def fit(cls, traces: Sequence[Trace]) -> "Calibration":
        """Fit to traces recorded on one machine by `stepsim.executor.record`. Raises `CalibrationError`."""
        machine, _ = (_agreed(traces, fact) for fact in ("machine", "threads"))
        if not machine:
            raise CalibrationError("the traces name no machine: record them with stepsim record")
        events = pd.concat([trace.events for trace in traces], ignore_index=True)
        events = events.rename(columns={"duration_s": "seconds"})
        launches = events[events["kind"] == "launch"]
        if launches.empty:
            raise CalibrationError("the traces hold no launches: record them with stepsim record")
        check_samples("launches", launches)
        timed = events[(events["kind"] == "kernel") & (events["work"] != "")]
        work = MeasuredTable().fit(timed)
        return cls(
            machine=machine,
            work=work,
            roofline=_fit_roofline(timed, work),
            transfers=_fit_transfers(events[events["kind"] == "copy"]),
            launch_s=float(launches["seconds"].median()),
            provenance=_joined([trace.provenance for trace in traces]),
        )

    def errors(self) -> dict[str, float]:
        """Held-out mean absolute relative error of each model that had enough samples to hold some out."""
        found = {
            "measured work, other repeats": self.work.repeat_error_,
            "roofline, work left out": self.roofline.left_out_error_,
            **{f"copy {name}, size left out": model.size_error_ for name, model in self.transfers.items()},
        }
        return {name: error for name, error in found.items() if error is not None}

    def task_costs(self, plan: Plan, machine: Machine) -> TaskCosts:
        """A transfer alone takes what its model predicts, or what the links of ``machine`` need, if that is longer.

        Raises `CalibrationError` for another machine than the calibrated one, and for copies it never timed.
        """
        if machine.name != self.machine:
            raise CalibrationError(f"the calibration is of {self.machine!r}, the plan runs on {machine.name!r}")
        found = distinct(plan)
        moves = [self._move(plan, machine, *move) for move in found.moves.tolist()]
        table = cost_table(
            work=first_that_knows([self.work, self.roofline], _work_tasks(plan, found.works[:, 0])),
            moves=flows([flow for flow, _ in moves], Origin.INTERPOLATED, [spread for _, spread in moves]),
            collectives=collective_flows(plan, machine, found.collectives[:, 0].tolist()),
            launch_s=self.launch_s,
        )
        return TaskCosts(found.index, table)

    def _move(
        self, plan: Plan, machine: Machine, route: int, size_bytes: int, blocks: int
    ) -> tuple[tuple[float, float], float]:
        """Latency and rate, and spread; the latency is the time of the smallest measured size."""
        columns = (plan.routes.source, plan.routes.destination)
        ends = [machine.device(plan.devices.name[column[route]]) for column in columns]
        direction = " to ".join("host" if end.kind is DeviceKind.HOST else "device" for end in ends)
        way = direction.replace("host", "pageable") if blocks else direction
        model = self.transfers.get(way, self.transfers.get(direction))
        if model is None:
            raise CalibrationError(f"the calibration has no copies {direction}")
        said = model.predict(pd.DataFrame({"size_bytes": [size_bytes]}))
        stages = transfer_stages(machine, ends[0].name, ends[1].name)
        flow = latency_and_rate(float(said.seconds[0]), float(model.seconds_[0]), size_bytes, stages)
        return flow, float(said.spread[0])

    def save(self, path: str | Path) -> None:
        from stepsim.costmodels.files import write_calibration

        write_calibration(self, path)

    @classmethod
    def load(cls, path: str | Path) -> "Calibration":
        """Raises `FileError` if ``path`` holds no calibration."""
        from stepsim.costmodels.files import read_calibration

        return read_calibration(path)


def _work_tasks(plan: Plan, works: NDArray[np.int64]) -> pd.DataFrame:
    table = plan.work
    return pd.DataFrame(
        {
            "work": [table.signature[work] for work in works],
            "flop": table.flop[works],
            "size_bytes": (table.bytes_read + table.bytes_written)[works],
        }
    )


def _agreed(traces: Sequence[Trace], fact: str) -> str:
    """What all ``traces`` say of ``fact``; empty where they say nothing."""
    found = {trace.provenance.get(fact, "") for trace in traces} or {""}
    if len(found) > 1:
        raise CalibrationError(f"traces of one calibration must agree on {fact}, they name {sorted(found)}")
    return found.pop()


def _fit_roofline(timed: pd.DataFrame, work: MeasuredTable) -> Roofline:
    """One point for each piece of work, at its median."""
    once = timed.groupby("work", sort=True)[["flop", "size_bytes"]].first()
    return Roofline().fit(once.assign(seconds=[entry.seconds for entry in work.entries_.values()]))


def _fit_transfers(copies: pd.DataFrame) -> dict[str, InterpolatedTransferModel]:
    """The host's memory is the pinned one, which swaps go through. One size of pageable memory tells of no other."""
    named = (copies["source"] + " to " + copies["destination"]).str.replace("pinned", "host")
    found = [name for name in DIRECTIONS if (named == name).any()]
    found += [name for name in PAGEABLE if copies["size_bytes"][named == name].nunique() > 1]
    return {name: InterpolatedTransferModel().fit(copies[named == name]) for name in found}


def _joined(facts: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """What the traces say of themselves; where they differ, all of it."""
    keys = dict.fromkeys(key for one in facts for key in one)
    return {key: "; ".join(dict.fromkeys(one[key] for one in facts if key in one)) for key in keys}
