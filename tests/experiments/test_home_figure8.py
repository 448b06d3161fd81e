"""The quick form goes through every part; when a search has found its best, and which batch the figure had."""

import numpy as np
import pandas as pd
import pytest

from experiments import home_figure8
from experiments.home_paper import FIGURE_8, MODELS, figure_8_batch


def history(swarm: str, best_s: list[float], mean_s: list[float]) -> pd.DataFrame:
    columns = {"iteration": range(len(best_s)), "best_s": best_s, "mean_s": mean_s}
    return pd.DataFrame({"model": "vgg16", "batch": 3850, "swarm": swarm} | columns)


def verdicts(best_s: list[float], mean_s: list[float], random_s: float) -> list[bool]:
    rows = pd.concat([history("literal", best_s, mean_s), history("random", [random_s], [random_s])])
    return [claim.holds for claim in home_figure8.claims(rows)]


def test_a_quick_run_writes_table_and_picture_and_its_claims_hold(tmp_path) -> None:
    claims = home_figure8.run(tmp_path, quick=True)

    assert {path.name for path in tmp_path.iterdir()} == {"home_figure8.csv", "home_figure8.png"}
    assert [claim.claim for claim in claims if not claim.holds] == []
    found = pd.read_csv(tmp_path / "home_figure8.csv")
    assert (found["mean_s"] >= found["best_s"]).all()


def test_claims_hold_for_a_swarm_that_is_quick_near_the_figure_and_ends_apart() -> None:
    assert verdicts([0.9, 0.65], [1.0, 0.7], 0.65) == [True] * 5


@pytest.mark.parametrize(
    ("best_s", "mean_s", "random_s", "number"),
    [
        ([0.9] * 11 + [0.65], [1.0] * 12, 0.65, 0),
        ([0.9, 0.8], [1.0, 0.9], 0.8, 1),
        ([0.9] + [0.65] * 500, [1.0] * 501, 0.65, 2),
        ([0.9, 0.65], [1.0, 0.65], 0.65, 3),
        ([0.9, 0.65], [1.0, 0.7], 0.63, 4),
    ],
    ids=["slow", "far from the figure", "never still", "all alike", "random finds more"],
)
def test_each_claim_fails_where_it_must(best_s, mean_s, random_s, number) -> None:
    found = verdicts(best_s, mean_s, random_s)

    assert [place for place, holds in enumerate(found) if not holds] == [number]


def test_a_search_is_flat_from_where_it_is_a_thousandth_near_its_best() -> None:
    assert home_figure8.flat_after(np.array([3.0, 1.002, 1.0009, 1.0, 1.0])) == 2


def test_iterations_without_a_particle_that_fits_are_not_flat() -> None:
    assert home_figure8.flat_after(np.array([np.nan, np.nan, 1.0])) == 2


@pytest.mark.parametrize(
    ("model", "batch"),
    [("mobilenet", 3500), ("squeezenet", 2050), ("plain20", 2200), ("resnet", 1600), ("inception_v3", 180)],
)
def test_the_batch_of_figure_8_is_that_of_figure_6_with_the_nearest_step(model: str, batch: int) -> None:
    """SqueezeNet: 2050 / 6955 = 0.295 s beside the figure's 0.290; 1950 / 7035 = 0.277."""
    assert figure_8_batch(model) == batch


def test_figure_8_has_all_models_and_means_above_the_best() -> None:
    assert set(FIGURE_8) == set(MODELS)
    assert all(found.mean_s > found.best_s for found in FIGURE_8.values())
