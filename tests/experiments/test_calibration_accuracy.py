from pathlib import Path

import pandas as pd
import pytest

from experiments.calibration_accuracy import BANDS, KERNEL_KEY, LINK_BANDS, by_size, page

ERROR = {"mape": 0.0571, "median": 0.04, "p90": 0.125}

KERNEL = {"op_class": "linear", "gpu": "T4", "fitted_on": "the GPU", "size_bytes": 1e6, "seconds": 1.0}


def written(folder: Path, name: str, *rows: dict[str, object]) -> None:
    pd.DataFrame([{**ERROR, **row} for row in rows]).to_csv(folder / f"{name}.csv", index=False)


def test_the_page_has_a_cell_for_each_figure_and_none_where_nothing_was_asked(tmp_path):
    written(
        tmp_path,
        "kernel_accuracy",
        {"op_class": "linear", "fitted_on": "the GPU", "gpu": "T4"},
        {"op_class": "conv", "fitted_on": "the GPU", "gpu": "P4"},
    )
    predictions = [{**KERNEL, "flop": 2e10, "predicted_s": 1.1}, {**KERNEL, "flop": 1e7, "predicted_s": 0.8}]
    written(tmp_path, "kernel_predictions", *predictions)
    elsewhere = {"op_class": "conv", "variant": "data", "fitted_on": "the GPU, NeuSight", "gpu": "T4"}
    written(tmp_path, "deepbench_accuracy", elsewhere)
    group = {"machine": "node", "collective": "all_reduce", "ranks": 4, "method": "three lines"}
    written(tmp_path, "collectives", group, {**group, "mape": 0.0771, "ranks": 8})
    written(tmp_path, "groups", group)
    written(tmp_path, "copies", {"machine": "node", "way": "device to pinned", "method": "three lines"})

    size = {"machine": "node", "method": "three lines", "size_bytes": 2**20, "seconds": 1.0, "predicted_s": 1.1}
    written(tmp_path, "collective_predictions", {**size, "collective": "all_reduce"})
    copy = {**size, "way": "device to pinned"}
    written(tmp_path, "copy_predictions", copy, {**copy, "method": "interpolated", "size_bytes": 1})

    lines = page(tmp_path).splitlines()

    assert "| op_class | fitted_on | T4 | P4 |" in lines
    assert "| linear | the GPU | **5.7 %** 4.0 / 12.5 |  |" in lines
    assert "| conv | the GPU |  | **5.7 %** 4.0 / 12.5 |" in lines
    sizes = "below 0.1 GFLOP | 0.1 to 1 GFLOP | 1 to 10 GFLOP | from 10 GFLOP"
    assert f"| op_class | gpu | fitted_on | {sizes} |" in lines
    assert "| linear | T4 | the GPU | **20.0 %** 20.0 / 20.0 |  |  | **10.0 %** 10.0 / 10.0 |" in lines
    assert "| conv | data | the GPU, NeuSight | **5.7 %** 4.0 / 12.5 |" in lines
    assert "| node | all_reduce | **6.7 %** 4.0 / 12.5 |" in lines
    assert "| node | all_reduce | 4 | **5.7 %** 4.0 / 12.5 |" in lines
    assert "| node | device to pinned | **5.7 %** 4.0 / 12.5 |" in lines
    assert "| node | all_reduce |  |  | **10.0 %** 10.0 / 10.0 |  |  |" in lines
    assert "| node | device to pinned |  |  | **10.0 %** 10.0 / 10.0 |  |  |" in lines


def test_a_size_at_the_edge_of_two_bands_belongs_to_the_upper_one():
    flop = [1e9, 1e9, 1e9 - 1]
    predictions = pd.DataFrame({**KERNEL, "flop": flop, "predicted_s": [1.2, 0.6, 2.0]})

    errors = by_size(predictions, BANDS[0], KERNEL_KEY).set_index("size")

    assert errors.loc["1 to 10 GFLOP", ["mape", "median", "p90"]].tolist() == pytest.approx([0.3, 0.3, 0.38])
    assert errors.loc["0.1 to 1 GFLOP", "mape"] == pytest.approx(1.0)


@pytest.mark.parametrize("bands", [*BANDS, LINK_BANDS], ids=lambda bands: bands.names[0])
def test_every_band_has_a_name(bands):
    assert len(bands.names) == len(bands.edges) + 1
