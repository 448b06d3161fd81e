"""The experiment on replays: without its data, and on three traces."""

import pandas as pd
import pytest

from experiments import replay_accuracy
from stepsim.errors import FileError


def test_without_the_measured_traces_it_names_the_variable_to_set(tmp_path, monkeypatch):
    monkeypatch.setenv("STEPSIM_DATA", str(tmp_path / "none"))

    with pytest.raises(FileError, match=r"must hold the traces of hta, .*: set STEPSIM_DATA$"):
        replay_accuracy.run(tmp_path, quick=True)


def test_a_quick_run_holds_what_it_claims_and_writes_its_tables(tmp_path, monkeypatch, data_dir):
    monkeypatch.setenv("STEPSIM_DATA", str(data_dir))

    claims = replay_accuracy.run(tmp_path, quick=True)

    assert [claim.claim for claim in claims if not claim.holds] == []
    tables = {path.stem: pd.read_csv(path) for path in tmp_path.glob("*.csv")}
    assert {name: len(table) for name, table in tables.items()} == {
        "replayed": 3,
        "left_out": 3 + 6 + 6,
        "without_loader": 1,
        "bounds": 3 * 3,
    }
    assert (tmp_path / "left_out.png").stat().st_size > 0
