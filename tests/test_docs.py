"""The documentation is true: its Python runs, and its links lead somewhere."""

import doctest
import importlib
import re
from pathlib import Path

import pytest
from command_line import commands

from stepsim import load_machine
from stepsim.errors import FileError

ROOT = Path(__file__).parents[1]

PAGES = [*sorted(ROOT.glob("*.md")), *sorted(ROOT.glob("docs/**/*.md"))]

MODULES = [path for path in sorted(ROOT.glob("stepsim/**/*.py")) if ">>>" in path.read_text()]

COMMAND = re.compile(r"^stepsim +(\w+)(.*?)(?:\s#.*)?$", re.MULTILINE)

LINK = re.compile(r"\[[^\]]*\]\((?!https?:|mailto:|#)([^)#\s]+)")


def names_of(paths):
    return [str(path.relative_to(ROOT)) for path in paths]


def blocks_of(page, language):
    blocks = re.findall(r"^```(\w*)\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)
    return [block for marked, block in blocks if marked == language]


def python_of(page):
    return "\n".join(blocks_of(page, "python"))


def commands_of(page):
    return [command for block in blocks_of(page, "") for command in COMMAND.findall(block)]


PAGES_WITH_PYTHON = [page for page in PAGES if python_of(page)]

PAGES_WITH_COMMANDS = [page for page in PAGES if commands_of(page)]


def run_doctest(test):
    report = []
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    runner.run(test, out=report.append)
    return runner.failures, "".join(report)


@pytest.mark.parametrize("page", PAGES_WITH_PYTHON, ids=names_of(PAGES_WITH_PYTHON))
def test_the_python_of_a_page_prints_what_the_page_shows(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    test = doctest.DocTestParser().get_doctest(python_of(page), {}, str(page), str(page), 0)

    failures, report = run_doctest(test)

    assert test.examples, "a block marked python holds no >>> example"
    assert failures == 0, report


@pytest.mark.parametrize("module", MODULES, ids=names_of(MODULES))
def test_the_examples_of_a_module_print_what_they_show(module):
    name = ".".join(module.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")

    results = doctest.testmod(importlib.import_module(name), optionflags=doctest.ELLIPSIS)

    assert results.attempted > 0
    assert results.failed == 0


def test_the_machine_of_the_how_to_is_a_machine(tmp_path):
    node, cluster = blocks_of(ROOT / "docs/how-to/describe-a-machine.md", "toml")
    (tmp_path / "workstation.toml").write_text(node)
    (tmp_path / "lab.toml").write_text(cluster)

    machine, lab = load_machine(tmp_path / "workstation.toml"), load_machine(tmp_path / "lab.toml")

    assert [link.name for link in machine.route("host", "gpu0")] == ["host to switch", "switch to gpu0"]
    assert [link.name for link in lab.route("node0/host", "node3/host")] == ["node0/host to net", "node3/net to host"]


def test_the_bus_of_the_how_to_takes_the_place_of_a_pair_and_is_refused_beside_it(tmp_path):
    page = ROOT / "docs/how-to/describe-a-machine.md"
    node, bus = blocks_of(page, "toml")[0], blocks_of(page, "")[1]
    pair = ', ["switch", "host"]]'
    assert node.count(pair) == 1
    (tmp_path / "beside.toml").write_text(node + bus)
    (tmp_path / "instead.toml").write_text(node.replace(pair, "]") + bus)

    machine = load_machine(tmp_path / "instead.toml")

    assert [link.name for link in machine.route("host", "gpu0")] == ["bus", "switch to gpu0"]
    assert [link.name for link in machine.route("gpu0", "host")] == ["gpu0 to switch", "bus"]
    with pytest.raises(FileError, match="2 links lead there"):
        load_machine(tmp_path / "beside.toml")


def named(first, rest):
    """The command of a line: of a group, its noun and the verb behind it."""
    known = commands()
    return known.get(first) or known[f"{first} {rest.split()[0]}"]


@pytest.mark.parametrize("page", PAGES_WITH_COMMANDS, ids=names_of(PAGES_WITH_COMMANDS))
def test_the_commands_of_a_page_exist_with_their_options(page):
    for verb, rest in commands_of(page):
        known = {option for parameter in named(verb, rest).params for option in parameter.opts}
        used = set(re.findall(r"(?<=\s)--?[a-z][a-z-]*", rest))

        assert used <= known, f"stepsim {verb}{rest}"


@pytest.mark.parametrize("page", PAGES, ids=names_of(PAGES))
def test_the_links_of_a_page_lead_to_files(page):
    targets = LINK.findall(page.read_text())

    missing = [target for target in targets if not (page.parent / target).exists()]

    assert missing == []
