"""The pictures of the accuracy page, asked for what they draw."""

import numpy as np
import pandas as pd
import pytest

from experiments.accuracy_plots import FARTHEST, LINKS, PICTURES, link_residuals, residuals, write_links, write_pictures


def predictions(ratio=1.0):
    count = 40
    rows = {"op_class": "linear", "gpu": "T4", "flop": np.geomspace(1e6, 1e9, count), "size_bytes": 1e6}
    known = pd.DataFrame({**rows, "seconds": 2.0, "predicted_s": 2.0 * ratio, "fitted_on": "the GPU"})
    return pd.concat([known, known.assign(fitted_on="the other GPUs", predicted_s=3.0)])


def heights(axes, of):
    return [float(value) for line in axes.lines if line.get_label() == of for value in line.get_ydata()]


def test_the_line_of_a_gpu_is_predicted_over_measured():
    known, left_out = residuals(predictions(1.25), ["linear"], "flop").axes

    assert heights(known, "T4") == pytest.approx([1.25] * 12)
    assert heights(left_out, "T4") == pytest.approx([1.5] * 12)


def test_what_is_too_far_off_is_drawn_at_the_border():
    known, _ = residuals(predictions(100.0), ["linear"], "flop").axes

    assert set(heights(known, "T4")) == {FARTHEST}
    assert known.get_ylim()[1] > FARTHEST


def test_the_answer_from_shape_only_is_not_drawn():
    told = predictions().assign(op_class="conv")
    told["fitted_on"] = told["fitted_on"].map({"the GPU": "the GPU, shape only"}).fillna("the other GPUs, drift known")

    known, left_out = residuals(told, ["conv"], "flop").axes

    assert heights(known, "T4") == []
    assert len(heights(left_out, "T4")) == 12


def sizes(machine="node", ratio=1.0):
    return pd.DataFrame(
        {
            "machine": machine,
            "method": ["interpolated", "three lines"] * 20,
            "size_bytes": np.repeat(2.0 ** np.arange(20), 2),
            "seconds": 2.0,
            "predicted_s": 2.0 * ratio,
        }
    )


def test_links_have_points_of_each_machine_and_one_line_of_all():
    table = pd.concat([sizes("far", 3.0), sizes("near", 1.0), sizes("nearer", 1.0)], ignore_index=True)

    interpolated, lines = link_residuals({"copies": table}).axes

    for axes in (interpolated, lines):
        assert heights(axes, "far") == pytest.approx([3.0] * 20)
        assert heights(axes, "near") == pytest.approx([1.0] * 20)
        assert heights(axes, "all, medians") == pytest.approx([1.0] * 12)


def test_all_pictures_are_written(tmp_path):
    write_pictures(predictions(), tmp_path)
    write_links(sizes(), sizes(), tmp_path)

    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([LINKS, *PICTURES])
