"""The GPU script on a CPU, with tiny models and an emulated link: exact things are claimed, and no time is."""

import contextlib
import io
import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch

from experiments import validate_gpu
from experiments.memory_plans import UNDER_A_LIMIT, WITHOUT_A_LIMIT, candidates
from experiments.places import EMULATED_BYTES_PER_S, Place
from experiments.validate_gpu import TINY, claims_of, main, run
from experiments.validated import MANIFEST, ValidatedPlan, Validation, load_validation, save_validation
from stepsim.costmodels import Calibration, GivenCosts
from stepsim.errors import FileError, MachineError, OutOfMemoryError, StepsimError
from stepsim.machines import this_cpu, with_emulated_link
from stepsim.memory import memory_profile
from stepsim.plan import TaskKind
from stepsim.simulator import simulate
from stepsim.traces import Trace
from stepsim.workloads import Workload
from stepsim.workloads.capture import capture

EXACT = (
    "no plan's measured peak bytes differ from those predicted",
    "no plan is off plain PyTorch by over 2 times what that is off itself",
)


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


def plans_of(found: Validation) -> Iterator[tuple[str, str, ValidatedPlan]]:
    """Model, name and plan of each."""
    for name, model in found.models.items():
        for strategy, plan in model.plans.items():
            yield name, strategy, plan


def test_the_folder_holds_these_files_and_nothing_half_written(done: Done, found: Validation) -> None:
    machine = ["machine.toml", "calibration.json", "comparisons.json", "comparisons.csv", MANIFEST]
    traces = [f"{name}.trace.parquet" for name in TINY.models]
    plans = [f"{name}.{plan}.{kind}" for name, plan, _ in plans_of(found) for kind in ("plan", "timeline")]

    assert {path.name for path in done.folder.iterdir()} == {*machine, *traces, *plans}


def test_plans_that_swap_recompute_and_do_both_ran_within_limits_that_keep_all_exceeds(found: Validation) -> None:
    for model in found.models.values():
        assert next(iter(model.plans)) == "keep-all"
        kept_bytes = model.plans["keep-all"].comparison.measured_peak_bytes
        limited = [one for one in model.comparisons if one.limit_bytes is not None]
        assert len(limited) >= 4
        assert all(one.limit_bytes == int(0.9 * kept_bytes) for one in limited)
        assert all(one.measured_peak_bytes <= one.limit_bytes for one in limited)
        ran = [set(plan.plan.tasks.kind.tolist()) for plan in model.plans.values()]
        assert any(TaskKind.SWAP_IN in kinds for kinds in ran)
        assert any(TaskKind.RECOMPUTE in kinds for kinds in ran)


def test_what_is_loaded_can_be_fitted_and_simulated_to_the_same_prediction(found: Validation) -> None:
    calibration = Calibration.fit([model.trace for model in found.models.values()])
    place = Place.of("cpu")

    assert found.machine == with_emulated_link(this_cpu(), EMULATED_BYTES_PER_S)
    assert found.device == "cpu"
    for _, _, plan in plans_of(found):
        predicted = simulate(plan.plan, found.machine, place.costs(calibration))
        assert predicted.makespan_s == plan.comparison.predicted_s
        again = simulate(plan.plan, found.machine, place.costs(found.calibration))
        assert again.makespan_s == pytest.approx(predicted.makespan_s)
        assert plan.measured.plan_hash == plan.plan.content_hash
        assert plan.measured.makespan_s in plan.comparison.measured_runs_s
        assert plan.allocated_peak_bytes is None


def test_swaps_took_at_least_what_the_emulated_link_needs(found: Validation) -> None:
    for _, _, plan in plans_of(found):
        spans, tasks = plan.measured.spans, plan.plan.tasks
        for row in (tasks.kind == TaskKind.SWAP_IN).nonzero()[0].tolist():
            seconds = spans.end_s[row] - spans.start_s[row]
            assert seconds >= tasks.size_bytes[row] / EMULATED_BYTES_PER_S


def test_the_table_has_a_row_for_each_plan(done: Done, found: Validation) -> None:
    lines = (done.folder / "comparisons.csv").read_text().splitlines()

    assert lines[0].split(",") == list(found.table().columns)
    assert [line.split(",")[:2] for line in lines[1:]] == [[name, plan] for name, plan, _ in plans_of(found)]


def test_a_device_that_is_not_here_is_no_place() -> None:
    with pytest.raises(MachineError, match="device 'cuda:99' is not here"):
        Place.of("cuda:99")


@pytest.fixture(scope="module")
def workload() -> Workload:
    model = TINY.models["gpt"]
    return capture(model.factory, model.batch, "gpt").workload


def proposed(workload: Workload, **options: object) -> dict[str, int | None]:
    """The limits of the candidates, by their names."""
    machine = with_emulated_link(this_cpu(), EMULATED_BYTES_PER_S)
    costs = GivenCosts(seconds={op.kind: 1e-4 for op in workload.ops})
    found = candidates(workload, machine, costs, time_limit_s=1.0, **options)
    assert len({one.plan.content_hash for one in found}) == len(found)
    assert all(
        memory_profile(one.plan).peak_bytes("cpu0") <= one.limit_bytes for one in found if one.limit_bytes is not None
    )
    return {one.name: one.limit_bytes for one in found}


def test_candidates_have_the_limits_that_were_asked_for_and_no_plan_is_there_twice(workload: Workload) -> None:
    found = proposed(workload, shares=(0.9, 0.8))

    # vDNN offloads inputs of convolutions, and of what stands before the first linear layer: here there is none.
    assert [name for name, limit in found.items() if limit is None] == ["keep-all"]
    assert {name.rpartition("-at-")[0] for name in found} - {""} <= set(UNDER_A_LIMIT)
    assert "greedy-at-0.9" in found
    assert found["greedy-at-0.8"] < found["greedy-at-0.9"]


def test_a_limit_that_no_plan_keeps_leaves_those_without_one(workload: Workload) -> None:
    found = proposed(workload, shares=(0.1,))

    assert set(found) <= set(WITHOUT_A_LIMIT)


def test_strategies_can_be_added(workload: Workload, capsys: pytest.CaptureFixture[str]) -> None:
    """The plan does not fit here, which is told."""
    proposed(workload, shares=(0.8,), more=("greedy-recompute",))

    assert "greedy-recompute-at-0.8: peak " in capsys.readouterr().err


def spoilt(found: Validation, **changes: object) -> Validation:
    """With these changes in the comparison of the last plan of the gpt."""
    model = found.models["gpt"]
    name, plan = list(model.plans.items())[-1]
    changed = replace(plan, comparison=replace(plan.comparison, **changes))
    plans = {**model.plans, name: changed}
    return replace(found, models={**found.models, "gpt": replace(model, plans=plans)})


def failing(found: Validation) -> list[str]:
    return [claim.claim for claim in claims_of(found) if not claim.holds]


@pytest.mark.parametrize("off_bytes", [1, -1])
def test_a_byte_more_or_less_in_one_plan_fails_the_claim_on_bytes(found: Validation, off_bytes: int) -> None:
    peak_bytes = found.models["gpt"].comparisons[-1].measured_peak_bytes

    assert failing(spoilt(found, measured_peak_bytes=peak_bytes + off_bytes)) == [f"gpt: {EXACT[0]}"]


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


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (dict.clear, "models: must have the plans of comparisons.json, [('vgg16', 'keep-all'), "),
        (lambda models: models.update(gpt=models.pop("gpt"), vgg16=models.pop("vgg16")), "models: must have the plans"),
        (lambda models: models["gpt"]["allocated_peak_bytes"].popitem(), "models: must have the plans"),
        (lambda models: models.update(gpt=3), "models.gpt: input should be "),
        (lambda models: models["gpt"].update(more=1), "models.gpt.more: extra inputs are not permitted, got 1"),
        (
            lambda models: models["gpt"]["allocated_peak_bytes"].update({"keep-all": "much"}),
            "models.gpt.allocated_peak_bytes.keep-all: input should be a valid integer, got 'much'",
        ),
        (
            lambda models: models["vgg16"].update(eager_max_abs_difference=None),
            "models.vgg16.eager_max_abs_difference: input should be a valid number",
        ),
    ],
    ids=["none", "another order", "a plan less", "no facts", "a fact more", "bytes in words", "no difference"],
)
def test_a_manifest_with_a_wrong_field_is_refused_by_its_name(found, tmp_path, change, problem) -> None:
    save_validation(found, tmp_path)
    manifest = json.loads((tmp_path / MANIFEST).read_text())
    change(manifest["models"])
    (tmp_path / MANIFEST).write_text(json.dumps(manifest))

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
def test_a_run_that_ends_early_does_not_lose_what_was_recorded(tmp_path, monkeypatch, capsys) -> None:
    def broken(*_: object, **__: object) -> None:
        raise OutOfMemoryError("row 3: cuda:0 has no memory left")

    monkeypatch.setattr(validate_gpu, "measure", broken)

    assert main(["--device", "cpu", "--tiny", "-o", str(tmp_path)]) == 2
    assert [file.name for file in tmp_path.iterdir()] == ["vgg16.unfinished.trace.parquet"]
    assert len(Trace.load(tmp_path / "vgg16.unfinished.trace.parquet").events) > 0
    assert capsys.readouterr().err.endswith("validate_gpu: row 3: cuda:0 has no memory left\n")


def test_a_full_run_without_a_gpu_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StepsimError, match="torch sees no CUDA device"):
        run(tmp_path, quick=False)
