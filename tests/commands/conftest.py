"""The files of the loop, made once by the commands themselves, and a working directory beside them."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from loop_files import walk_the_loop, write_model


@contextmanager
def working_in(folder: Path) -> Iterator[None]:
    """With the model at hand, and one thread: two on a busy machine wait for each other, and a tiny model then takes
    seconds.
    """
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.syspath_prepend(str(folder))
        yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def files(tmp_path_factory):
    """One file of each kind."""
    folder = tmp_path_factory.mktemp("loop")
    write_model(folder)
    with working_in(folder):
        return walk_the_loop(folder)


@pytest.fixture(scope="module", autouse=True)
def beside_the_files(files):
    with working_in(files.plan.parent):
        yield


@pytest.fixture
def here(tmp_path, monkeypatch):
    """An empty working directory."""
    monkeypatch.chdir(tmp_path)
    return tmp_path
