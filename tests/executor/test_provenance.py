"""Facts of a machine are told, or said to be unknown; they never end a run."""

import shutil
import subprocess

import pytest

from stepsim.executor import provenance


@pytest.mark.parametrize("error", [subprocess.TimeoutExpired("nvidia-smi", 60), PermissionError("not yours")])
def test_a_driver_that_nvidia_smi_does_not_tell_is_unknown(error: Exception, monkeypatch) -> None:
    def failing(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(shutil, "which", lambda _: "/usr/bin/nvidia-smi")
    monkeypatch.setattr(subprocess, "run", failing)

    assert provenance._driver() == f"unknown: nvidia-smi: {type(error).__name__}"
