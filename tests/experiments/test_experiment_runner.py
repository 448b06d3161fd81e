"""The runner of experiments: what it lists, what it prints, how it ends."""

import json
import warnings
from types import SimpleNamespace

import pytest

from experiments import __main__ as runner
from experiments import experiment
from experiments.experiment import Claim, differences
from stepsim.errors import FileError, StepsimError

MODULE = '''"""Is {ours} close to one?

More words.
"""
from experiments.experiment import Claim


def run(folder, *, quick):
    (folder / "table.csv").write_text("quick\\n" if quick else "full\\n")
    return [Claim(claim="it is near one", paper=1.0, ours={ours}, holds={holds})]
'''


@pytest.fixture
def near_one(tmp_path, monkeypatch):
    """Makes an experiment ``near_one`` in a folder of its own, with the folder of what is expected beside it."""
    import experiments

    def make(ours, holds):
        name = f"near_one_{abs(hash((ours, holds)))}"
        (tmp_path / f"{name}.py").write_text(MODULE.format(ours=ours, holds=holds))
        return name

    monkeypatch.setattr(experiments, "__path__", [str(tmp_path)])
    monkeypatch.setattr(experiment, "HERE", tmp_path)
    monkeypatch.setattr(runner, "EXPECTED", tmp_path)
    monkeypatch.chdir(tmp_path)
    return make


def expect(path, ours, holds=True, tolerance=0.01):
    path.write_text(
        json.dumps({"rel_tolerance": tolerance, "claims": [{"claim": "it is near one", "ours": ours, "holds": holds}]})
    )


def test_the_list_names_each_experiment_with_its_question(near_one, capsys):
    name = near_one(1.02, True)

    code = runner.main(["list"])

    assert code == 0
    assert capsys.readouterr().out.split(maxsplit=1) == [name, "Is 1.02 close to one?\n"]


def test_a_run_writes_to_its_folder_and_ends_with_one_line_of_json(near_one, tmp_path, capsys):
    name = near_one(1.01, True)

    code = runner.main(["run", name, "--quick", "--json", "-o", "found"])

    facts = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert code == 0
    assert (tmp_path / "found/table.csv").read_text() == "quick\n"
    assert facts["experiment"] == name
    assert facts["seconds"] >= 0
    assert facts["claims"] == [{"claim": "it is near one", "ours": 1.01, "holds": True, "paper": 1.0}]


def test_a_claim_that_fails_ends_with_code_1(near_one, capsys):
    code = runner.main(["run", near_one(7.0, False)])

    assert code == 1
    assert "FAILS  it is near one: 7 (paper: 1)" in capsys.readouterr().out


@pytest.mark.parametrize(("expected", "code"), [(1.0, 0), (1.2, 1)], ids=["as expected", "not as expected"])
def test_a_full_run_is_held_to_what_is_expected_and_a_quick_one_is_not(near_one, tmp_path, expected, code):
    name = near_one(1.005, True)
    expect(tmp_path / f"{name}.json", expected)

    assert runner.main(["run", name]) == code
    assert runner.main(["run", name, "--quick"]) == 0


def test_claims_that_came_or_went_are_told(tmp_path):
    expect(tmp_path / "x.json", 1.0)

    lines = differences([Claim(claim="another", ours=1.0, holds=True)], tmp_path / "x.json")

    assert lines == ["'it is near one' was expected and is not claimed", "'another' was not expected"]


def test_an_unknown_experiment_is_one_line_and_code_2(near_one, capsys):
    code = runner.main(["run", "no_such"])

    told = capsys.readouterr()
    assert code == 2
    assert told.err.startswith("experiments: unknown experiment 'no_such'")
    assert len(told.err.splitlines()) == 1


@pytest.mark.parametrize("there", [False, True])
def test_a_run_that_fails_leaves_no_empty_folder_but_one_that_was_there(near_one, tmp_path, monkeypatch, there):
    def failing(folder, *, quick):
        raise StepsimError("no data")

    monkeypatch.setattr(runner, "load", lambda name: SimpleNamespace(run=failing))
    if there:
        (tmp_path / "found").mkdir()

    code = runner.main(["run", "any", "-o", "found" if there else "found/deep"])

    assert code == 2
    assert (tmp_path / "found").exists() == there


def test_warnings_are_one_line(near_one, monkeypatch, capsys):
    def warning(folder, *, quick):
        warnings.warn("size 3 lies\noutside", stacklevel=1)
        return []

    monkeypatch.setattr(runner, "load", lambda name: SimpleNamespace(run=warning))

    assert runner.main(["run", "any"]) == 0
    assert capsys.readouterr().err == "experiments: warning: size 3 lies outside\n"


def test_a_file_of_expectations_in_another_form_is_refused(tmp_path):
    (tmp_path / "x.json").write_text("[]")

    with pytest.raises(FileError, match="rel_tolerance"):
        differences([], tmp_path / "x.json")


def test_a_claim_holds_finite_numbers_only():
    with pytest.raises(StepsimError, match="ours: must be finite, got nan"):
        Claim(claim="c", ours=float("nan"), holds=False)
