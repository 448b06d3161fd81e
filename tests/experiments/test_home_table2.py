"""The quick form goes through every part; bands are where they are said to be."""

import pandas as pd
import pytest

from experiments import home_table2
from experiments.home_paper import MODELS, TABLE_2


def row(system: str, batch: int, which: str = "largest", samples_per_s: float = 1.0, model: str = "vgg16"):
    return {
        "reserve": "fixed",
        "floor": 20_000,
        "which": which,
        "model": model,
        "batch": batch,
        "system": system,
        "samples_per_s": samples_per_s,
    }


def table(
    *,
    pytorch: int = 2000,
    capuchin: int = 3000,
    home: int = 4000,
    fast: int = 4000,
    rate: float = 6000.0,
    model="vgg16",
):
    return pd.DataFrame(
        [
            row("keep-all", pytorch, model=model),
            row("capuchin", 2000, model=model),
            row("capuchin-best", capuchin, model=model),
            row("home-extended", home, samples_per_s=rate, model=model),
            row("home-extended", fast, "fast", model=model),
            row("home-extended", 5125, "the paper's", 0.0, model),
        ]
    )


def verdict(rows: pd.DataFrame, words: str) -> bool:
    (claim,) = [claim for claim in home_table2.claims(rows) if words in claim.claim]
    return claim.holds


def test_a_quick_run_writes_table_and_picture_and_its_claims_hold(tmp_path) -> None:
    claims = home_table2.run(tmp_path, quick=True)

    assert {path.name for path in tmp_path.iterdir()} == {"home_table2.csv", "home_table2.png"}
    assert [claim.claim for claim in claims if not claim.holds] == []
    found = pd.read_csv(tmp_path / "home_table2.csv")
    assert found["feasible"].all()
    assert (found["batch"] <= found["floor"]).all()


@pytest.mark.parametrize(("pytorch", "holds"), [(2759, True), (3030, True), (3040, False), (2480, False)])
def test_pytorch_must_be_within_a_tenth_of_2759(pytorch: int, holds: bool) -> None:
    assert verdict(table(pytorch=pytorch), "plain PyTorch's largest") is holds


@pytest.mark.parametrize(("home", "holds"), [(3715, True), (5380, True), (5400, False), (2040, False)])
def test_home_over_2000_of_pytorch_must_be_within_45_percent_of_1_86(home: int, holds: bool) -> None:
    assert verdict(table(home=home), "home-extended over PyTorch's") is holds


@pytest.mark.parametrize(("fast", "holds"), [(3715, True), (5400, False)])
def test_and_so_must_the_largest_batch_at_speed(fast: int, holds: bool) -> None:
    assert verdict(table(fast=fast), "90% of PyTorch's speed") is holds


@pytest.mark.parametrize(("home", "holds"), [(3000, True), (2950, True), (2900, False)])
def test_home_must_reach_the_best_reading_of_capuchin_but_for_the_bisection(home: int, holds: bool) -> None:
    assert verdict(table(home=home), "Capuchin in any reading") is holds


@pytest.mark.parametrize(("rate", "holds"), [(6211, True), (5290, True), (5270, False), (0, False)])
def test_throughput_at_the_largest_batch_must_be_within_15_percent_of_6211(rate: float, holds: bool) -> None:
    assert verdict(table(rate=rate), "at its largest batch") is holds


def test_where_the_papers_batch_does_not_fit_its_throughput_is_not_reached() -> None:
    assert not verdict(table(), "at the paper's largest batch")


@pytest.mark.parametrize(("last", "holds"), [("resnet", True), ("plain20", False)])
def test_vgg16_must_gain_least_and_resnet_next(last: str, holds: bool) -> None:
    gains = dict.fromkeys(MODELS, 5000) | {"vgg16": 3000, last: 4000}
    rows = pd.concat([table(home=gains[model], model=model) for model in MODELS], ignore_index=True)

    assert verdict(rows, "next to least") is holds


def test_the_papers_largest_batches_have_an_order() -> None:
    for row in TABLE_2.values():
        assert row["pytorch"].batch < row["capuchin"].batch < row["home"].batch
