"""The verbs that need neither torch nor the machine in question: what they tell, and how they refuse."""

import gzip
import io
import json
import re
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from command_line import done, refused
from loop_files import KINETO, priced

from stepsim.cli import main
from stepsim.machines import load_machine, save_machine
from stepsim.plan import Plan
from stepsim.plan.builder import PlanBuilder
from stepsim.strategies import STRATEGIES, KeepAll

ROOT = Path(__file__).parents[2]


def test_no_option_of_simulating_loads_torch(files):
    program = (
        "import sys; from stepsim.cli import main; code = main(sys.argv[1:]); "
        "sys.exit('torch was loaded' if 'torch' in sys.modules else code)"
    )

    ran = subprocess.run(
        [sys.executable, "-c", program, "simulate", files.plan, *map(str, priced(files))],
        capture_output=True,
        text=True,
        cwd=ROOT,
    )

    assert (ran.returncode, ran.stderr) == (0, "")


def test_steps_can_be_joined_and_simulate_tells_the_time_of_one(here, files):
    one = done("simulate", files.plan, *priced(files), "--json").facts
    four = done("simulate", files.plan, *priced(files), "--repeat", 4, "--json").facts

    assert "period_s" not in one
    assert four["period_s"] == pytest.approx(one["makespan_s"], rel=0.01)
    assert four["makespan_s"] == pytest.approx(4 * one["makespan_s"], rel=0.01)


def test_with_noise_simulate_tells_quantiles_and_the_seed_decides(here, files):
    runs = [
        done("simulate", files.plan, *priced(files), "--runs", 3, "--seed", seed, "--json").facts["quantiles_s"]
        for seed in (1, 1)
    ]

    assert runs[0] == runs[1]
    assert list(runs[0]) == ["0.05", "0.5", "0.95"]


def test_caching_accounting_tells_what_is_reserved(here, files):
    ran = done("simulate", files.plan, *priced(files), "--accounting", "caching", "--json").facts

    assert ran["peak_reserved_bytes"]["cpu0"] >= ran["peak_bytes"]["cpu0"]
    assert ran["peak_reserved_bytes"]["cpu0"] % (2 << 20) == 0


@pytest.mark.parametrize("engine", ["reference", "compiled"])
def test_simulate_says_which_engine_ran_and_either_says_the_same(here, files, engine):
    ran = done("simulate", files.plan, *priced(files), "--engine", engine, "--json").facts

    assert ran["engine"] == engine
    assert ran["makespan_s"] == done("simulate", files.plan, *priced(files), "--json").facts["makespan_s"]


def test_plan_tells_what_it_promises(files, here):
    ran = done(
        "plan", files.workload, "--machine", "this_cpu", "--calibration", files.calibration, "-o", "p.plan", "--json"
    )

    fixed = {"strategy", "feasible", "predicted_s", "predicted_peak_bytes", "search_seconds"}
    assert fixed <= set(ran.facts)
    assert ran.facts["strategy"] == "greedy"
    assert ran.facts["feasible"] is True
    assert len(Plan.load("p.plan")) > 0
    assert all(line.startswith("stepsim: warning: ") for line in ran.err.splitlines())


def test_a_plan_keeps_to_its_memory_limit(files):
    ran = done("simulate", files.plan, "--machine", files.machine, "--calibration", files.calibration, "--json")

    assert ran.facts["peak_bytes"]["cpu0"] <= 22 * 2**10
    assert ran.facts["peak_bytes"]["host"] > 0


def test_a_limit_above_what_the_device_has_is_what_the_device_has(files, here):
    plenty = ("--memory", "9" * 18 + "TiB")

    ran = done("plan", files.workload, "--machine", files.machine, "--calibration", files.calibration, *plenty)

    assert "TiB" not in ran.out


def test_simulate_tells_time_memory_and_what_to_trust(files):
    ran = done("simulate", files.plan, "--machine", "this_cpu", "--calibration", files.calibration, "--json")

    assert {"makespan_s", "peak_bytes", "busy", "tasks", "engine", "seconds"} <= set(ran.facts)
    assert ran.facts["engine"] in ("reference", "compiled")
    assert ran.facts["tasks"] == len(Plan.load(files.plan))
    assert all(0 <= share <= 1 for share in ran.facts["busy"].values())
    assert sum(ran.facts["trust"].values()) == pytest.approx(1)
    assert "(calibrated)" in ran.out
    assert ran.err == ""


def one_big_relu(path):
    builder = PlanBuilder()
    stream = builder.stream("compute", builder.device("gpu0"))
    builder.compute(builder.work("relu", bytes_read=9 * 10**8), stream)
    builder.build().save(path)


def test_without_a_calibration_the_result_says_that_it_is_a_bound(here):
    one_big_relu("by-hand.plan")
    shipped = load_machine("v100_pcie")
    devices = [replace(device, model="") for device in shipped.devices]
    save_machine(replace(shipped, devices=tuple(devices)), "unknown.toml")

    ran = done("simulate", "by-hand.plan", "--machine", "unknown.toml", "--json")

    assert ran.facts["makespan_s"] == pytest.approx(1e-3)  # the V100 moves 900 GB/s
    assert ran.facts["trust"] == {"roofline": 1.0}
    assert "uncalibrated" in ran.out
    assert ran.err == ""


def test_the_calibration_that_ships_for_the_gpu_serves_unless_another_is_named(here):
    one_big_relu("by-hand.plan")

    by_default = done("simulate", "by-hand.plan", "--machine", "v100_pcie", "--json")
    by_name = done("simulate", "by-hand.plan", "--machine", "v100_pcie", "--calibration", "v100", "--json")
    wrong = refused("simulate", "by-hand.plan", "--machine", "v100_pcie", "--calibration", "t4")

    assert "(shipped calibration v100)" in by_default.out
    assert by_default.facts["makespan_s"] == by_name.facts["makespan_s"] > 1e-3
    assert wrong.startswith("calibration 't4' is of Tesla T4; device 'gpu0' is a Tesla V100-PCIE-32GB")


def test_a_time_from_an_extrapolated_calibration_says_so(here):
    one_big_relu("by-hand.plan")

    assert "extrapolated: shipped calibration l4" in done("simulate", "by-hand.plan", "--machine", "l4").out


def test_the_files_beside_a_simulation_are_what_they_should_be(files):
    chrome = json.loads(files.chrome.read_text())

    assert any(event.get("ph") == "X" for event in chrome["traceEvents"])
    assert files.picture.read_bytes().startswith(b"\x89PNG")
    assert files.timeline.stat().st_size > 0


def test_replay_tells_recorded_and_simulated(files):
    """The kernel ends 2 us before the wait for it; what follows the wait is recorded host work."""
    ran = done("replay", files.kineto, "--json")

    (step,) = ran.facts["steps"]
    assert {"trace", "events", "kernels", "streams", "steps", "explained"} <= set(ran.facts)
    assert (ran.facts["events"], ran.facts["kernels"], ran.facts["streams"]) == (4, 1, 1)
    assert step["name"] == "ProfilerStep#1"
    assert step["measured_s"] == pytest.approx(40e-6)
    assert step["predicted_s"] == pytest.approx(40e-6)
    assert sum(ran.facts["explained"].values()) == pytest.approx(1)
    assert ran.err == ""


def test_the_name_of_a_step_does_not_steer_the_terminal(here):
    first, *others = KINETO["traceEvents"]
    events = [{**first, "name": "ProfilerStep#1 \x1b[2J[bold]"}, *others]
    Path("t.json").write_text(json.dumps({"traceEvents": events}))

    assert "ProfilerStep#1 ?[2J[bold]" in done("replay", "t.json").out


def test_every_file_of_the_loop_can_be_shown(files):
    for file in files.shown:
        assert len(done("show", file).out.splitlines()) > 2, file


def test_a_limit_below_what_any_plan_reaches_is_refused_and_nothing_is_written(files, here):
    told = ("--machine", "this_cpu", "--calibration", files.calibration)

    message = refused("plan", files.workload, *told, "--memory", "1KiB", "-o", "tight.plan")

    assert message.startswith(f"{files.workload}: memory limit 1.00 KiB is below what greedy reaches: ")


@pytest.mark.parametrize("strategy", ["keep-all", "greedy", "vdnn-all"])
def test_the_smallest_limit_that_is_told_works_and_one_byte_less_does_not(files, here, strategy):
    told = ("plan", files.workload, *priced(files), "--strategy", strategy)
    message = refused(*told, "--memory", "1")
    least_bytes = int(re.search(r"the smallest limit that works is (\d+) \(", message)[1])

    refused(*told, "--memory", least_bytes - 1)
    ran = done(*told, "--memory", least_bytes, "--json")

    assert ran.facts["predicted_peak_bytes"] <= least_bytes


def test_a_search_that_was_stopped_says_so(files, here):
    ran = done("plan", files.workload, *priced(files), "--strategy", "refined", "--time-limit", "0", "--json")

    assert ran.facts["complete"] is False
    assert ", not searched to the end (0 s), peak " in ran.out


@dataclass(frozen=True)
class Hasty:
    """Keeps everything, and says that it looked for 2.913 s and not to the end."""

    def plan(self, *nouns, **limits):
        return replace(KeepAll().plan(*nouns, **limits), complete=False, search_seconds=2.913)


@pytest.mark.parametrize(("limit_s", "told"), [(60, "2.91 s"), (2.5, "2.5 s")])
def test_a_search_that_gave_up_before_its_time_limit_tells_the_seconds_it_took(files, here, monkeypatch, limit_s, told):
    monkeypatch.setitem(STRATEGIES, "hasty", Hasty())
    command = ("plan", files.workload, *priced(files), "--strategy", "hasty", "--time-limit", limit_s)

    ran = done(*command, "--json")

    assert f", not searched to the end ({told}), peak " in ran.out
    assert (ran.facts["complete"], ran.facts["search_seconds"]) == (False, 2.913)
    assert f" is below what keep-all reaches in {told}: " in refused(*command, "--memory", 1, "-o", "tight.plan")


def test_a_limit_that_a_stopped_search_misses_is_answered_with_one_that_works(files, here):
    message = refused("plan", files.workload, *priced(files), "--memory", "22KiB", "--time-limit", "0")

    assert re.search(r"is below what greedy reaches in 0 s: \d+ \(.*\) works, less may in more time$", message)


def test_a_plan_that_exceeds_the_machine_is_refused(files, here):
    tight = files.machine.read_text().replace("[[devices]]", "[[devices]]", 1)
    start = tight.index("memory_bytes = ")
    Path("tight.toml").write_text(tight[:start] + "memory_bytes = 1024" + tight[tight.index("\n", start) :])

    message = refused("simulate", files.plan, "--machine", "tight.toml", "--calibration", files.calibration, "-o", "t")

    assert message.startswith("out of memory on cpu0: ")


def test_this_cpu_has_no_data_sheet_so_a_calibration_is_asked_for(files, here):
    assert "give a calibration" in refused("simulate", files.plan, "--machine", "this_cpu")


def test_a_calibration_of_another_machine_is_refused(files, here):
    told = ("--machine", "v100_pcie", "--calibration", files.calibration)

    assert "'this_cpu'" in refused("plan", files.workload, *told)


def test_a_picture_of_no_known_format_is_refused(files, here):
    told = ("--machine", "this_cpu", "--calibration", files.calibration)

    assert "must be one of" in refused("simulate", files.plan, *told, "--plot", "picture.docx")


def a_trace():
    """A file of stepsim, as bytes."""
    buffer = io.BytesIO()
    pq.write_table(pa.table({"kind": ["kernel"]}), buffer)
    return buffer.getvalue()


TRACES = {
    "not JSON": (b"kernels, many", "JSON or its gzip: this is no JSON, it begins with b'kernels, many'"),
    "damaged JSON": (b'{"kernels":', "is not JSON"),
    "truncated gzip": (gzip.compress(json.dumps(KINETO).encode())[:-20], "gzip: is truncated or damaged"),
    "no events": (b"{}", "traceEvents: is missing"),
    "no kernels": (json.dumps({"traceEvents": KINETO["traceEvents"][:2]}).encode(), "kernels: must be >= 1"),
    "empty": (b"", "file: is empty"),
    "a trace of ours": (
        a_trace(),
        "must be the Kineto trace that torch.profiler exported, JSON or its gzip: this is a stepsim trace, which",
    ),
    "a log": (b"cpu_to_gpu0_by_dma 25.6\n", "this is a bandwidth log, which stepsim traces show prints"),
}


@pytest.mark.parametrize("trace", TRACES)
def test_a_trace_that_cannot_be_replayed_is_refused_by_file_and_field(here, trace):
    content, problem = TRACES[trace]
    Path("t.json").write_bytes(content)

    message = refused("replay", "t.json")

    assert message.startswith("t.json: ")
    assert problem in message


@pytest.mark.parametrize("kind", ["plan", "timeline", "workload", "calibration", "comparison"])
def test_a_file_of_ours_that_is_no_trace_is_named_as_what_it_is(here, files, kind):
    assert f"this is a stepsim-{kind}, which stepsim show prints" in refused("replay", getattr(files, kind))


@pytest.mark.parametrize("engine", ["reference", "compiled"])
def test_a_simulation_that_is_stopped_says_how_far_it_was(here, files, monkeypatch, capsys, engine):
    """Ctrl-C comes when the first progress is told."""
    from stepsim.simulator import reference
    from stepsim.simulator.compiled import engine as compiled_engine

    def stop(done, total):
        raise KeyboardInterrupt

    @contextmanager
    def stopping(title):
        yield stop

    monkeypatch.setattr("stepsim.commands.on_paper.LONG_ROWS", 0)
    monkeypatch.setattr("stepsim.progress.progress", stopping)
    monkeypatch.setattr(compiled_engine, "INSTANTS_A_CALL", 1)
    monkeypatch.setattr(compiled_engine, "is_free_of_contention", lambda problem: False)
    monkeypatch.setattr(reference.run, "TOLD_EVERY", 1)

    code = main(["simulate", str(files.plan), *map(str, priced(files)), "--engine", engine, "-o", "t.timeline"])

    assert code == 130
    assert re.search(r"^stepsim: stopped after \d+ of \d+ tasks, at \S+ s of simulated time$", capsys.readouterr().err)
    assert not list(here.iterdir())
