"""The main job from end to end, at small sizes: the demo, and what it tells its reader to try next."""

import json
import shlex

import pytest
from command_line import done

from stepsim.demo import QUICK, Demo, run_demo
from stepsim.validation import load_comparisons

STRATEGIES = ("keep-all", "greedy", "greedy-recompute")

WIDE_BAND = 0.5
"""A busy machine is not a bug: the exact promises are on memory and values, not on time."""

TRIES = 3


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    folder = tmp_path_factory.mktemp("demo")
    return run_demo(folder, QUICK), folder


def test_every_plan_has_the_peak_and_the_values_that_were_predicted(demo):
    comparisons = demo[0].comparisons

    named = [(comparison.workload, comparison.strategy) for comparison in comparisons]
    assert named == [(model, strategy) for model in QUICK.batches for strategy in STRATEGIES]
    for comparison in comparisons:
        assert comparison.measured_peak_bytes == comparison.predicted_peak_bytes
        assert comparison.gradient_max_abs_difference == 0.0
        assert len(comparison.measured_runs_s) == QUICK.runs


def test_the_limit_is_below_what_keeping_everything_needs_and_the_other_plans_meet_it(demo):
    done_demo: Demo = demo[0]

    for kept, *limited in zip(*[iter(done_demo.comparisons)] * len(STRATEGIES), strict=True):
        assert kept.limit_bytes is None
        for comparison in limited:
            assert comparison.predicted_peak_bytes <= comparison.limit_bytes < kept.predicted_peak_bytes
    assert set(done_demo.refusals) == set(QUICK.batches)
    assert all(text.startswith("out of memory on cpu0: row ") for text in done_demo.refusals.values())


def test_predicted_times_are_of_the_right_size(demo, tmp_path):
    comparisons = demo[0].comparisons
    for _ in range(TRIES):
        if max(abs(comparison.step_error) for comparison in comparisons) < WIDE_BAND:
            return
        comparisons = run_demo(tmp_path, QUICK).comparisons

    pytest.fail(f"step errors in {TRIES} tries: {[comparison.step_error for comparison in comparisons]}")


def test_everything_that_the_loop_makes_is_in_the_folder(demo):
    folder = demo[1]

    wanted = {"comparison.json", "this_cpu.toml"}
    for model in QUICK.batches:
        wanted |= {f"{model}.{kind}" for kind in ("workload.json", "trace.parquet", "calibration.json")}
        wanted |= {f"{model}.{name}.{kind}" for name in STRATEGIES for kind in ("plan", "png", "perfetto.json")}
    assert {path.name for path in folder.iterdir()} == wanted
    assert load_comparisons(folder / "comparison.json") == demo[0].comparisons
    for model in QUICK.batches:
        events = json.loads((folder / f"{model}.greedy.perfetto.json").read_bytes())["traceEvents"]
        assert {event["args"]["name"] for event in events if event["name"] == "process_name"} == {
            "predicted",
            "measured",
        }
        assert (folder / f"{model}.greedy.png").read_bytes().startswith(b"\x89PNG")


def test_every_command_that_the_demo_suggests_runs(demo):
    text = demo[0].next_steps(demo[1])

    commands = [line.strip() for line in text.splitlines() if line.strip().startswith("stepsim ")]
    assert [command.split()[1] for command in commands] == ["show", "plan", "validate"]
    for command in commands[:2]:
        done(*shlex.split(command)[1:])
    facts = done(*shlex.split(commands[2])[1:], "--runs", "1", "--output", demo[1] / "tight.json", "--json").facts
    (comparison,) = facts["comparisons"]
    assert comparison["measured_peak_bytes"] == comparison["predicted_peak_bytes"]
    assert comparison["gradient_max_abs_difference"] == 0.0
    (demo[1] / "tight.plan").unlink()
    (demo[1] / "tight.json").unlink()
