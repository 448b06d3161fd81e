"""The main job from end to end, at small sizes: the demo, and what it tells its reader to try next."""

import json
import shlex
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from command_line import Ran, done

from stepsim.demo import FULL, QUICK, run_demo
from stepsim.validation import Comparison, load_comparisons

STRATEGIES = ("keep-all", "greedy", "greedy-recompute")

WIDE_BAND = 0.5
"""A busy machine is not a bug: the exact promises are on memory and values, not on time."""

TRIES = 3


@dataclass(frozen=True)
class Shown:
    """What the command printed, the folder that it wrote, and what lay there when it was done."""

    ran: Ran
    folder: Path
    names: frozenset[str]
    comparisons: tuple[Comparison, ...]


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    folder, threads = tmp_path_factory.mktemp("demo folder"), torch.get_num_threads()
    ran = done("demo", "--quick", "-o", folder, "--json")
    names = frozenset(path.name for path in folder.iterdir())
    yield Shown(ran, folder, names, load_comparisons(folder / "comparison.json"))
    torch.set_num_threads(threads)


def test_the_quick_demo_is_the_full_one_at_smaller_sizes():
    assert QUICK.batches.keys() == FULL.batches.keys()
    assert all(QUICK.batches[model] < FULL.batches[model] for model in FULL.batches)
    assert QUICK.repeats < FULL.repeats
    assert QUICK.runs < FULL.runs


def test_results_are_on_stdout_with_the_fixed_keys_on_the_last_line_and_progress_on_stderr(demo):
    fixed = {
        "workload",
        "strategy",
        "predicted_s",
        "measured_s",
        "predicted_peak_bytes",
        "measured_peak_bytes",
        "gradient_max_abs_difference",
    }

    entries = demo.ran.facts["comparisons"]

    assert [(entry["workload"], entry["strategy"]) for entry in entries] == [
        (comparison.workload, comparison.strategy) for comparison in demo.comparisons
    ]
    assert all(fixed <= set(entry) for entry in entries)
    for progress in ("1. Capture", "2. Record and fit", "3. Plan and simulate", "4. Execute", "executing"):
        assert progress in demo.ran.err
        assert progress not in demo.ran.out


def test_every_plan_has_the_peak_and_the_values_that_were_predicted(demo):
    named = [(comparison.workload, comparison.strategy) for comparison in demo.comparisons]
    assert named == [(model, strategy) for model in QUICK.batches for strategy in STRATEGIES]
    for comparison in demo.comparisons:
        assert comparison.measured_peak_bytes == comparison.predicted_peak_bytes
        assert comparison.gradient_max_abs_difference == 0.0
        assert len(comparison.measured_runs_s) == QUICK.runs


def test_the_limit_is_below_what_keeping_everything_needs_and_the_other_plans_meet_it(demo):
    for kept, *limited in zip(*[iter(demo.comparisons)] * len(STRATEGIES), strict=True):
        assert kept.limit_bytes is None
        for comparison in limited:
            assert comparison.predicted_peak_bytes <= comparison.limit_bytes < kept.predicted_peak_bytes


@pytest.mark.parametrize("model", QUICK.batches)
def test_the_result_says_why_keeping_everything_is_refused(demo, model):
    assert f"\n{model}: keep-all refused: out of memory on cpu0: row " in demo.ran.out


def test_predicted_times_are_of_the_right_size(demo, tmp_path):
    worst = [max(abs(comparison.step_error) for comparison in demo.comparisons)]

    while worst[-1] >= WIDE_BAND and len(worst) < TRIES:
        worst.append(max(abs(comparison.step_error) for comparison in run_demo(tmp_path, QUICK).comparisons))

    assert worst[-1] < WIDE_BAND, worst


def test_everything_that_the_loop_makes_is_in_the_folder(demo):
    wanted = {"comparison.json", "this_cpu.toml"}
    for model in QUICK.batches:
        wanted |= {f"{model}.{kind}" for kind in ("workload.json", "trace.parquet", "calibration.json")}
        wanted |= {f"{model}.{name}.{kind}" for name in STRATEGIES for kind in ("plan", "png", "perfetto.json")}
    assert demo.names == wanted
    for model in QUICK.batches:
        events = json.loads((demo.folder / f"{model}.greedy.perfetto.json").read_bytes())["traceEvents"]
        assert {event["args"]["name"] for event in events if event["name"] == "process_name"} == {
            "predicted",
            "measured",
        }
        assert (demo.folder / f"{model}.greedy.png").read_bytes().startswith(b"\x89PNG")


def test_every_command_that_the_demo_suggests_runs(demo, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    lines = [line.strip() for line in demo.ran.out.splitlines()]

    commands = [shlex.split(line)[1:] for line in lines if line.startswith("stepsim ")]
    for command in commands:
        done(*command)

    (comparison,) = load_comparisons("comparison.json")
    assert [command[0] for command in commands] == ["show", "plan", "validate"]
    assert comparison.measured_peak_bytes == comparison.predicted_peak_bytes
    assert comparison.gradient_max_abs_difference == 0.0
