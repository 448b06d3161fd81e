"""How near does a replay come to what was recorded, and to what was not?

Reproduces: the steps of public PyTorch profiler traces (Holistic Trace Analysis, Kineto, PARAM, TraceLens) on V100,
            A100, H100, RTX 2080 Ti, MI250 and MI300X; sources beside the data.
Claim:      a replay is off by at most 5 % in the median step of each trace. Since its durations and gaps are those of
            the step itself, three more checks: (a) a step predicted from the other steps of its trace alone is off by
            at most 10 % in the median; (b) a run that loads its data in the main process, with that time removed,
            comes near the recorded run that loads in four others; (c) a run without launch costs or copies has no row
            that starts later, and one on a single stream none that starts earlier.
Needs:      the measured traces, STEPSIM_DATA; about a minute, no GPU.
Writes:     replayed.csv, left_out.csv, without_loader.csv, bounds.csv and left_out.png in the output folder.
"""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from experiments.experiment import Claim
from stepsim.datasets import data_folder
from stepsim.errors import FileError
from stepsim.replay import Replay, replay, run_again
from stepsim.traces.changes import on_one_stream, provable, without_copies, without_host_work, without_launch_costs
from stepsim.traces.detect import format_of
from stepsim.traces.intervals import intervals_of
from stepsim.traces.learnt import learnt_steps
from stepsim.traces.replay import WHOLE_TRACE, seconds_of

FOLDERS = ("hta", "kineto", "param", "tracelens")
QUICK = (
    "hta/nccl_parser_config",
    "kineto/resnet50_num_workers_0/worker0.1623143566756",
    "kineto/resnet50_num_workers_4",
)

LOADER = "enumerate(DataLoader)"
"""What PyTorch's profiler calls the time that a loop waits for its next batch."""

LOADS_ITSELF, LOADS_BESIDE = "resnet50_num_workers_0/", "resnet50_num_workers_4/"
"""Runs of one training script; the batch comes from the main process, or from four others."""

SAME_MACHINE = "Tesla V100-DGXS-32GB"
"""The GPU that the run of four loaders names; two of the others name none."""

Row = Mapping[str, object]


def run(folder: Path, *, quick: bool) -> list[Claim]:
    replays, left, loaders, changes = [], [], [], []
    for name, path in traces(quick):
        found = replay(path)
        replays.append(replay_row(name, found))
        left += left_out_rows(name, found)
        changes += bound_rows(name, found)
        if LOADS_ITSELF in name or LOADS_BESIDE in name:
            loaders.append(loader_row(name, found))
    tables = {
        "replayed": pd.DataFrame(replays),
        "left_out": pd.DataFrame(left),
        "without_loader": beside_answer(pd.DataFrame(loaders)),
        "bounds": pd.DataFrame(changes),
    }
    for name, table in tables.items():
        table.to_csv(folder / f"{name}.csv", index=False, float_format="%.6g")
    plot(tables["left_out"]).savefig(folder / "left_out.png")
    return check(**tables)


def traces(quick: bool) -> Iterator[tuple[str, Path]]:
    """Name and path of each Kineto trace. Raises `FileError` if there is none."""
    data = data_folder()
    paths = [path for folder in FOLDERS for path in sorted((data / folder).rglob("*.json.gz"))]
    found = [path for path in paths if format_of(path).name == "Kineto trace"]
    if not found:
        raise FileError(data, "folder", None, f"must hold the traces of {', '.join(FOLDERS)}: set STEPSIM_DATA")
    for path in found:
        name = str(path.relative_to(data)).removesuffix(".json.gz").removesuffix(".pt.trace")
        if not quick or name.startswith(QUICK):
            yield name, path


def replay_row(name: str, found: Replay) -> Row:
    own = {"trace": name, "gpu": found.machine.devices[-1].model, "events": found.num_events}
    own |= {"kernels": found.num_kernels, "streams": found.num_streams, "steps": profiled_steps(found)}
    own |= {f"{activity}_share": round(share, 4) for activity, share in found.explained.items()}
    return own | {"median_error": found.median_error, "worst_error": max(found.errors), "seconds": found.seconds}


def profiled_steps(found: Replay) -> int:
    return sum(step.name != WHOLE_TRACE for step in found.steps)


def left_out_rows(name: str, found: Replay) -> Iterator[Row]:
    """Each step, predicted from the others; ``plain`` is the median of what the others took, without a simulation."""
    recorded_s = np.array([step.measured_s for step in found.steps])
    for place, learnt in enumerate(learnt_steps(found.rebuilt)):
        own_s = learnt.predicted.measured_s
        predicted_s = seconds_of(learnt.lender, run_again(learnt.run, found.machine))
        yield {
            "trace": name,
            "step": learnt.predicted.name,
            "lender": learnt.lender.name if learnt.alike else "",
            "unknown_rows": learnt.unknown,
            "recorded_s": own_s,
            "predicted_s": predicted_s,
            "error": predicted_s / own_s - 1,
            "plain_error": float(np.median(np.delete(recorded_s, place))) / own_s - 1,
        }


def loader_row(name: str, found: Replay) -> Row:
    """The median step as recorded, and with no time between the calls while the loop waits for its batch."""
    host = found.trace.of("host")
    loads = host[host["name"].str.startswith(LOADER)]
    timeline = run_again(without_host_work(found.rebuilt, *intervals_of(loads)), found.machine)
    return {
        "trace": name,
        "gpu": found.machine.devices[-1].model,
        "recorded_s": float(np.median([step.measured_s for step in found.steps])),
        "loader_s": float(loads["duration_s"].median()),
        "predicted_s": float(np.median([seconds_of(step, timeline) for step in found.rebuilt.steps])),
    }


def beside_answer(loaders: pd.DataFrame) -> pd.DataFrame:
    """Errors of the runs that load themselves against the one that loads beside, also of plain subtraction."""
    beside = loaders["trace"].str.contains(LOADS_BESIDE)
    answer_s = float(loaders["recorded_s"][beside].median())
    subtracted_s = loaders["recorded_s"] - loaders["loader_s"]
    errors = {"error": loaders["predicted_s"] / answer_s - 1, "subtracted_error": subtracted_s / answer_s - 1}
    return loaders.assign(answer_s=answer_s, **errors)[~beside]


def bound_rows(name: str, found: Replay) -> Iterator[Row]:
    """For each change the rows that break its bound, compared exactly; and what becomes of the run."""
    before = found.timeline
    for change, sign in ((without_launch_costs, 1), (without_copies, 1), (on_one_stream, -1)):
        after = run_again(change(found.rebuilt), found.machine)
        starts_s, ends_s = before.spans.start_s - after.spans.start_s, before.spans.end_s - after.spans.end_s
        yield {
            "trace": name,
            "change": change.__name__,
            "rows": len(found.rebuilt.plan),
            "rows_beyond": int(((sign * starts_s < 0) | (sign * ends_s < 0)).sum()),
            "provable": provable(found.rebuilt),
            "run_takes": after.makespan_s / before.makespan_s,
        }


def check(
    replayed: pd.DataFrame, left_out: pd.DataFrame, without_loader: pd.DataFrame, bounds: pd.DataFrame
) -> list[Claim]:
    return [
        *_errors_of_replays(replayed),
        *_errors_of_steps_left_out(left_out),
        *_errors_without_loader(without_loader),
        *_rows_beyond_bounds(bounds),
    ]


def _errors_of_replays(replayed: pd.DataFrame) -> Iterator[Claim]:
    worst = float(replayed["median_error"].max())
    yield Claim(claim="replay: traces", ours=float(len(replayed)), holds=len(replayed) > 0)
    yield Claim(claim="replay: worst median step error of a trace", paper=0.05, ours=worst, holds=worst <= 0.05)
    worst = float(replayed["worst_error"].max())
    yield Claim(claim="replay: worst step error", ours=worst, holds=worst <= 0.10)


def _errors_of_steps_left_out(left_out: pd.DataFrame) -> Iterator[Claim]:
    alike = left_out[left_out["lender"] != ""]
    of_trace = alike.groupby("trace")["error"].agg(lambda errors: errors.abs().median())
    worst, middle, plain = float(of_trace.max()), _median(alike["error"]), _median(alike["plain_error"])
    yield Claim(claim="(a) worst median error of a trace", paper=0.10, ours=worst, holds=worst <= 0.10)
    yield Claim(claim="(a) median error of all steps", paper=0.10, ours=middle, holds=middle <= 0.10)
    yield Claim(claim="(a) median error of the median of the other steps", ours=plain, holds=plain <= 0.10)
    alone = float(len(left_out) - len(alike))
    yield Claim(claim="(a) steps without another of the same rows", ours=alone, holds=alone < len(alike))


def _errors_without_loader(without_loader: pd.DataFrame) -> Iterator[Claim]:
    same = without_loader[without_loader["gpu"] == SAME_MACHINE]
    error, subtracted = _median(same["error"]), _median(same["subtracted_error"])
    yield Claim(claim="(b) median error of runs on the same machine", ours=error, holds=error < subtracted)
    yield Claim(
        claim="(b) median error if the time is subtracted from the step", ours=subtracted, holds=error < subtracted
    )


def _rows_beyond_bounds(bounds: pd.DataFrame) -> Iterator[Claim]:
    for change, rows in bounds.groupby("change", sort=False):
        beyond = int(rows["rows_beyond"].sum())
        yield Claim(claim=f"(c) rows beyond the bound {change}", paper=0.0, ours=float(beyond), holds=beyond == 0)
    sure = bounds.groupby("trace")["provable"].all()
    yield Claim(claim="(c) traces in which that is provable", ours=float(sure.sum()), holds=bool(sure.any()))


def _median(errors: Iterable[float]) -> float:
    return float(np.median(np.abs(list(errors))))


def plot(left_out: pd.DataFrame) -> Figure:
    """Steps predicted from the other steps of their trace, beside what was recorded."""
    figure = Figure(figsize=(5, 5), layout="constrained")
    axes = figure.subplots()
    for name, steps in left_out[left_out["lender"] != ""].groupby("trace"):
        axes.plot(1e3 * steps["recorded_s"], 1e3 * steps["predicted_s"], "o", ms=4, label=str(name).rpartition("/")[2])
    low, high = axes.get_xlim()
    axes.plot([low, high], [low, high], color="0.6", lw=1)
    axes.set(xlabel="recorded step (ms)", ylabel="predicted from the other steps (ms)")
    axes.legend(fontsize=6)
    return figure
