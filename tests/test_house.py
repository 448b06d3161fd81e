"""What holds for the package as a whole."""

import ast
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import stepsim

ROOT = Path(__file__).parents[1]

HEAVY = ("torch", "matplotlib", "simpy", "numba", "pandas", "pyarrow", "scipy")

IMPORT_LIMIT_S = 0.5

TORCH_ROOMS = ("executor", "workloads.capture", "workloads.program")

REPORT = """
import json, sys, time
began_s = time.perf_counter()
{statements}
print(json.dumps({{"seconds": time.perf_counter() - began_s, "modules": list(sys.modules)}}))
"""


def in_a_fresh_interpreter(statements):
    program = REPORT.format(statements=statements)
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT)
    return json.loads(run.stdout)


def packages(modules):
    return {module.partition(".")[0] for module in modules}


@pytest.mark.parametrize("module", ["stepsim", "stepsim.cli"])
def test_importing_loads_no_heavy_package(module):
    loaded = packages(in_a_fresh_interpreter(f"import {module}")["modules"])

    assert loaded.isdisjoint(HEAVY)


def test_planning_simulating_and_comparing_need_no_torch():
    light = [name for name, home in stepsim._HOME.items() if home not in TORCH_ROOMS]

    loaded = packages(in_a_fresh_interpreter(f"from stepsim import {', '.join(light)}")["modules"])

    assert "pandas" in loaded
    assert loaded.isdisjoint({"torch", "numba"})


def test_importing_stepsim_is_quick_even_on_a_busy_machine():
    """The best of three tries: the import itself takes a few milliseconds, the rest of the limit is for the load."""
    seconds = min(in_a_fresh_interpreter("import stepsim")["seconds"] for _ in range(3))

    assert seconds < IMPORT_LIMIT_S


@pytest.mark.parametrize("name", stepsim.__all__)
def test_a_public_name_resolves_to_what_bears_that_name(name):
    value = getattr(stepsim, name)

    assert value.__name__ == name
    assert name in dir(stepsim)


def test_type_checkers_see_exactly_the_names_that_resolve():
    tree = ast.parse((ROOT / "stepsim/__init__.py").read_text())
    guarded = [node for node in tree.body if isinstance(node, ast.If)]

    imported = {
        alias.name: entry.module
        for block in guarded
        for entry in block.body
        if isinstance(entry, ast.ImportFrom)
        for alias in entry.names
    }

    assert imported == {name: f"stepsim.{home}" for name, home in stepsim._HOME.items()}


def test_an_unknown_name_is_an_attribute_error_that_names_it():
    with pytest.raises(AttributeError, match="'no_such_name'"):
        _ = stepsim.no_such_name


@pytest.mark.parametrize(
    ("file", "pattern"),
    [("CITATION.cff", r"^version: (\S+)$"), ("CHANGELOG.md", r"^## (\d+\.\d+\.\d+)")],
    ids=["citation", "changelog"],
)
def test_the_version_is_the_same_everywhere(file, pattern):
    newest = re.search(pattern, (ROOT / file).read_text(), re.MULTILINE)

    assert newest is not None
    assert newest[1] == stepsim.__version__
