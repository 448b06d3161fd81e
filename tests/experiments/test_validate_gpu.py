"""The GPU script on a CPU, with tiny models: exact things are claimed, and no time is."""

import contextlib
import io
import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch

from experiments.validate_gpu import TINY, claims_of, main, run
from experiments.validated import MANIFEST, Validation, load_validation, save_validation
from stepsim.costmodels import Calibration
from stepsim.errors import FileError, StepsimError
from stepsim.machines import this_cpu
from stepsim.simulator import simulate

EXACT = ("measured less predicted peak bytes is 0", "off plain PyTorch by at most 2 times what that is off itself")


@dataclass(frozen=True)
class Done:
    folder: Path
    code: int
    out: str


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Done]:
    """The command, once."""
    folder, out, before = tmp_path_factory.mktemp("validated") / "cpu", io.StringIO(), torch.get_num_threads()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
        code = main(["--device", "cpu", "--tiny", "-o", str(folder)])
    yield Done(folder, code, out.getvalue())
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def found(done: Done) -> Validation:
    return load_validation(done.folder)


def test_peaks_and_gradients_are_exact_and_the_command_says_so(done: Done) -> None:
    assert done.code == 0
    assert [line for line in done.out.splitlines() if line.startswith(("holds", "FAILS"))] == [
        f"holds  {name}: {claim}: 0" for name in TINY.models for claim in EXACT
    ]


def test_the_folder_holds_these_files_and_nothing_half_written(done: Done) -> None:
    machine = ["machine.toml", "calibration.json", "comparisons.json", "comparisons.csv", MANIFEST]
    models = [f"{name}.{kind}" for name in TINY.models for kind in ("trace.parquet", "plan", "timeline")]

    assert {path.name for path in done.folder.iterdir()} == {*machine, *models}


def test_what_is_loaded_can_be_fitted_and_simulated_to_the_same_prediction(found: Validation) -> None:
    calibration = Calibration.fit([model.trace for model in found.models.values()])

    assert found.machine == this_cpu()
    assert found.device == "cpu"
    for model in found.models.values():
        predicted = simulate(model.plan, found.machine, calibration)
        assert predicted.makespan_s == model.comparison.predicted_s
        assert simulate(model.plan, found.machine, found.calibration).makespan_s == pytest.approx(predicted.makespan_s)
        assert model.measured.plan_hash == model.plan.content_hash
        assert model.measured.makespan_s in model.comparison.measured_runs_s
        assert model.allocated_peak_bytes is None


def test_the_table_has_a_row_for_each_model(done: Done, found: Validation) -> None:
    lines = (done.folder / "comparisons.csv").read_text().splitlines()

    assert lines[0].split(",") == list(found.table().columns)
    assert [line.split(",")[0] for line in lines[1:]] == list(TINY.models)


def spoilt(found: Validation, **changes: object) -> Validation:
    """With these changes in the comparison of the gpt."""
    model = found.models["gpt"]
    changed = replace(model, comparison=replace(model.comparison, **changes))
    return replace(found, models={**found.models, "gpt": changed})


def failing(found: Validation) -> list[str]:
    return [claim.claim for claim in claims_of(found) if not claim.holds]


def test_a_byte_more_fails_the_claim_on_bytes(found: Validation) -> None:
    peak_bytes = found.models["gpt"].comparison.measured_peak_bytes

    assert failing(spoilt(found, measured_peak_bytes=peak_bytes + 1)) == [f"gpt: {EXACT[0]}"]


@pytest.mark.parametrize(("of_itself", "fails"), [(0.0, True), (0.4, True), (0.5, False)])
def test_a_plan_may_be_off_plain_pytorch_by_twice_what_that_is_off_itself(found, of_itself, fails) -> None:
    off = spoilt(found, gradient_max_abs_difference=1.0)
    models = {name: replace(model, eager_max_abs_difference=of_itself) for name, model in off.models.items()}

    assert failing(replace(off, models=models)) == ([f"gpt: {EXACT[1]}"] if fails else [])


def test_an_older_validation_is_replaced_whole(found: Validation, tmp_path: Path) -> None:
    save_validation(found, tmp_path)
    newer = replace(found, device="another")

    save_validation(newer, tmp_path)

    assert load_validation(tmp_path).device == "another"
    assert all(path.is_file() for path in tmp_path.iterdir())


def test_a_folder_whose_writing_was_cut_off_is_refused(found: Validation, tmp_path: Path) -> None:
    save_validation(found, tmp_path)
    (tmp_path / MANIFEST).unlink()

    with pytest.raises(FileError, match=f"{MANIFEST}: file: cannot be read"):
        load_validation(tmp_path)


GOOD = {"allocated_peak_bytes": None, "eager_max_abs_difference": 0.0}


@pytest.mark.parametrize(
    ("models", "problem"),
    [
        ({}, "models: must be those of comparisons.json, ['vgg16', 'gpt'], got {}"),
        ({"gpt": GOOD, "vgg16": GOOD}, "models: must be those of comparisons.json, ['vgg16', 'gpt']"),
        ({"vgg16": GOOD, "gpt": 3}, "models.gpt: must hold allocated_peak_bytes and eager_max_abs_difference, got 3"),
        (
            {"vgg16": GOOD, "gpt": {**GOOD, "allocated_peak_bytes": "much"}},
            "models.gpt.allocated_peak_bytes: must be whole or null, got 'much'",
        ),
        (
            {"vgg16": {**GOOD, "eager_max_abs_difference": None}, "gpt": GOOD},
            "models.vgg16.eager_max_abs_difference: must be a number",
        ),
    ],
    ids=["none", "another order", "no facts", "bytes in words", "no difference"],
)
def test_a_manifest_with_a_wrong_field_is_refused_by_its_name(found, tmp_path, models, problem) -> None:
    save_validation(found, tmp_path)
    manifest = json.loads((tmp_path / MANIFEST).read_text())
    (tmp_path / MANIFEST).write_text(json.dumps({**manifest, "models": models}))

    with pytest.raises(FileError) as caught:
        load_validation(tmp_path)

    assert str(caught.value).startswith(f"{tmp_path / MANIFEST}: {problem}")


def test_a_device_that_is_not_here_is_one_line_and_nothing_is_written(tmp_path, capsys) -> None:
    code = main(["--device", "cuda:99", "-o", str(tmp_path / "never")])

    told = capsys.readouterr().err
    assert code == 2
    assert told.startswith("validate_gpu: device 'cuda:99' is not here; there is cpu")
    assert len(told.splitlines()) == 1
    assert not (tmp_path / "never").exists()


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_a_full_run_without_a_gpu_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StepsimError, match="torch sees no CUDA device"):
        run(tmp_path, quick=False)
