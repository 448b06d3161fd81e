"""The experiment on links: its errors against closed forms, and its smallest run on the measured tables."""

import pandas as pd
import pytest

from experiments import link_accuracy, link_machines
from experiments.link_machines import Table
from stepsim.costmodels.collectives import CollectiveTable
from stepsim.costmodels.copies import CopyModel
from stepsim.costmodels.transfers import InterpolatedTransferModel
from stepsim.errors import FileError
from stepsim.traces.trace import Trace, events_of


def copies(seconds_of, sizes):
    facts = {"source": "pinned", "destination": "device", "opposite": False, "at_once": 1}
    return pd.DataFrame([{**facts, "size_bytes": size, "seconds": seconds_of(size)} for size in sizes])


def test_sizes_on_a_line_are_guessed_exactly_when_left_out():
    samples = copies(lambda size: 1e-5 + size / 1e10, [2**k for k in range(10, 20)])

    guessed = link_accuracy.sizes_left_out(InterpolatedTransferModel, samples)

    assert guessed["size_bytes"].tolist() == [2**k for k in range(11, 19)]
    assert guessed["predicted_s"].to_numpy() == pytest.approx(guessed["seconds"].to_numpy(), rel=1e-12)


def test_with_few_sizes_each_inner_one_is_left_out_alone():
    """Of 1, 2, 4 and 8 s at sizes 1, 2, 4 and 5, the guess for 2 is 2 s; for 4, two thirds from 2 s to 8 s, 6 s."""
    samples = copies(lambda size: {1: 1.0, 2: 2.0, 4: 4.0, 5: 8.0}[size], [1, 2, 4, 5])

    guessed = link_accuracy.sizes_left_out(InterpolatedTransferModel, samples)

    assert guessed.set_index("size_bytes")["predicted_s"].to_dict() == pytest.approx({2: 2.0, 4: 6.0})


def test_errors_are_those_of_sizes_that_are_large_enough():
    sizes = pd.DataFrame({"size_bytes": [9, 10, 20], "seconds": [1.0, 2.0, 2.0], "predicted_s": [9.0, 1.0, 2.2]})
    predictions = sizes.assign(machine="node", way="device to pinned", method="three lines")

    (row,) = link_accuracy.errors_by(predictions, link_accuracy.COPY, 10).to_dict("records")

    told = {"samples": 2, "mape": 0.3, "median": 0.3, "p90": 0.46}
    assert {name: row.pop(name) for name in told} == pytest.approx(told)
    assert row == {"machine": "node", "way": "device to pinned", "method": "three lines"}


def test_copies_within_a_device_and_small_ones_are_left_out_of_a_trace():
    row = {"kind": "copy", "start_s": 0.0, "duration_s": 1.0, "source": "pinned", "destination": "device"}
    rows = [row | {"size_bytes": 100}, row | {"size_bytes": 9}, row | {"size_bytes": 100, "source": "device"}]

    samples = link_machines.copies_of(Trace(events=events_of(rows), provenance={}), least_bytes=10)

    assert samples.to_dict("records") == [
        {
            "source": "pinned",
            "destination": "device",
            "size_bytes": 100,
            "seconds": 1.0,
            "opposite": False,
            "at_once": 1,
        }
    ]


def test_a_table_that_errs_too_much_does_not_hold():
    rough = copies(lambda size: 1e-5 * (1 + size % 7), [2**k for k in range(16, 26)])
    sizes = link_accuracy.copy_predictions(Table(machine="rough", files=(), samples=rough))
    table = link_accuracy.errors_by(sizes, link_accuracy.COPY, 2**16)
    empty = pd.DataFrame(columns=["machine", "method", "nodes", "mape", "samples"])

    claims = link_accuracy.check(empty, empty, table, empty)

    assert [claim.holds for claim in claims] == [False, False]


def test_without_the_tables_the_experiment_says_what_to_set(tmp_path, monkeypatch):
    monkeypatch.setenv("STEPSIM_DATA", str(tmp_path))

    with pytest.raises(FileError, match="set STEPSIM_DATA"):
        link_accuracy.run(tmp_path, quick=True)


def test_the_smallest_run_holds_and_writes_its_tables(tmp_path, data_dir, monkeypatch):
    monkeypatch.setenv("STEPSIM_DATA", str(data_dir))

    claims = link_accuracy.run(tmp_path, quick=True)

    assert [claim.claim for claim in claims if not claim.holds] == []
    assert {path.name for path in tmp_path.iterdir()} >= {"collectives.csv", "groups.csv", "copies.csv", "groups.png"}


def test_what_is_said_of_links_that_are_shared_holds(data_dir):
    claims = link_accuracy.sharing_claims(data_dir)

    assert [claim.ours for claim in claims] == pytest.approx([1.059, 1.164], abs=5e-4)
    assert all(claim.holds for claim in claims)


def test_the_fitted_parameters_are_few_and_make_models_again(data_dir, monkeypatch):
    monkeypatch.setattr(link_machines, "collective_tables", first_of(link_machines.collective_tables))
    monkeypatch.setattr(link_machines, "_CALL_TRACES", {})
    monkeypatch.setattr(link_machines, "RECORDED_COPIES", ())

    links = link_machines.link_calibrations(data_dir)

    table = CollectiveTable.from_json(links["NVIDIA A100-SXM4-80GB, NVSwitch node"]["collectives"]["table"])
    copy = CopyModel.from_json(links["V100-PCIE-32GB"]["copies"])
    assert len(table.curves_["all_reduce", 1][8].as_json()["lines"]) <= 3
    assert copy.curves_["pinned to device"].lines_[:, 1].min() == pytest.approx(1 / 12.4e9, rel=0.02)


def first_of(tables):
    return lambda data: [next(tables(data))]
