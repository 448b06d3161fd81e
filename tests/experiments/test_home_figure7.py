"""The quick form goes through every part, and the parts of a step are the step."""

import pandas as pd
import pytest

from experiments import home_figure7
from experiments.home_paper import FIGURE_7, Breakdown


def test_a_quick_run_writes_table_and_picture_and_its_claims_hold(tmp_path):
    claims = home_figure7.run(tmp_path, quick=True)

    assert {path.name for path in tmp_path.iterdir()} == {"home_figure7.csv", "home_figure7.png"}
    assert [claim.claim for claim in claims if not claim.holds] == []
    assert len(claims) == 2
    table = pd.read_csv(tmp_path / "home_figure7.csv")
    parts_s = table[list(home_figure7.PARTS)].sum(axis=1)
    assert parts_s.to_numpy() == pytest.approx(table["step_s"].to_numpy(), rel=0.01)


def test_the_share_of_exposed_copies_is_of_all_parts():
    assert home_figure7.exposed_share(Breakdown(1.0, 2.0, 4.0, 1.0)) == 0.25


@pytest.mark.parametrize(("share", "holds"), [(0.0, True), (0.02, True), (0.03, False)])
def test_home_must_hide_its_copies(share, holds):
    row = {"model": "vgg16", "batch": 3950, "system": "home", "feasible": True, "exposed_share": share}

    assert [claim.holds for claim in home_figure7.claims(pd.DataFrame([row]))] == [holds]


def test_a_plan_that_does_not_fit_meets_no_claim():
    row = {"model": "vgg16", "batch": 3950, "system": "vdnn-every", "feasible": False, "exposed_share": 0.75}

    assert [claim.holds for claim in home_figure7.claims(pd.DataFrame([row]))] == [False]


def test_the_paper_has_both_models():
    assert set(FIGURE_7) == {("vgg16", 3950), ("inception_v3", 170)}
