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
Writes:     collectives.csv, groups.csv, copies.csv, recorded_copies.csv, recorded_rates.csv, launches.csv, calls.csv,
            spread.csv, links.json (the fitted parameters by machine) and groups.png in the output folder.
"""

import json
from collections.abc import Callable, Iterator, Mapping
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
    recorded_rates,
    uplink_bytes_per_s,
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
    tables = {
        "collectives": pd.DataFrame([row for table in collectives for row in collective_rows(table)]),
        "groups": pd.DataFrame([row for table in collectives for row in group_rows(table)]),
        "copies": pd.DataFrame([row for table in copies for row in copy_rows(table)]),
        "launches": pd.DataFrame([launch_row(table) for table in wanted(kernel_tables(data))]),
        "spread": pd.DataFrame([row for table in collectives for row in spread_rows(table)]),
    }
    if not quick:
        tables["recorded_copies"] = pd.DataFrame(recorded_rows(data))
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


def size_errors(new: Callable[[], Curve], samples: pd.DataFrame) -> pd.Series:
    """Absolute relative error of each size but the smallest and the largest, by size, left out with every fourth."""
    rows = samples.groupby("size_bytes")["seconds"].median().reset_index()
    place = rows.index.to_numpy()
    inner = (place > 0) & (place < len(rows) - 1)
    errors = pd.Series(np.nan, index=rows["size_bytes"])
    for fold in range(min(FOLDS, inner.sum())):
        out = inner & (place % FOLDS == fold) if len(rows) > FOLDS else place == fold + 1
        curve = new().fit(rows[~out])
        guess = curve.seconds_of(rows["size_bytes"].to_numpy(float)[out])
        errors.iloc[out] = np.abs(guess / rows["seconds"].to_numpy(float)[out] - 1)
    return errors.dropna()


def told(errors: pd.Series | NDArray[np.float64]) -> Row:
    values = np.asarray(errors, dtype=np.float64)
    low, high = np.quantile(values, (0.5, 0.9))
    return {"samples": len(values), "mape": float(values.mean()), "median": float(low), "p90": float(high)}


def collective_rows(table: Table) -> Iterator[Row]:
    samples = table.samples.assign(size_bytes=array_bytes(table.samples))
    for (collective, ranks, nodes), rows in samples.groupby(["collective", "ranks", "nodes"], sort=True):
        for method, new in CURVES.items():
            errors = size_errors(new, rows)
            facts = {"machine": table.machine, "collective": collective, "ranks": ranks, "nodes": nodes}
            yield facts | {"method": method} | told(errors[errors.index >= LEAST_COLLECTIVE_BYTES])


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


def copy_rows(table: Table, least_bytes: int = LEAST_COPY_BYTES) -> Iterator[Row]:
    ways = table.samples["source"] + " to " + table.samples["destination"]
    for way, rows in table.samples.groupby(ways, sort=True):
        for method, new in CURVES.items():
            errors = size_errors(new, rows)
            yield {"machine": table.machine, "way": way, "method": method} | told(errors[errors.index >= least_bytes])


def recorded_rows(data: Path) -> Iterator[Row]:
    """Copies of Kineto traces with enough sizes, for which nothing is claimed: other work ran beside them."""
    for name in RECORDED_COPIES:
        samples = copies_of(read_any(data / name), least_bytes=LEAST_COPY_BYTES)
        large = samples.groupby(["source", "destination"])["size_bytes"].transform("nunique") >= 2 * FOLDS
        if large.any():
            yield from copy_rows(Table(machine=name, files=(name,), samples=samples[large]))


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
    ratio, (alone, together) = both_ways_ratio(data), uplink_bytes_per_s(data)
    return [
        Claim(claim="a copy with one the other way takes at most a tenth longer", ours=ratio, holds=1 <= ratio <= 1.1),
        Claim(
            claim="GPUs of an 8-GPU A100 server, copying at once, that an uplink serves at full rate",
            ours=together / alone,
            holds=together < 8 * alone,
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
