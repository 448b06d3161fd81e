"""Every Kineto file that was recorded on a real machine is read, by any layout and version, without a warning."""

import warnings

import numpy as np
import pytest

from stepsim.traces import read_kineto
from stepsim.traces.detect import format_of

FOLDERS = ("hta", "kineto", "param", "tracelens", "triosim")


@pytest.fixture(scope="module")
def kineto_files(data_dir):
    files = [path for folder in FOLDERS for path in sorted((data_dir / folder).rglob("*.json.gz"))]
    return [path for path in files if format_of(path).name == "Kineto trace"]


@pytest.fixture(scope="module")
def traces(kineto_files):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return {f"{path.parent.name}/{path.name}": read_kineto(path) for path in kineto_files}


def test_all_are_read(traces):
    assert len(traces) == 29


def test_all_have_kernels_with_launches_in_time_order(traces):
    for name, trace in traces.items():
        kernels, launches = trace.of("kernel", "collective"), trace.of("launch")
        assert len(kernels) > 0, name
        assert kernels["correlation"].isin(launches["correlation"]).any(), name
        assert np.all(np.diff(trace.events["start_s"]) >= 0), name
        assert (trace.events["duration_s"] >= 0).all(), name


def test_copies_and_collectives_have_sizes_where_the_file_tells_them(traces):
    silent = {name for name, trace in traces.items() if (trace.of("copy")["size_bytes"] == 0).any()}
    told = {name for name, trace in traces.items() if (trace.of("collective")["size_bytes"] > 0).any()}

    assert silent == {"mi300/resnet_act_checkpoint.json.gz"}
    assert {"nccl_parser_config/nccl_data.json.gz", "mi300/resnet_act_checkpoint.json.gz"} <= told


def test_graphs_are_launches_of_many_kernels(traces):
    trace = traces["negative_queue_length_values_check/rank0.json.gz"]
    graphs = trace.of("launch").query("name == 'cudaGraphLaunch'")
    kernels = trace.of("kernel").groupby("correlation").size()

    assert len(graphs) > 0
    assert kernels.loc[graphs["correlation"]].max() == 8
