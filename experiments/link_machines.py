"""Measured collectives, copies and small kernels of public tables by machine, and the parameters fitted to them.

Left out are vidur's ``a100_pairwise_nvlink``, where four ranks cross PCIe, and its tables of all_gather and of sends
between layers, which do not tell their sizes.
"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from stepsim.costmodels.alpha_beta import AlphaBeta
from stepsim.costmodels.collectives import CollectiveTable
from stepsim.costmodels.copies import CopyModel
from stepsim.costmodels.launches import LaunchModel, call_cost
from stepsim.traces.bandwidth_logs import read_bandwidth_log
from stepsim.traces.collective_tables import (
    of_logs,
    read_aiconfigurator,
    read_aws_all_reduce,
    read_vidur_history,
    read_vidur_network,
)
from stepsim.traces.detect import read_any
from stepsim.traces.nccl_tests import read_nccl_tests
from stepsim.traces.small_kernels import read_small_kernels
from stepsim.traces.trace import Trace


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Table:
    """Samples of one machine, as the cost models take them, and the files of the data folder that hold them."""

    machine: str
    files: tuple[str, ...]
    samples: pd.DataFrame


BOTH_WAYS = "PCIe 4.0, superbench, GPU not named"
"""The machine of which `link_calibrations` has ``both_ways``."""

PCIE_TABLE = "tables/pcie_bandwidthtest_misc.csv"
LINKS_TABLE = "tables/flagperf_a100_links.csv"

_AWS_TABLE = "tables/aws_allreduce_2x_p4de_a100.csv"
_CACHE_BYTES = {"a100_80": 40 * 2**20, "a40": 6 * 2**20, "l40": 96 * 2**20}
"""L2 cache. NVIDIA A100, A40 (GA102) and L40 (AD102) architecture white papers."""

_MODES = {"stream": "", "graph": "_graph", "graph and synchronisation": "_gsync"}

RECORDED_COPIES = (
    "hta/negative_queue_length_values_check/rank0.json.gz",
    "hta/trace_diff/control/control.json.gz",
    "hta/critical_path/alexnet/benchmark_result_2869224_1695835535_trace.json.gz",
    "hta/critical_path/simple_add/benchmark_result_493459_1694039959_trace.json.gz",
    "kineto/resnet50_num_workers_0/worker0.1623143089861.pt.trace.json.gz",
    "kineto/resnet50_num_workers_0/worker0.1623143566756.pt.trace.json.gz",
    "kineto/resnet50_num_workers_4/worker0.1623212756351.pt.trace.json.gz",
)
"""Traces of A100 and V100 with copies between host and device, which ran beside other work."""

PAGEABLE_COPIES = {"A100-PG509-200": RECORDED_COPIES[2:4], "V100-DGXS-32GB": RECORDED_COPIES[4:]}
"""Traces with large copies of pageable memory, all of them to the device."""

_COPY_LOG = "superbench/gpu_copy_bw_performance.log"

_LARGE_BYTES = 2**20

_STEADY_PAGEABLE_BYTES = 16 * 2**20
"""From about here on recorded copies of pageable memory keep their rate."""

_CALL_TRACES = {
    "A100-SXM4-80GB": "hta/negative_queue_length_values_check/rank0.json.gz",
    "A100-PG509-200": "hta/trace_diff/control/control.json.gz",
    "V100-DGXS-32GB": "kineto/resnet50_num_workers_0/worker0.1623143089861.pt.trace.json.gz",
    "RTX 2080 Ti": "param/linear_kineto.json.gz",
}


def collective_tables(data: Path) -> Iterator[Table]:
    for gpu in ("a100", "h100", "b200"):
        file = f"aiconfigurator/nccl_{gpu}_sxm.csv"
        samples = read_aiconfigurator(data / file)
        samples = samples[samples["dtype"] == "half"]
        yield Table(machine=f"{samples['machine'].iloc[0]}, NVSwitch node", files=(file,), samples=samples)
    files = ("vidur/network/a100_dgx/all_reduce.csv.gz", "vidur/network/a100_dgx/send_recv.csv")
    samples = pd.concat([read_vidur_network(data / file, "DGX A100") for file in files])
    yield Table(machine="DGX A100, vidur", files=files, samples=samples[samples["nodes"] == 1])
    yield Table(machine="2 x DGX A100, vidur", files=files, samples=samples[samples["nodes"] == 2])
    for gpu in ("a100", "v100"):
        file = f"vidur/history/{gpu}/all_reduce.csv.gz"
        machine = f"8 x {gpu.upper()}, vidur, earlier"
        yield Table(machine=machine, files=(file,), samples=read_vidur_history(data / file, machine))
    logs = tuple(f"superbench/nccl_{kind}.log" for kind in ("allreduce", "allgather", "broadcast"))
    yield _logs(data, "A100-SXM4-40GB, superbench", logs)
    found = sorted((data / "nccl_tests_cluster").rglob("*.log"))
    yield _logs(data, "H100 80GB HBM3, example-cluster01", tuple(str(path.relative_to(data)) for path in found))
    samples = read_aws_all_reduce(data / _AWS_TABLE, "2 x p4de.24xlarge", ranks=16, nodes=2)
    yield Table(machine="2 x p4de.24xlarge", files=(_AWS_TABLE,), samples=samples)


def _logs(data: Path, machine: str, files: tuple[str, ...]) -> Table:
    traces = [read_nccl_tests(data / file) for file in files]
    return Table(machine=machine, files=files, samples=of_logs(traces, machine))


def copy_tables(data: Path) -> Iterator[Table]:
    """Sweeps over sizes through pinned memory."""
    for machine, file in (
        ("V100-PCIE-32GB", "superbench/cuda_memory_h2d_bw.log"),
        ("AMD 738c (MI100)", "superbench/rocm_memory_h2d_bw.log"),
    ):
        yield Table(machine=machine, files=(file,), samples=copies_of(read_bandwidth_log(data / file)))
    table = pd.read_csv(data / PCIE_TABLE)
    size = table["megabytes"] * 1e6
    pinned_first = table["direction"].str.startswith("HtoD")
    samples = pd.DataFrame(
        {
            "source": pinned_first.map({True: "pinned", False: "device"}),
            "destination": pinned_first.map({True: "device", False: "pinned"}),
            "size_bytes": size,
            "seconds": size / (table["GB_per_s"] * 1e9),
            "opposite": False,
            "at_once": 1,
        }
    )
    for machine, rows in samples.groupby(table["gpu"], sort=True):
        yield Table(machine=str(machine), files=(PCIE_TABLE,), samples=rows)


def pageable_tables(data: Path) -> Iterator[Table]:
    """Copies of pageable memory to the device that ran in training and inference; no trace holds a large one back."""
    for machine, files in PAGEABLE_COPIES.items():
        copies = pd.concat([copies_of(read_any(data / file)) for file in files], ignore_index=True)
        yield Table(machine=machine, files=files, samples=copies[copies["source"] == "pageable"])


def copies_of(trace: Trace, *, least_bytes: int = 1) -> pd.DataFrame:
    """Copies between host and device of a trace, each taken to have run alone."""
    rows = trace.of("copy")
    rows = rows[((rows["source"] == "device") != (rows["destination"] == "device")) & (rows["duration_s"] > 0)]
    rows = rows[rows["size_bytes"] >= least_bytes].rename(columns={"duration_s": "seconds"})
    return rows[["source", "destination", "size_bytes", "seconds"]].assign(opposite=False, at_once=1)


def recorded_rates(data: Path) -> Iterator[dict[str, Any]]:
    """By trace and way, of copies from `_LARGE_BYTES` up: GPU, how many, and quantiles of their bytes per second."""
    for file in RECORDED_COPIES:
        trace = read_any(data / file)
        gpu = next((fact for name, fact in trace.provenance.items() if name.startswith("gpu")), "")
        copies = copies_of(trace, least_bytes=_LARGE_BYTES)
        rate = copies["size_bytes"] / copies["seconds"]
        for way, rates in rate.groupby(copies["source"] + " to " + copies["destination"], sort=True):
            low, median, high = rates.quantile([0.1, 0.5, 0.9]).tolist()
            facts = {"machine": gpu, "file": file, "way": way, "copies": len(rates)}
            yield facts | {"low_bytes_per_s": low, "median_bytes_per_s": median, "high_bytes_per_s": high}


def both_ways_ratio(data: Path) -> float:
    """How much longer a copy by the copy engine takes with one the other way, in superbench's log of gpu_copy."""
    trace = read_bandwidth_log(data / _COPY_LOG)
    rows = trace.of("copy")
    rows = rows[((rows["source"] == "pinned") | (rows["destination"] == "pinned")) & rows["name"].str.contains("dma")]
    both = rows["name"].str.contains("_and_")
    return float(rows["duration_s"][both].median() / rows["duration_s"][~both].median())


def pageable_bytes_per_s(data: Path) -> tuple[float, float]:
    """Large copies of pageable memory to A100: the fastest to one GPU in a trace; to each of 8 GPUs at once.

    The latter is FlagPerf's ``interconnect-h2d`` (base/benchmarks), whose tensor, of ``torch.rand``, is not pinned.
    """
    (samples,) = (table.samples for table in pageable_tables(data) if table.machine.startswith("A100"))
    large = samples[samples["size_bytes"] >= _STEADY_PAGEABLE_BYTES]
    value = pd.read_csv(data / LINKS_TABLE).set_index("quantity")["value"]
    at_once = float(value["HtoD, 8 GPUs at once, mean per GPU"]) * 1e9
    return float((large["size_bytes"] / large["seconds"]).max()), at_once


def kernel_tables(data: Path) -> Iterator[Table]:
    """Small kernels whose arrays together fill at most half of the L2 cache."""
    for gpu, cache_bytes in _CACHE_BYTES.items():
        places = {mode: f"gpu_benches/gpu-small-kernels/{gpu}{suffix}.txt" for mode, suffix in _MODES.items()}
        files = {mode: file for mode, file in places.items() if (data / file).exists()}
        samples = pd.concat([read_small_kernels(data / file, mode) for mode, file in files.items()])
        fitting = samples[samples["size_bytes"] <= cache_bytes / 2]
        yield Table(machine=gpu.upper().replace("_", " "), files=tuple(files.values()), samples=fitting)


def link_calibrations(data: Path) -> dict[str, dict[str, Any]]:
    """By machine what was fitted to its tables: ``copies``, ``collectives`` and ``launches`` as far as there are any.

    Each has its ``files`` and the JSON form of its models: `CopyModel`; `CollectiveTable` (compact) and `AlphaBeta`;
    `LaunchModel`; under ``both_ways`` the `both_ways_ratio`; under ``calls`` `stepsim.costmodels.launches.CallCost`,
    and under ``recorded_copies`` what `recorded_rates` gives, both as traces have them, with other work beside.
    """
    found: dict[str, dict[str, Any]] = {}
    for table in collective_tables(data):
        compact, general = CollectiveTable(compact=True).fit(table.samples), AlphaBeta().fit(table.samples)
        models = {"table": compact.as_json(), "alpha_beta": general.as_json()}
        found.setdefault(table.machine, {})["collectives"] = {"files": list(table.files), **models}
    for table in (*copy_tables(data), *pageable_tables(data)):
        model = CopyModel().fit(table.samples)
        found.setdefault(table.machine, {})["copies"] = {"files": list(table.files), **model.as_json()}
    for table in kernel_tables(data):
        kernels = LaunchModel().fit(table.samples)
        found.setdefault(table.machine, {})["launches"] = {"files": list(table.files), **kernels.as_json()}
    for machine, file in _CALL_TRACES.items():
        cost = call_cost(read_any(data / file))
        found.setdefault(machine, {})["calls"] = {"files": [file], **asdict(cost)}
    for rates in recorded_rates(data):
        found.setdefault(rates.pop("machine"), {}).setdefault("recorded_copies", []).append(rates)
    found[BOTH_WAYS] = {"both_ways": {"files": [_COPY_LOG], "factor": both_ways_ratio(data)}}
    return found
