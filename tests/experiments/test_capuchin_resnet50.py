"""The claims on the largest batches of Capuchin's paper, and the smallest run."""

import pandas as pd
import pytest

from experiments import capuchin_resnet50
from experiments.capuchin_resnet50 import KEEP_ALL, TENSORFLOW, claims
from experiments.control_costs import largest


@pytest.mark.parametrize("limit", [0, 1, 7, 10])
def test_the_largest_batch_is_the_last_that_fits(limit: int) -> None:
    assert largest(lambda batch: batch <= limit, most=10) == limit


@pytest.mark.parametrize(("batch", "holds"), [(425, False), (440, True), (640, True), (655, False)])
def test_a_ratio_may_be_a_fifth_off(batch: int, holds: bool) -> None:
    """540 / 190 is the paper's; at 190 its fifth is 108."""
    table = pd.DataFrame(
        [
            {"storage": TENSORFLOW, "system": KEEP_ALL, "batch": 190},
            {"storage": TENSORFLOW, "system": "chen-greedy", "batch": batch},
            {"storage": "every output", "system": KEEP_ALL, "batch": 1},
        ]
    )

    assert [claim.holds for claim in claims(table)] == [True, holds]


def test_a_quick_run_writes_table_and_picture_and_its_claims_hold(tmp_path) -> None:
    found = capuchin_resnet50.run(tmp_path, quick=True)

    assert {path.name for path in tmp_path.iterdir()} == {"capuchin_resnet50.csv", "capuchin_resnet50.png"}
    assert [claim.claim for claim in found if not claim.holds] == []
