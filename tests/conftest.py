import os
from pathlib import Path

import pytest
from hypothesis import settings

from stepsim.datasets import FOLDER_VARIABLE, data_folder

ROOT = Path(__file__).parents[1]

# Examples are drawn from a fixed seed, so that a failure on one machine is a failure on all; and they have no
# deadline, because a busy machine is not a bug.
settings.register_profile("stepsim", derandomize=True, deadline=None)
settings.load_profile("stepsim")

BESIDE = ROOT / "../shared/data"
"""Where measured data may lie beside a checkout."""


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The folder of measured traces and tables, which is not part of the repository."""
    beside = FOLDER_VARIABLE not in os.environ and BESIDE.is_dir()
    path = (BESIDE if beside else data_folder()).resolve()
    if not path.is_dir():
        pytest.skip(f"no measured data at {path}: set {FOLDER_VARIABLE}, or stepsim data fetch")
    return path


def needs_data(item: pytest.Item) -> bool:
    return "data_dir" in getattr(item, "fixturenames", ())


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in filter(needs_data, items):
        item.add_marker("needs_data")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item):
    """With ``STEPSIM_REQUIRE_DATA=1`` a test that needs data and skips, whatever it lacks, fails."""
    report = yield
    if os.environ.get("STEPSIM_REQUIRE_DATA") == "1" and needs_data(item) and report.skipped:
        _, _, reason = report.longrepr
        report.outcome, report.longrepr = "failed", f"STEPSIM_REQUIRE_DATA=1 allows no skip: {reason}"
    return report
