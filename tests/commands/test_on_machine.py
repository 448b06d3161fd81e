"""The verbs that run torch on this machine: what they tell, and how they refuse."""

import json
import os
from pathlib import Path

import pytest
from command_line import done, in_a_new_process, refused
from loop_files import BATCH, FACTORY

from stepsim.plan.builder import PlanBuilder

ROOT = Path(__file__).parents[2]


def test_capture_tells_the_size_of_the_step(here):
    ran = done("capture", FACTORY, "--batch", BATCH, "-o", "w.json", "--json")

    assert set(ran.facts) == {"workload", "ops", "flop", "batch_step", "file"}
    assert ran.facts["workload"] == "layers"
    assert ran.facts["flop"] == 3 * 2 * BATCH * (8 * 16 + 16 * 16 + 16 * 4) - 2 * BATCH * 8 * 16  # no gradient of x
    assert Path("w.json").exists()
    assert ran.err == ""


def test_record_and_fit_tell_what_they_timed_and_how_well_it_fits(here):
    recorded = done("record", FACTORY, "--batch", BATCH, "--repeats", 2, "-o", "t.parquet", "--json")
    fitted = done("fit", "t.parquet", "t.parquet", "-o", "c.json", "--json")

    assert set(recorded.facts) == {"trace", "events", "works"}
    assert recorded.facts["works"] > 0
    assert "recording" in recorded.err
    assert set(fitted.facts) == {"calibration", "machine", "errors"}
    assert fitted.facts["machine"] == "this_cpu"
    assert set(fitted.facts["errors"]) == {
        "measured work, other repeats",
        "roofline, work left out",
        "copy device to host, size left out",
        "copy host to device, size left out",
    }


def test_execute_tells_what_was_measured_beside_plain_pytorch(files):
    ran = done("execute", files.plan, FACTORY, "--json")

    predicted = done("simulate", files.plan, "--machine", files.machine, "--calibration", files.calibration, "--json")
    keys = {"measured_s", "measured_peak_bytes", "allocated_peak_bytes", "gradient_max_abs_difference"}
    assert set(ran.facts) == keys
    assert ran.facts["measured_s"] > 0
    assert ran.facts["measured_peak_bytes"] == predicted.facts["peak_bytes"]["cpu0"]
    assert ran.facts["gradient_max_abs_difference"] == 0


def test_validate_tells_predicted_and_measured(files, here):
    ran = done("validate", files.plan, FACTORY, "--calibration", files.calibration, "--runs", 1, "--json")

    (comparison,) = ran.facts["comparisons"]
    fixed = {
        "workload",
        "strategy",
        "predicted_s",
        "measured_s",
        "predicted_peak_bytes",
        "measured_peak_bytes",
        "gradient_max_abs_difference",
    }
    assert fixed <= set(comparison)
    assert comparison["predicted_peak_bytes"] == comparison["measured_peak_bytes"]
    assert comparison["gradient_max_abs_difference"] == 0
    assert "executing" in ran.err
    assert Path("comparison.json").exists()


@pytest.mark.parametrize(
    ("factory", "problem"),
    [
        ("tiny_cli_model", "package.module:factory, got 'tiny_cli_model'"),
        ("no_such_module:layers", "no_such_module cannot be imported"),
        ("tiny_cli_model:nothing", "has no function 'nothing'"),
        ("tiny_cli_model:MODEL", "has no function 'MODEL'"),
        ("tiny_cli_model:broken", "broken(32) failed: RuntimeError: no weights"),
        ("tiny_cli_model:unfinished", "must give (module, inputs, optimizer or None), got Layers"),
        ("tiny_cli_model:branches", "branches cannot be captured: its control flow or shapes depend on values"),
        ("tiny_cli_model:wide", "wide cannot be captured"),
    ],
)
@pytest.mark.parametrize("verb", ["capture", "record"])
def test_a_factory_that_gives_no_step_is_refused(here, verb, factory, problem):
    assert problem in refused(verb, factory)


def test_a_module_that_fails_while_it_is_imported_is_refused(here):
    Path("failing_cli_model.py").write_text("raise RuntimeError('not today\\nnor tomorrow')")

    assert "failing_cli_model cannot be imported: RuntimeError: not today" in refused("capture", "failing_cli_model:f")


def test_torch_adds_nothing_to_the_one_line(files):
    ran = in_a_new_process("capture", "tiny_cli_model:branches", PYTHONPATH=f"{ROOT}{os.pathsep}{files.plan.parent}")

    assert ran.returncode == 2
    assert len(ran.stderr.splitlines()) == 1, ran.stderr


def test_a_plan_that_was_not_made_of_a_captured_step_cannot_be_executed(here):
    builder = PlanBuilder()
    builder.compute(builder.work("F"), builder.stream("compute", builder.device("cpu0")))
    builder.build().save("by-hand.plan")

    assert refused("execute", "by-hand.plan", FACTORY).startswith("by-hand.plan: ")


@pytest.mark.parametrize("verb", ["capture", "record", "execute", "validate"])
def test_a_device_that_is_not_here_is_refused_in_one_line_before_anything_is_built(files, here, verb):
    plan = () if verb in ("capture", "record") else (files.plan,)
    calibration = ("--calibration", files.calibration) if verb == "validate" else ()

    message = refused(verb, *plan, "tiny_cli_model:broken", *calibration, "--device", "cuda:99")

    assert message.startswith("device 'cuda:99' is not here; there is cpu")


def test_a_plan_of_another_module_is_refused_by_both_graphs(files, here):
    assert "the plan is for graph" in refused("execute", files.plan, "stepsim.workloads.models:small_resnet")


@pytest.mark.parametrize("threads", [None, "0", "-1", "some"])
def test_a_calibration_that_does_not_say_its_threads_cannot_be_validated(files, here, threads):
    body = json.loads(files.calibration.read_text())
    del body["provenance"]["threads"]
    body["provenance"] |= {} if threads is None else {"threads": threads}
    Path("c.json").write_text(json.dumps(body))

    message = refused("validate", files.plan, FACTORY, "--calibration", "c.json")

    assert message.startswith("c.json: provenance.threads: ")
