"""``make check-data``: what needs measured data fails without them, where it would skip elsewhere."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

SMALL = """
import pytest

def test_that_needs_the_folder(data_dir):
    assert data_dir.is_dir()

def test_that_needs_a_file(data_dir):
    if not (data_dir / "a.log").is_file():
        pytest.skip("no a.log")

def test_that_needs_nothing():
    pytest.skip("no reason")
"""


@pytest.fixture
def check(tmp_path):
    """Runs three small tests under the conftest of this folder, with data in the folder ``data`` or ``nowhere``."""
    (tmp_path / "test_small.py").write_text(SMALL)
    (tmp_path / "data").mkdir()

    def run(folder, required, *options):
        return subprocess.run(
            [
                sys.executable,
                "-m",
                "pytest",
                "-rs",
                "-p",
                "conftest",
                "-c",
                ROOT / "pyproject.toml",
                *options,
                tmp_path,
            ],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            env={
                **os.environ,
                "PYTHONPATH": f"{ROOT / 'tests'}{os.pathsep}{ROOT}",
                "STEPSIM_DATA": str(tmp_path / folder),
                "STEPSIM_REQUIRE_DATA": required,
            },
        )

    return run


def test_without_the_folder_what_needs_it_skips_with_a_reason(check, tmp_path):
    ran = check("nowhere", "")

    assert ran.returncode == 0, ran.stdout
    assert f"no measured data at {tmp_path / 'nowhere'}: set STEPSIM_DATA, or stepsim data fetch" in ran.stdout
    assert "3 skipped" in ran.stdout


def test_where_data_are_required_only_what_needs_none_may_skip(check):
    ran = check("nowhere", "1")

    assert ran.returncode == 1, ran.stdout
    assert "STEPSIM_REQUIRE_DATA=1 allows no skip: Skipped: no measured data at " in ran.stdout
    assert "1 skipped, 2 errors" in ran.stdout


def test_a_single_file_that_is_absent_fails_too(check):
    ran = check("data", "1", "-m", "needs_data")

    assert ran.returncode == 1, ran.stdout
    assert "STEPSIM_REQUIRE_DATA=1 allows no skip: Skipped: no a.log" in ran.stdout
    assert "1 failed, 1 passed, 1 deselected" in ran.stdout
