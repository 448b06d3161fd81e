import os
from pathlib import Path

import pytest
from hypothesis import settings

ROOT = Path(__file__).parents[1]

# Examples are drawn from a fixed seed, so that a failure on one machine is a failure on all; and they have no
# deadline, because a busy machine is not a bug.
settings.register_profile("stepsim", derandomize=True, deadline=None)
settings.load_profile("stepsim")


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The folder of measured traces and tables, which is not part of the repository."""
    path = Path(os.environ.get("STEPSIM_DATA", ROOT / "../shared/data")).resolve()
    if not path.is_dir():
        pytest.skip(f"no measured data at {path}: set STEPSIM_DATA")
    return path
