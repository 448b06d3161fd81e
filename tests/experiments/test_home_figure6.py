"""The quick form goes through every part, and the paper's numbers are whole."""

import pytest

from experiments import home_figure6
from experiments.home_paper import FIGURE_6, FIGURE_6_BATCHES, MODELS, SYSTEMS, mean_ratio


def test_a_quick_run_writes_table_and_picture_and_its_claims_hold(tmp_path):
    claims = home_figure6.run(tmp_path, quick=True)

    assert {path.name for path in tmp_path.iterdir()} == {"home_figure6.csv", "home_figure6.png"}
    assert [claim.claim for claim in claims if not claim.holds] == []
    assert len(claims) >= 3


@pytest.mark.parametrize("model", MODELS)
def test_every_system_has_a_throughput_for_each_batch(model):
    assert {len(rates) for rates in FIGURE_6[model].values()} == {len(FIGURE_6_BATCHES[model])}
    assert set(FIGURE_6[model]) == set(SYSTEMS)


@pytest.mark.parametrize(
    ("model", "ratio"),
    [
        ("mobilenet", 3.58),
        ("squeezenet", 5.43),
        ("plain20", 4.47),
        ("vgg16", 4.16),
        ("resnet", 3.35),
        ("inception_v3", 1.66),
    ],
)
def test_mean_ratios_to_vdnn_are_those_that_the_figure_gives(model, ratio):
    assert mean_ratio(model, "vdnn") == pytest.approx(ratio, abs=0.006)
