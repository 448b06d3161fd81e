"""stepsim workloads: the list; and a shipped name where a file is taken."""

import pytest
from command_line import done, refused

from stepsim.workloads.shipped import SHIPPED, load_workload
from stepsim.workloads.storage import saved_bytes


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_all_workloads_are_listed_with_what_a_sample_takes():
    ran = done("workloads", "--json")

    listed = {entry["name"]: entry for entry in ran.facts["workloads"]}
    assert list(listed) == list(SHIPPED)
    assert all(name in ran.out for name in SHIPPED)
    alexnet, workload = listed["alexnet"], load_workload("alexnet")
    assert alexnet["factory"] == "stepsim.workloads.families.alexnet:alexnet"
    assert alexnet["parameter_bytes"] == 4 * 61_100_840
    assert alexnet["ops"] == len(workload.ops)
    assert alexnet["saved_bytes_per_sample"] == saved_bytes(workload.at_batch(5)) - saved_bytes(workload.at_batch(4))
    assert alexnet["output_bytes_per_sample"] > alexnet["saved_bytes_per_sample"]


def test_a_shipped_workload_is_planned_at_any_batch_by_its_name():
    """Where the peak is between forward and backward, each sample more brings all that is saved of it."""
    at = {batch: load_workload("vgg16_cifar").at_batch(batch) for batch in (1000, 2000)}

    peaks = {batch: planned("vgg16_cifar", "--batch", batch).facts["predicted_peak_bytes"] for batch in at}

    assert peaks[2000] - peaks[1000] >= saved_bytes(at[2000]) - saved_bytes(at[1000])
    assert peaks[1000] > saved_bytes(at[1000])


def test_a_shipped_workload_is_shown_by_its_name_unless_a_file_has_it(here):
    shown = done("show", "alexnet").out
    (here / "alexnet").write_text("{")

    assert shown.startswith("workload alexnet, batch ")
    assert refused("show", "alexnet").startswith("alexnet: ")


def test_a_plan_is_found_where_the_step_that_keeps_everything_exceeds_the_device():
    ran = done(
        "plan", "vgg16_cifar", "--batch", 8000, "--machine", "rtx_2080_ti", "--strategy", "vdnn-dynamic", "--json"
    )

    assert ran.facts["feasible"]
    assert ran.facts["predicted_peak_bytes"] < saved_bytes(load_workload("vgg16_cifar").at_batch(8000))


def planned(*arguments):
    return done("plan", *arguments, "--machine", "rtx_2080_ti", "--strategy", "keep-all", "--json")


def test_a_name_that_does_not_ship_is_refused():
    assert "unknown workload 'vgg11'" in refused("plan", "vgg11", "--machine", "rtx_2080_ti")
