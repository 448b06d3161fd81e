"""The command line as its users meet it: what it takes, what it prints, and how it refuses."""

import gzip
import json
import os
import re
import subprocess
import sys
import warnings
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from command_line import commands, done, refused, stepsim
from hypothesis import given, settings
from hypothesis import strategies as st
from loop_files import BATCH, FACTORY, KINETO, walk_the_loop, write_model

from stepsim import __version__
from stepsim.cli import main
from stepsim.machines import load_machine, save_machine
from stepsim.plan import Plan
from stepsim.plan.builder import PlanBuilder

ROOT = Path(__file__).parents[1]

OPTIONS = {
    "demo": ["--quick", "--output", "-o", "--json"],
    "capture": ["FACTORY", "--batch", "--device", "--output", "-o", "--json"],
    "record": ["FACTORY", "--batch", "--repeats", "--device", "--threads", "--output", "-o", "--json"],
    "import": ["FILE", "--output", "-o", "--json"],
    "fit": ["TRACE", "--output", "-o", "--json"],
    "plan": ["WORKLOAD", "--machine", "--strategy", "--memory", "--calibration", "--output", "-o", "--json"],
    "simulate": [
        "PLAN",
        "--machine",
        "--calibration",
        "--perfetto",
        "--plot",
        "--engine",
        "--sharing",
        "--accounting",
        "--repeat",
        "--runs",
        "--seed",
        "--output",
        "-o",
        "--json",
    ],
    "execute": ["PLAN", "FACTORY", "--device", "--threads", "--output", "-o", "--json"],
    "validate": [
        "PLAN",
        "FACTORY",
        "--calibration",
        "--device",
        "--machine",
        "--strategy",
        "--runs",
        "--output",
        "-o",
        "--json",
    ],
    "replay": ["TRACE", "--json"],
    "machines": ["NAME", "--plot", "--json"],
    "calibrations": ["NAME", "--json"],
    "show": ["FILE"],
    "traces show": ["FILE", "--plot", "--json"],
    "data fetch": ["NAME", "--json"],
    "data list": ["NAME", "--json"],
    "data path": ["--json"],
}
"""All commands, in the order of the data flow, with all that they take. Whoever adds one says so here."""


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    """Two threads on a busy machine wait for each other, and a tiny model then takes seconds."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """One file of each kind, made by the commands themselves."""
    folder = tmp_path_factory.mktemp("loop")
    write_model(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.syspath_prepend(str(folder))
        yield walk_the_loop(folder)


@pytest.fixture
def here(tmp_path, monkeypatch, files):
    """An empty working directory, beside the files of the loop."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def in_a_new_process(*arguments, **environment):
    program = "import sys; from stepsim.cli import main; sys.exit(main(sys.argv[1:]))"
    return subprocess.run(
        [sys.executable, "-c", program, *map(str, arguments)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
    )


# --- what it takes ----------------------------------------------------------------------------------------------------


def test_the_commands_and_their_options_are_those_of_the_list():
    found = {
        name: [
            option
            for parameter in verb.params
            for option in ([parameter.metavar] if parameter.param_type_name == "argument" else parameter.opts)
            if option != "--help"
        ]
        for name, verb in commands().items()
    }

    assert found == OPTIONS
    assert list(found) == list(OPTIONS)


@pytest.mark.parametrize("verb", OPTIONS)
def test_each_command_explains_itself_and_every_option(verb):
    command = commands()[verb]

    shown = done(*verb.split(), "--help").out

    assert f"stepsim {verb}" in shown
    assert command.help
    assert all(parameter.help for parameter in command.params if "--help" not in parameter.opts)


def test_without_arguments_it_shows_the_help():
    assert stepsim() == done("--help") == done("-h")
    assert all(verb.partition(" ")[0] in stepsim().out for verb in OPTIONS)


def test_the_strategies_that_help_names_are_those_that_there_are():
    from stepsim.strategies import STRATEGIES

    (option,) = (p for p in commands()["plan"].params if p.name == "strategy")

    assert option.help == f"{', '.join(list(STRATEGIES)[:-1])} or {list(STRATEGIES)[-1]}."


def test_the_version_is_that_of_the_package():
    assert done("--version").out == f"stepsim {__version__}\n"


def test_help_loads_nothing_heavy():
    program = (
        "import sys; from stepsim.cli import main; main(['--help']); main(['plan', '--help']); "
        "heavy = {'torch', 'matplotlib', 'simpy', 'numba', 'numpy', 'pandas', 'pyarrow', 'scipy'}; "
        "sys.exit(' '.join(sorted(heavy & set(sys.modules))) or 0)"
    )

    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT)

    assert (ran.returncode, ran.stderr) == (0, "")


def test_no_option_of_simulating_loads_torch(files):
    program = (
        "import sys; from stepsim.cli import main; code = main(sys.argv[1:]); "
        "sys.exit('torch was loaded' if 'torch' in sys.modules else code)"
    )
    priced = ("--machine", files.machine, "--calibration", files.calibration)

    ran = subprocess.run(
        [sys.executable, "-c", program, "simulate", files.plan, *priced], capture_output=True, text=True, cwd=ROOT
    )

    assert (ran.returncode, ran.stderr) == (0, "")


# --- what it prints ---------------------------------------------------------------------------------------------------


def priced(files):
    return "--machine", files.machine, "--calibration", files.calibration


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


def test_capture_tells_the_size_of_the_step(here):
    ran = done("capture", FACTORY, "--batch", BATCH, "-o", "w.json", "--json")

    assert set(ran.facts) == {"workload", "ops", "flop", "file"}
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


def test_every_file_of_the_loop_can_be_shown(files):
    for file in files.shown:
        assert len(done("show", file).out.splitlines()) > 2, file


def test_results_of_one_line_stay_on_it_however_long_they_are(files, here):
    output = Path("a" * 100) / ("b" * 100)

    ran = in_a_new_process("fit", files.trace, "-o", output, COLUMNS="40")

    assert len(ran.stdout.splitlines()) == 1
    assert ran.stdout.endswith(f"-> {output}\n")


def test_nothing_is_coloured_when_piped(files):
    for arguments in (("--help",), ("show", files.comparison), ("simulate", files.plan, "--nonsense")):
        ran = in_a_new_process(*arguments)

        assert "\x1b" not in ran.stdout + ran.stderr


# --- how it refuses ---------------------------------------------------------------------------------------------------

READERS = {
    "plan": ("plan", "FILE", "--machine", "this_cpu"),
    "plan's calibration": ("plan", "WORKLOAD", "--machine", "this_cpu", "--calibration", "FILE"),
    "plan's machine": ("plan", "WORKLOAD", "--machine", "FILE"),
    "simulate": ("simulate", "FILE", "--machine", "this_cpu", "-o", "out"),
    "execute": ("execute", "FILE", FACTORY, "-o", "out"),
    "validate": ("validate", "FILE", FACTORY, "--calibration", "CALIBRATION"),
    "fit": ("fit", "FILE"),
    "fit's second": ("fit", "TRACE", "FILE"),
    "replay": ("replay", "FILE"),
    "show": ("show", "FILE"),
}
"""Each place where a command reads a file."""

EVERY_READER = pytest.mark.parametrize("reader", READERS)


def reading(reader, bad, files):
    """The command with ``bad`` in place of the file in question, and good ones elsewhere."""
    given_files = {"FILE": bad, "WORKLOAD": files.workload, "CALIBRATION": files.calibration, "TRACE": files.trace}
    return [given_files.get(word, word) for word in READERS[reader]]


def named_for(reader, folder):
    return folder / ("bad.toml" if reader == "plan's machine" else "bad")


@EVERY_READER
def test_a_missing_file_is_named(files, here, reader):
    missing = named_for(reader, here)

    assert refused(*reading(reader, missing, files)).startswith(f"{missing}: ")


@EVERY_READER
def test_a_folder_in_place_of_a_file_is_refused(files, here, reader):
    folder = named_for(reader, here)
    folder.mkdir()

    assert refused(*reading(reader, folder, files)).startswith(f"{folder}: ")


@EVERY_READER
def test_a_file_of_another_kind_is_refused(files, here, reader):
    wrong = named_for(reader, here)
    wrong.write_bytes(files.picture.read_bytes())

    assert refused(*reading(reader, wrong, files)).startswith(f"{wrong}: ")


@pytest.mark.parametrize("reader", [reader for reader in READERS if reader != "show"])
def test_a_file_of_the_wrong_verb_is_refused_by_its_format(files, here, reader):
    wrong = named_for(reader, here)
    wrong.write_bytes((files.comparison if "machine" not in reader else files.workload).read_bytes())

    assert refused(*reading(reader, wrong, files)).startswith(f"{wrong}: ")


@pytest.mark.parametrize("kind", ["workload", "trace", "calibration", "plan", "timeline", "comparison"])
@given(share=st.floats(0.0, 1.0, exclude_max=True))
@settings(max_examples=10)
def test_a_truncated_file_is_refused(files, kind, share):
    whole = getattr(files, kind)
    cut = whole.with_name("truncated")
    cut.write_bytes(whole.read_bytes()[: int(share * whole.stat().st_size)])

    assert refused("show", cut).startswith(f"{cut}: ")


HEADS = [b"", b"PK\x03\x04", b"PAR1", b"\x1f\x8b\x08", b"{", b'{"format": "stepsim-plan"', b"[devices]"]


@EVERY_READER
@given(head=st.sampled_from(HEADS), tail=st.binary(max_size=64))
@settings(max_examples=20)
def test_random_bytes_are_refused_in_one_line(files, reader, head, tail):
    bad = named_for(reader, files.plan.parent)
    bad.write_bytes(head + tail)

    assert refused(*reading(reader, bad, files)).startswith(f"{bad}: ")


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


def test_a_limit_below_what_any_plan_reaches_is_refused_and_nothing_is_written(files, here):
    priced = ("--machine", "this_cpu", "--calibration", files.calibration)

    message = refused("plan", files.workload, *priced, "--memory", "1KiB", "-o", "tight.plan")

    assert message.startswith(f"{files.workload}: memory limit 1.00 KiB is below what greedy reaches: ")


def test_a_plan_that_exceeds_the_machine_is_refused(files, here):
    tight = files.machine.read_text().replace("[[devices]]", "[[devices]]", 1)
    start = tight.index("memory_bytes = ")
    Path("tight.toml").write_text(tight[:start] + "memory_bytes = 1024" + tight[tight.index("\n", start) :])

    message = refused("simulate", files.plan, "--machine", "tight.toml", "--calibration", files.calibration, "-o", "t")

    assert message.startswith("out of memory on cpu0: ")


def test_this_cpu_has_no_data_sheet_so_a_calibration_is_asked_for(files, here):
    assert "give a calibration" in refused("simulate", files.plan, "--machine", "this_cpu")


def test_a_calibration_of_another_machine_is_refused(files, here):
    priced = ("--machine", "v100_pcie", "--calibration", files.calibration)

    assert "'this_cpu'" in refused("plan", files.workload, *priced)


@pytest.mark.parametrize("threads", [None, "0", "-1", "some"])
def test_a_calibration_that_does_not_say_its_threads_cannot_be_validated(files, here, threads):
    body = json.loads(files.calibration.read_text())
    del body["provenance"]["threads"]
    body["provenance"] |= {} if threads is None else {"threads": threads}
    Path("c.json").write_text(json.dumps(body))

    message = refused("validate", files.plan, FACTORY, "--calibration", "c.json")

    assert message.startswith("c.json: provenance.threads: ")


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["plan", "w.json"], "'--machine'"),
        (["plan", "w.json", "--machine", "cray"], "unknown machine 'cray'; known: "),
        (
            ["plan", "w.json", "--machine", "this_cpu", "--strategy", "best"],
            "unknown strategy 'best'; known: keep-all, ",
        ),
        (["plan", "w.json", "--machine", "this_cpu", "--memory", "lots"], "a size looks like 8GiB"),
        (["plan", "w.json", "--machine", "this_cpu", "--memory", "-1"], "a size looks like 8GiB"),
        (["plan", "w.json", "--machine", "this_cpu", "--memory", "9" * 400], "a size looks like 8GiB"),
        (["plan", "w.json", "--machine", "this_cpu", "--memory"], "--memory"),
        (["capture", FACTORY, "--batch", "0"], "'--batch'"),
        (["capture", FACTORY, "--batch", "two"], "'--batch'"),
        (["record", FACTORY, "--repeats", "1"], "'--repeats'"),
        (["record"], "'FACTORY'"),
        (["validate", "p", FACTORY, "--calibration", "c", "--runs", "0"], "'--runs'"),
        (["validate", "p", FACTORY], "'--calibration'"),
        (["fit"], "'TRACE'"),
        (["show"], "'FILE'"),
        (["show", "a", "b"], "b"),
        (["simulate", "p.plan", "--machine", "this_cpu", "--fast"], "--fast"),
        (["dance"], "'dance'"),
        (["data"], "Missing command; see stepsim data --help"),
        (["data", "dance"], "'dance'; see stepsim data --help"),
    ],
    ids=" ".join,
)
def test_a_wrong_command_line_is_refused_by_what_is_wrong_with_it(here, arguments, problem):
    assert problem in refused(*arguments)


def test_a_usage_error_says_where_the_help_is(here):
    assert refused("plan", "--fast").endswith("see stepsim plan --help")
    assert refused("dance").endswith("see stepsim --help")


WRITERS = {
    "capture": ("capture", FACTORY, "-o", "OUTPUT"),
    "record": ("record", FACTORY, "--repeats", "2", "-o", "OUTPUT"),
    "fit": ("fit", "TRACE", "-o", "OUTPUT"),
    "plan": ("plan", "WORKLOAD", "--machine", "this_cpu", "--calibration", "CALIBRATION", "-o", "OUTPUT"),
    "simulate": ("simulate", "PLAN", "--machine", "this_cpu", "--calibration", "CALIBRATION", "-o", "OUTPUT"),
    "simulate's plot": (
        "simulate",
        "PLAN",
        "--machine",
        "this_cpu",
        "--calibration",
        "CALIBRATION",
        "--plot",
        "OUTPUT",
    ),
    "simulate's trace": (
        *("simulate", "PLAN", "--machine", "this_cpu", "--calibration", "CALIBRATION"),
        *("--perfetto", "OUTPUT"),
    ),
    "execute": ("execute", "PLAN", FACTORY, "-o", "OUTPUT"),
    "validate": ("validate", "PLAN", FACTORY, "--calibration", "CALIBRATION", "--runs", "1", "-o", "OUTPUT"),
    "demo": ("demo", "--quick", "-o", "OUTPUT"),
}
"""Each place where a command writes a file."""


@pytest.mark.parametrize("writer", WRITERS)
def test_an_output_in_a_folder_that_cannot_be_made_is_refused(files, here, writer):
    Path("occupied").write_text("a file where a folder should be")
    output = Path("occupied/out.png")
    words = {
        "OUTPUT": output,
        "TRACE": files.trace,
        "WORKLOAD": files.workload,
        "CALIBRATION": files.calibration,
        "PLAN": files.plan,
    }

    ran = stepsim(*[words.get(word, word) for word in WRITERS[writer]])

    last = ran.err.splitlines()[-1]
    assert ran.code == 2
    assert last.startswith("stepsim: occupied/out.png")
    assert "output: cannot be written: " in last
    assert os.listdir() == ["occupied"]


def test_a_picture_of_no_known_format_is_refused(files, here):
    priced = ("--machine", "this_cpu", "--calibration", files.calibration)

    assert "must be one of" in refused("simulate", files.plan, *priced, "--plot", "picture.docx")


TRACES = {
    "not JSON": (b"kernels, many", "is not JSON"),
    "truncated gzip": (gzip.compress(json.dumps(KINETO).encode())[:-20], "gzip: is truncated or damaged"),
    "no events": (b"{}", "traceEvents: is missing"),
    "no kernels": (json.dumps({"traceEvents": KINETO["traceEvents"][:2]}).encode(), "kernels: must be >= 1"),
    "empty": (b"", "is not JSON"),
}


@pytest.mark.parametrize("trace", TRACES)
def test_a_trace_that_cannot_be_replayed_is_refused_by_file_and_field(here, trace):
    content, problem = TRACES[trace]
    Path("t.json").write_bytes(content)

    message = refused("replay", "t.json")

    assert message.startswith("t.json: ")
    assert problem in message


@pytest.mark.parametrize("name", ["[bold]x[/nope].json", "a  b.json", "two\nlines.json", "x" * 200, "a%s{0}.json"])
def test_what_looks_like_markup_in_a_name_is_printed_as_it_is(here, name):
    assert refused("show", name).startswith(f"{name}: ".replace("\n", " "))


@pytest.mark.parametrize("name", ["[bold]x[/nope].json", "a  b.json", "%s{0}.json"])
def test_results_print_names_as_they_are(here, name):
    ran = done("capture", FACTORY, "-o", name)

    assert ran.out.endswith(f"-> {name}\n")
    assert name in done("show", name).out or "layers" in done("show", name).out


def test_an_interrupt_ends_quietly_with_the_code_of_an_interrupt(here, monkeypatch):
    def interrupted(path):
        raise KeyboardInterrupt

    monkeypatch.setattr(Plan, "load", interrupted)

    assert main(["execute", "p.plan", FACTORY]) == 130


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


def test_a_slip_of_ours_is_not_hidden(here, monkeypatch):
    def broken(path):
        raise ZeroDivisionError

    monkeypatch.setattr(Plan, "load", broken)

    with pytest.raises(ZeroDivisionError):
        main(["execute", "p.plan", FACTORY])


def test_a_warning_is_one_line_on_stderr_and_no_refusal(here, monkeypatch):
    def warning(*_: object, **__: object) -> int:
        warnings.warn("size 3 lies\noutside", stacklevel=1)
        warnings.warn("for developers", DeprecationWarning, stacklevel=1)
        return 0

    monkeypatch.setattr("stepsim.cli.app", warning)

    ran = stepsim("machines")

    assert ran.code == 0
    assert ran.err == "stepsim: warning: size 3 lies outside\n"
