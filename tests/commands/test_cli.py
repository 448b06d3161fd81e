"""The command line as a whole: its commands and options, its help, its manners."""

import subprocess
import sys
import warnings
from pathlib import Path

import pytest
from command_line import commands, done, in_a_new_process, refused, stepsim
from loop_files import FACTORY

from stepsim import __version__
from stepsim.cli import main
from stepsim.plan import Plan

ROOT = Path(__file__).parents[2]

OPTIONS = {
    "demo": ["--quick", "--output", "-o", "--json"],
    "capture": ["FACTORY", "--batch", "--device", "--output", "-o", "--json"],
    "record": ["FACTORY", "--batch", "--repeats", "--device", "--threads", "--output", "-o", "--json"],
    "import": ["FILE", "--output", "-o", "--json"],
    "fit": ["TRACE", "--output", "-o", "--json"],
    "plan": [
        "WORKLOAD",
        "--machine",
        "--strategy",
        "--memory",
        "--batch",
        "--time-limit",
        "--calibration",
        "--output",
        "-o",
        "--json",
    ],
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
    "workloads": ["--json"],
    "show": ["FILE"],
    "traces show": ["FILE", "--plot", "--json"],
    "data fetch": ["NAME", "--json"],
    "data list": ["NAME", "--json"],
    "data path": ["--json"],
}
"""All commands, in the order of the data flow, with all that they take. Whoever adds one says so here."""


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


def test_the_package_runs_as_the_command():
    ran = subprocess.run([sys.executable, "-m", "stepsim", "--version"], capture_output=True, text=True, cwd=ROOT)

    assert (ran.returncode, ran.stdout, ran.stderr) == (0, f"stepsim {__version__}\n", "")


def test_help_loads_nothing_heavy():
    program = (
        "import sys; from stepsim.cli import main; main(['--help']); main(['plan', '--help']); "
        "heavy = {'torch', 'matplotlib', 'simpy', 'numba', 'numpy', 'pandas', 'pyarrow', 'scipy'}; "
        "sys.exit(' '.join(sorted(heavy & set(sys.modules))) or 0)"
    )

    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT)

    assert (ran.returncode, ran.stderr) == (0, "")


def test_results_of_one_line_stay_on_it_however_long_they_are(files, here):
    output = Path("a" * 100) / ("b" * 100)

    ran = in_a_new_process("fit", files.trace, "-o", output, COLUMNS="40")

    assert len(ran.stdout.splitlines()) == 1
    assert ran.stdout.endswith(f"-> {output}\n")


def test_nothing_is_coloured_when_piped(files):
    for arguments in (("--help",), ("show", files.comparison), ("simulate", files.plan, "--nonsense")):
        ran = in_a_new_process(*arguments)

        assert "\x1b" not in ran.stdout + ran.stderr


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
        (["plan", "w.json", "--machine", "this_cpu", "--memory", "nan"], "a size looks like 8GiB"),
        (["plan", "w.json", "--machine", "this_cpu", "--time-limit", "soon"], "'--time-limit'"),
        (["plan", "w.json", "--machine", "this_cpu", "--time-limit", "soon"], "'soon'"),
        (["plan", "w.json", "--machine", "this_cpu", "--batch", "none"], "'none'"),
        (["plan", "w.json", "--machine", "this_cpu", "--batch"], "--batch"),
        (["plan", "", "--machine", "this_cpu"], "what follows plan is empty"),
        (["plan", "w.json", "--machine", "this_cpu", "--output", ""], "what follows --output is empty"),
        ([""], "what follows stepsim is empty"),
        (["plan", "alexnet", "--machine", "v100_pcie", "--time-limit", "-1"], "time limit: must be 0 to 1e+09 seconds"),
        (["plan", "alexnet", "--machine", "v100_pcie", "--time-limit", "nan"], "seconds, got nan"),
        (["plan", "alexnet", "--machine", "v100_pcie", "--time-limit", "1e12"], "seconds, got 1000000000000.0"),
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


@pytest.mark.parametrize(
    ("arguments", "value"),
    [
        (["capture", FACTORY, "--batch", "0"], "0"),
        (["capture", FACTORY, "--batch", "two"], "'two'"),
        (["simulate", "p.plan", "--machine", "this_cpu", "--engine", "steam"], "'steam'"),
    ],
    ids=" ".join,
)
def test_a_wrong_value_of_an_option_is_told_once(here, arguments, value):
    assert refused(*arguments).count(value) == 1


def test_a_usage_error_says_where_the_help_is(here):
    assert refused("plan", "--fast").endswith("see stepsim plan --help")
    assert refused("dance").endswith("see stepsim --help")


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
