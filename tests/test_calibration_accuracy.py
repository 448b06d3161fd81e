from pathlib import Path

import pandas as pd

from experiments.calibration_accuracy import page

ERROR = {"mape": 0.0571, "median": 0.04, "p90": 0.125}


def written(folder: Path, name: str, *rows: dict[str, object]) -> None:
    pd.DataFrame([{**ERROR, **row} for row in rows]).to_csv(folder / f"{name}.csv", index=False)


def test_the_page_has_a_cell_for_each_figure_and_none_where_nothing_was_asked(tmp_path):
    written(
        tmp_path,
        "kernel_accuracy",
        {"op_class": "linear", "fitted_on": "the GPU", "gpu": "T4"},
        {"op_class": "conv", "fitted_on": "the GPU", "gpu": "P4"},
    )
    group = {"machine": "node", "collective": "all_reduce", "ranks": 4, "method": "three lines"}
    written(tmp_path, "collectives", group, {**group, "mape": 0.0771, "ranks": 8})
    written(tmp_path, "groups", group)
    written(tmp_path, "copies", {"machine": "node", "way": "device to pinned", "method": "three lines"})

    lines = page(tmp_path).splitlines()

    assert "| op_class | fitted_on | T4 | P4 |" in lines
    assert "| linear | the GPU | **5.7 %** 4.0 / 12.5 |  |" in lines
    assert "| conv | the GPU |  | **5.7 %** 4.0 / 12.5 |" in lines
    assert "| node | all_reduce | **6.7 %** 4.0 / 12.5 |" in lines
    assert "| node | all_reduce | 4 | **5.7 %** 4.0 / 12.5 |" in lines
    assert "| node | device to pinned | **5.7 %** 4.0 / 12.5 |" in lines
