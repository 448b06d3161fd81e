"""Calibration: the fitted cost models of one machine, with their errors; readable text on disk."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from stepsim.costmodels.measured import Entry, MeasuredTable, check_seconds
from stepsim.costmodels.moves import distinct_moves, task_index
from stepsim.costmodels.roofline import Roofline
from stepsim.costmodels.transfers import InterpolatedTransferModel
from stepsim.errors import CalibrationError, FileError
from stepsim.machines import DeviceKind, Machine
from stepsim.plan import CostTable, Origin, Plan, TaskCosts
from stepsim.tables import read_json, write_json
from stepsim.traces.trace import Trace

FORMAT = "stepsim-calibration"

DIRECTIONS = ("device to host", "host to device")


@dataclass(frozen=True, eq=False, kw_only=True)
class Calibration:
    """Prices the tasks of a plan on ``machine``: work by the measured table, else by the roofline; copies by size.

    ``launch_s`` is what issuing one row costs its thread.
    """

    machine: str
    work: MeasuredTable
    roofline: Roofline
    transfers: Mapping[str, InterpolatedTransferModel]
    launch_s: float
    provenance: Mapping[str, str]

    @classmethod
    def fit(cls, traces: Sequence[Trace]) -> Self:
        """Fit to traces recorded on one machine by `stepsim.executor.record`. Raises `CalibrationError`."""
        machines = {trace.provenance.get("machine", "") for trace in traces}
        if len(machines) != 1 or "" in machines:
            raise CalibrationError(f"a calibration is of one recorded machine, the traces name {sorted(machines)}")
        events = pd.concat([trace.events for trace in traces], ignore_index=True)
        launches = events[events["kind"] == "launch"]
        if launches.empty:
            raise CalibrationError("the traces hold no launches: record them with stepsim record")
        check_seconds(launches)
        timed = events[(events["kind"] == "kernel") & (events["work"] != "")]
        work = MeasuredTable().fit(timed)
        return cls(
            machine=machines.pop(),
            work=work,
            roofline=_fit_roofline(timed, work),
            transfers=_fit_transfers(events[events["kind"] == "copy"]),
            launch_s=float(launches["duration_s"].median()),
            provenance=dict(traces[-1].provenance),
        )

    def errors(self) -> dict[str, float]:
        """Held-out mean absolute relative error of each model."""
        found = {"measured work, other repeats": self.work.repeat_error_}
        found["roofline, work left out"] = self.roofline.left_out_error_
        return found | {f"copy {name}, size left out": model.size_error_ for name, model in self.transfers.items()}

    def task_costs(self, plan: Plan, machine: Machine) -> TaskCosts:
        """Raises `CalibrationError` for another machine than the calibrated one, and for copies it never timed."""
        if machine.name != self.machine:
            raise CalibrationError(f"the calibration is of {self.machine!r}, the plan runs on {machine.name!r}")
        work_s, work_origin = self._work_seconds(plan)
        moves, place = distinct_moves(plan)
        latency_s, rate = self._moves(plan, machine, moves)
        num_work, num_moves = len(work_s), len(moves)
        nothing = num_work + num_moves
        zeros, unbounded = np.zeros(num_moves + 1), np.full(num_work, np.inf)
        table = CostTable(
            seconds=np.concatenate([work_s, zeros]),
            launch_s=np.full(nothing + 1, self.launch_s),
            latency_s=np.concatenate([np.zeros(num_work), latency_s, [0.0]]),
            rate_cap_bytes_per_s=np.concatenate([unbounded, rate, [np.inf]]),
            fixed=np.zeros(nothing + 1, np.bool_),
            origin=np.concatenate([work_origin, np.full(num_moves + 1, Origin.INTERPOLATED)]).astype(np.int8),
        )
        return TaskCosts(task_index(plan, place, num_work, num_moves), table)

    def _work_seconds(self, plan: Plan) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        measured_s = self.work.predict(plan.work.signature)
        moved_bytes = (plan.work.bytes_read + plan.work.bytes_written).astype(np.float64)
        bound_s = self.roofline.predict(plan.work.flop.astype(np.float64), moved_bytes)
        unknown = np.isnan(measured_s)
        return np.where(unknown, bound_s, measured_s), np.where(unknown, Origin.ROOFLINE, Origin.MEASURED)

    def _moves(
        self, plan: Plan, machine: Machine, moves: NDArray[np.int64]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Latency and rate of each (route, size), such that a copy alone takes what the model predicts."""
        latency_s, rate = np.zeros(len(moves)), np.full(len(moves), np.inf)
        for number, (route, size_bytes) in enumerate(moves.tolist()):
            model = self.transfers.get(_direction(plan, machine, route))
            if model is None:
                raise CalibrationError(f"the calibration has no copies {_direction(plan, machine, route)}")
            total_s = float(model.predict(np.array([size_bytes]))[0])
            latency_s[number] = min(total_s, float(model.seconds_[0]))
            if total_s > latency_s[number]:
                rate[number] = size_bytes / (total_s - latency_s[number])
        return latency_s, rate

    def save(self, path: str | Path) -> None:
        body = {
            "format": FORMAT,
            "version": 1,
            "machine": self.machine,
            "provenance": dict(self.provenance),
            "errors": self.errors(),
            "launch_s": self.launch_s,
            "roofline": vars(self.roofline),
            "transfers": {
                name: {**vars(model), "size_bytes_": model.size_bytes_.tolist(), "seconds_": model.seconds_.tolist()}
                for name, model in self.transfers.items()
            },
            "repeat_error": self.work.repeat_error_,
            "work": {signature: asdict(entry) for signature, entry in self.work.entries_.items()},
        }
        write_json(path, body)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Raises `FileError` if ``path`` holds no calibration."""
        body = read_json(path, FORMAT)
        try:
            return cls._of(body)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise FileError(path, "calibration", None, f"cannot be read: {error!r}") from error

    @classmethod
    def _of(cls, body: Mapping[str, Any]) -> Self:
        work, roofline = MeasuredTable(), Roofline()
        work.entries_ = {signature: Entry(**entry) for signature, entry in body["work"].items()}
        work.repeat_error_ = float(body["repeat_error"])
        roofline.flop_per_s_ = float(body["roofline"]["flop_per_s_"])
        roofline.bytes_per_s_ = float(body["roofline"]["bytes_per_s_"])
        roofline.left_out_error_ = float(body["roofline"]["left_out_error_"])
        transfers = {}
        for name, entry in body["transfers"].items():
            transfers[name] = model = InterpolatedTransferModel()
            model.size_bytes_ = np.array(entry["size_bytes_"], dtype=np.float64)
            model.seconds_ = np.array(entry["seconds_"], dtype=np.float64)
            model.size_error_ = float(entry["size_error_"])
        return cls(
            machine=str(body["machine"]),
            work=work,
            roofline=roofline,
            transfers=transfers,
            launch_s=float(body["launch_s"]),
            provenance=body["provenance"],
        )


def _fit_roofline(timed: pd.DataFrame, work: MeasuredTable) -> Roofline:
    """One point for each piece of work, at its median."""
    once = timed.groupby("work", sort=True)[["flop", "size_bytes"]].first()
    seconds = np.array([entry.seconds for entry in work.entries_.values()])
    return Roofline().fit(once["flop"].to_numpy(dtype=float), once["size_bytes"].to_numpy(dtype=float), seconds)


def _fit_transfers(copies: pd.DataFrame) -> dict[str, InterpolatedTransferModel]:
    named = copies["source"] + " to " + copies["destination"]
    found = [name for name in DIRECTIONS if (named == name).any()]
    return {name: InterpolatedTransferModel().fit(copies[named == name]) for name in found}


def _direction(plan: Plan, machine: Machine, route: int) -> str:
    ends = (plan.routes.source[route], plan.routes.destination[route])
    kinds = (machine.device(plan.devices.name[end]).kind for end in ends)
    return " to ".join("host" if kind is DeviceKind.HOST else "device" for kind in kinds)
