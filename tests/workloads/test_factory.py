from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from stepsim.errors import CaptureError, StepsimError
from stepsim.workloads.factory import build_fake_step, build_step, load_factory


def test_a_factory_is_found_in_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "found_here.py").write_text("def small(batch):\n    return batch\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", ["elsewhere"])

    factory = load_factory("found_here:small")

    assert factory(7) == 7


@pytest.mark.parametrize(
    ("path", "problem"),
    [
        ("no_colon", "a factory is given as package.module:factory, got 'no_colon'"),
        ("module:", "a factory is given as package.module:factory, got 'module:'"),
        ("no_such_module:f", "factory 'no_such_module:f': no_such_module cannot be imported: ModuleNotFoundError: .*"),
        ("stepsim.errors:nothing", "factory 'stepsim.errors:nothing': stepsim.errors has no function 'nothing'"),
        ("stepsim.units:GIB", "factory 'stepsim.units:GIB': stepsim.units has no function 'GIB'"),
    ],
)
def test_a_missing_factory_is_one_clear_line(path: str, problem: str) -> None:
    with pytest.raises(StepsimError, match=f"^{problem}$"):
        load_factory(path)


def test_a_module_that_fails_on_import_is_one_clear_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "fails_on_import.py").write_text("raise ValueError('first line\\nsecond line')\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", ["elsewhere"])

    with pytest.raises(StepsimError, match=r"cannot be imported: ValueError: first line$"):
        load_factory("fails_on_import:f")


@pytest.mark.parametrize(
    ("made", "problem"),
    [
        (nn.Linear(2, 2), r"must give \(module, inputs, optimizer or None\), got Linear"),
        ((1, 2), r"must give \(module, inputs, optimizer or None\), got tuple"),
        ((len, (), None), r"must give a torch.nn.Module first, got builtin_function_or_method"),
        ((nn.Linear(2, 2), {"x": 1}, None), "inputs must be a tensor or a tuple, got dict"),
        ((nn.Linear(2, 2), (), "sgd"), "optimizer: must be None or one of torch.optim's SGD, Adam, AdamW, got str"),
    ],
)
def test_a_factory_that_gives_the_wrong_thing_is_one_clear_line(made: Any, problem: str) -> None:
    def factory(batch: int) -> Any:
        return made

    with pytest.raises(CaptureError, match=f"{problem}$"):
        build_step(factory, 1)


def test_a_factory_that_fails_is_one_clear_line() -> None:
    def factory(batch: int) -> Any:
        raise RuntimeError("no data")

    with pytest.raises(CaptureError, match=r"^factory\(4\) failed: RuntimeError: no data$"):
        build_step(factory, 4)


def test_a_single_tensor_is_taken_as_the_only_input() -> None:
    step = build_step(lambda batch: (nn.Linear(2, 2), torch.zeros(batch, 2), None), 3)

    assert [value.shape for value in step.inputs] == [(3, 2)]


def test_fake_modules_can_be_converted_and_keep_their_ties() -> None:
    def factory(batch: int) -> Any:
        module = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3), nn.Linear(3, 3))
        module[2].weight = module[0].weight
        module.to("cpu").double()
        return module, torch.zeros(batch, 3).double(), None

    module: Any = build_fake_step(factory, 2).module

    assert {tensor.dtype for tensor in module.parameters()} == {torch.float64}
    assert module[1].running_mean.dtype == torch.float64
    assert module[2].weight is module[0].weight


def test_after_a_fake_step_real_modules_are_converted_as_ever() -> None:
    build_fake_step(lambda batch: (nn.Linear(2, 2), (), None), 1)

    layer = nn.Linear(2, 2)
    weight = layer.weight
    layer.double()

    assert layer.weight is weight
