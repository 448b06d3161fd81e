"""The quick form goes through every part; a search that takes longer than it may is told."""

import pandas as pd
import pytest

from experiments import home_table3
from experiments.home_paper import MODELS, TABLE_3


def test_a_quick_run_writes_table_and_picture_and_its_claims_hold(tmp_path) -> None:
    claims = home_table3.run(tmp_path, quick=True)

    assert {path.name for path in tmp_path.iterdir()} == {"home_table3.csv", "home_table3.png"}
    assert [claim.claim for claim in claims if not claim.holds] == []
    found = pd.read_csv(tmp_path / "home_table3.csv").iloc[0]
    assert 0 < found["trials"] <= 500 * 500 * 2 * found["layers"]
    assert found["unskipped_s"] == pytest.approx(500 * 500 * 2 * found["layers"] * found["call_s"])


@pytest.mark.parametrize(
    ("model", "seconds", "holds"),
    [
        ("vgg16", 10, True),
        ("vgg16", 11, False),
        ("inception_v3", 400, True),
        ("inception_v3", 401, False),
        ("resnet", 11, False),
    ],
)
def test_vgg16_may_take_ten_seconds_inception_400_and_others_what_the_paper_took(model, seconds, holds) -> None:
    row = {"model": model, "search_s": seconds, "call_s": 1e-6}

    assert [claim.holds for claim in home_table3.claims(pd.DataFrame([row]))] == [holds, True]


def test_a_call_may_take_what_the_paper_took() -> None:
    rows = [{"model": "vgg16", "search_s": 1.0, "call_s": call_s} for call_s in (1.4e-3, 1.5e-3)]

    assert [claim.holds for claim in home_table3.claims(pd.DataFrame(rows))] == [True, True, True, False]


def test_the_paper_has_all_models() -> None:
    assert set(TABLE_3) == set(MODELS)
