"""How near do copies, collectives and launches come to sizes and groups that were not measured?

Reproduces: public tables of collectives (aiconfigurator, vidur, superbench, nccl-tests, AWS), copies through pinned
            memory (superbench, bandwidthTest) and small kernels (gpu-benches); sources beside the data.
Claim:      sizes left out, one in four of those between the smallest and the largest: copies from 64 KiB and
            collectives from 1 MiB within 8 % in the mean of each table, interpolated between all other sizes, and,
            for copies and within one node, fitted by three lines. (Across two of vidur's nodes times of four ranks fall
            into two groups, one twice the other, which no three lines follow.) A group left out between two others on
            one NVSwitch node: within 12 %, from the curves of its neighbours, and from alpha and beta. Small kernels
            left out, one in four: within 8 %.
Needs:      the measured tables, STEPSIM_DATA; about a minute, no GPU.
Writes:     collectives.csv, groups.csv, copies.csv, collective_predictions.csv and copy_predictions.csv (each size left
            out, small ones too), recorded_copies.csv, recorded_rates.csv, launches.csv, calls.csv, spread.csv,
            links.json (the fitted parameters by machine) and groups.png in the output folder.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from numpy.typing import NDArray

from experiments.experiment import Claim
from experiments.link_machines import (
    RECORDED_COPIES,
    Table,
    both_ways_ratio,
    collective_tables,
    copies_of,
    copy_tables,
    kernel_tables,
    link_calibrations,
    pageable_bytes_per_s,
    recorded_rates,
)
from stepsim.costmodels.alpha_beta import AlphaBeta
from stepsim.costmodels.collectives import CollectiveTable
from stepsim.costmodels.copies import Curve, Lines
from stepsim.costmodels.launches import LaunchModel
from stepsim.costmodels.transfers import InterpolatedTransferModel
from stepsim.datasets import data_folder
from stepsim.errors import FileError
from stepsim.traces.collective_tables import array_bytes
from stepsim.traces.detect import read_any

CURVES: Mapping[str, Callable[[], Curve]] = {
    "interpolated": InterpolatedTransferModel,
    "three lines": Lines,
}
BETWEEN_GROUPS: Mapping[str, Callable[[], CollectiveTable | AlphaBeta]] = {
    "between curves": lambda: CollectiveTable(compact=True),
    "alpha and beta": AlphaBeta,
}

COLLECTIVE, COPY = ("machine", "collective", "ranks", "nodes", "method"), ("machine", "way", "method")
"""What tells one curve from another."""

LEAST_COPY_BYTES, LEAST_COLLECTIVE_BYTES = 64 * 2**10, 2**20
FOLDS = 4

MOST_SIZE_ERROR, MOST_GROUP_ERROR = 0.08, 0.12

ONE_NODE = ("NVIDIA A100-SXM4-80GB, NVSwitch node", "NVIDIA H100 80GB HBM3, NVSwitch node", "DGX A100, vidur")
"""Groups that are left out here are held to `MOST_GROUP_ERROR`."""

QUICK = ("NVIDIA A100-SXM4-80GB, NVSwitch node", "V100-PCIE-32GB", "A40")

Row = Mapping[str, object]


def run(folder: Path, *, quick: bool) -> list[Claim]:
    data = data_folder()
    if not (data / "aiconfigurator").is_dir():
        raise FileError(data, "folder", None, "must hold the tables of collectives: set STEPSIM_DATA")

    def wanted(tables: Iterator[Table]) -> list[Table]:
        return [table for table in tables if not quick or table.machine in QUICK]

    collectives, copies = wanted(collective_tables(data)), wanted(copy_tables(data))
    of_collectives = pd.concat(map(collective_predictions, collectives), ignore_index=True)
    of_copies = pd.concat(map(copy_predictions, copies), ignore_index=True)
    tables = {
        "collective_predictions": of_collectives,
        "copy_predictions": of_copies,
        "collectives": errors_by(of_collectives, COLLECTIVE, LEAST_COLLECTIVE_BYTES),
        "groups": pd.DataFrame([row for table in collectives for row in group_rows(table)]),
        "copies": errors_by(of_copies, COPY, LEAST_COPY_BYTES),
        "launches": pd.DataFrame([launch_row(table) for table in wanted(kernel_tables(data))]),
        "spread": pd.DataFrame([row for table in collectives for row in spread_rows(table)]),
    }
    if not quick:
        tables["recorded_copies"] = recorded_rows(data)
        tables["recorded_rates"] = pd.DataFrame(recorded_rates(data))
        links = link_calibrations(data)
        calls = {machine: found["calls"] for machine, found in links.items() if "calls" in found}
        tables["calls"] = pd.DataFrame([{"machine": machine, **cost} for machine, cost in calls.items()])
        (folder / "links.json").write_text(json.dumps(links, indent=1, allow_nan=False), encoding="utf-8")
    for name, table in tables.items():
        table.to_csv(folder / f"{name}.csv", index=False, float_format="%.6g")
    plot(tables["groups"]).savefig(folder / "groups.png")
    claims = check(tables["collectives"], tables["groups"], tables["copies"], tables["launches"])
    return claims if quick else [*claims, *sharing_claims(data)]


def sizes_left_out(new: Callable[[], Curve], samples: pd.DataFrame) -> pd.DataFrame:
    """``size_bytes``, ``seconds`` and ``predicted_s`` of each size but the ends, left out with every fourth."""
    rows = samples.groupby("size_bytes")["seconds"].median().reset_index()
    place = rows.index.to_numpy()
    inner = (place > 0) & (place < len(rows) - 1)
    predicted_s = np.full(len(rows), np.nan)
    for fold in range(min(FOLDS, inner.sum())):
        out = inner & (place % FOLDS == fold) if len(rows) > FOLDS else place == fold + 1
        curve = new().fit(rows[~out])
        predicted_s[out] = curve.seconds_of(rows["size_bytes"].to_numpy(float)[out])
    return rows.assign(predicted_s=predicted_s).dropna()


def told(errors: pd.Series | NDArray[np.float64]) -> Row:
    values = np.asarray(errors, dtype=np.float64)
    low, high = np.quantile(values, (0.5, 0.9))
    return {"samples": len(values), "mape": float(values.mean()), "median": float(low), "p90": float(high)}


def errors_by(predictions: pd.DataFrame, key: Sequence[str], least_bytes: int) -> pd.DataFrame:
    """One row for each ``key``: `told` of its sizes from ``least_bytes`` up."""
    large = predictions[predictions["size_bytes"] >= least_bytes]
    off = (large["predicted_s"] / large["seconds"] - 1).abs()
    groups = off.groupby([large[name] for name in key], sort=False)
    return pd.DataFrame([dict(zip(key, names, strict=True)) | told(errors) for names, errors in groups])


def collective_predictions(table: Table) -> pd.DataFrame:
    """`sizes_left_out` by `COLLECTIVE`; sizes are those of the whole array."""
    samples = table.samples.assign(machine=table.machine, size_bytes=array_bytes(table.samples))
    return _predictions(samples, COLLECTIVE[:-1])


def copy_predictions(table: Table) -> pd.DataFrame:
    """`sizes_left_out` by `COPY`."""
    way = table.samples["source"] + " to " + table.samples["destination"]
    return _predictions(table.samples.assign(machine=table.machine, way=way), COPY[:-1])


def _predictions(samples: pd.DataFrame, key: Sequence[str]) -> pd.DataFrame:
    """Of each curve, by each of `CURVES`."""
    found = [
        sizes_left_out(new, rows).assign(**dict(zip(key, names, strict=True)), method=method)
        for names, rows in samples.groupby(list(key), sort=True)
        for method, new in CURVES.items()
    ]
    return pd.concat(found, ignore_index=True)


def group_rows(table: Table) -> Iterator[Row]:
    """Each group between two others on as many nodes, left out."""
    large = array_bytes(table.samples) >= LEAST_COLLECTIVE_BYTES
    for (collective, nodes), rows in table.samples.groupby(["collective", "nodes"], sort=True):
        for ranks in sorted(rows["ranks"].unique())[1:-1]:
            out = rows["ranks"] == ranks
            for method, new in BETWEEN_GROUPS.items():
                asked = rows[out & large[rows.index]] if rows.index.is_unique else rows[out]
                guess = new().fit(rows[~out]).predict(asked).seconds
                facts = {"machine": table.machine, "collective": collective, "ranks": ranks, "nodes": nodes}
                yield facts | {"method": method} | told(np.abs(guess / asked["seconds"].to_numpy(float) - 1))


def recorded_rows(data: Path) -> pd.DataFrame:
    """Errors of copies of Kineto traces with enough sizes, for which nothing is claimed: other work ran beside them."""
    found = []
    for name in RECORDED_COPIES:
        samples = copies_of(read_any(data / name), least_bytes=LEAST_COPY_BYTES)
        large = samples.groupby(["source", "destination"])["size_bytes"].transform("nunique") >= 2 * FOLDS
        if large.any():
            found.append(copy_predictions(Table(machine=name, files=(name,), samples=samples[large])))
    return errors_by(pd.concat(found), COPY, LEAST_COPY_BYTES)


def launch_row(table: Table) -> Row:
    model = LaunchModel().fit(table.samples)
    facts = {f"floor of {mode}, us": floor_s * 1e6 for mode, floor_s in model.floor_s_.items()}
    return {"machine": table.machine, "samples": len(table.samples), "mape": model.left_out_error_} | facts


def spread_rows(table: Table) -> Iterator[Row]:
    """How far the fastest and the slowest repeat of a size lie from its median, where a table tells."""
    samples = table.samples.dropna(subset=["least_seconds"])
    samples = samples[array_bytes(samples) >= LEAST_COLLECTIVE_BYTES]
    for (collective, ranks, nodes), rows in samples.groupby(["collective", "ranks", "nodes"], sort=True):
        below, above = 1 - rows["least_seconds"] / rows["seconds"], rows["most_seconds"] / rows["seconds"] - 1
        facts = {"machine": table.machine, "collective": collective, "ranks": ranks, "nodes": nodes}
        ends = {"below, median": below.median(), "above, median": above.median(), "above, p90": above.quantile(0.9)}
        yield facts | ends


def check(collectives: pd.DataFrame, groups: pd.DataFrame, copies: pd.DataFrame, launches: pd.DataFrame) -> list[Claim]:
    claims = []
    in_table = (collectives["method"] == "interpolated") | (collectives["nodes"] == 1)
    for what, table, most in (
        ("collectives, sizes left out", collectives[in_table], MOST_SIZE_ERROR),
        ("copies, sizes left out", copies, MOST_SIZE_ERROR),
        ("collectives, a group left out", groups[groups["machine"].isin(ONE_NODE)], MOST_GROUP_ERROR),
    ):
        for (machine, method), rows in table.groupby(["machine", "method"], sort=True):
            ours = float(np.average(rows["mape"], weights=rows["samples"]))
            claims.append(Claim(claim=f"{what}, {method}, {machine}: mean error", ours=ours, holds=ours <= most))
    for machine, ours in zip(launches["machine"], launches["mape"], strict=True):
        holds = bool(ours <= MOST_SIZE_ERROR)
        claims.append(Claim(claim=f"small kernels left out, {machine}: mean error", ours=float(ours), holds=holds))
    return claims


def sharing_claims(data: Path) -> list[Claim]:
    ratio, (alone, at_once) = both_ways_ratio(data), pageable_bytes_per_s(data)
    return [
        Claim(claim="a copy with one the other way takes at most a tenth longer", ours=ratio, holds=1 <= ratio <= 1.1),
        Claim(
            claim="a copy of pageable memory to each of 8 A100 at once is as fast as one alone: their rates' ratio",
            ours=at_once / alone,
            holds=at_once >= alone,
        ),
    ]


def plot(groups: pd.DataFrame) -> Figure:
    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    labels = groups["machine"] + "\n" + groups["collective"]
    places = {label: place for place, label in enumerate(labels.unique())}
    for method, rows in groups.groupby("method", sort=True):
        axes.plot(rows["mape"] * 100, [places[label] for label in labels[rows.index]], "o", label=str(method))
    axes.axvline(MOST_GROUP_ERROR * 100, color="grey", linestyle=":")
    axes.set_yticks(list(places.values()), list(places), fontsize=6)
    axes.set(xlabel="mean error of a group left out, from 1 MiB up (%)", xlim=(0, None))
    axes.legend()
    return figure
