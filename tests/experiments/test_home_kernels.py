"""Kernels as fast as a paper's throughput tells."""

from pathlib import Path

import pytest

from experiments import home_kernels
from experiments.home_constants import FITTED
from experiments.home_fit import as_fast_as_published, computing_s
from experiments.home_paper import FIGURE_6, FIGURE_6_BATCHES


@pytest.mark.parametrize("model", ["vgg16", "resnet"])
def test_computing_alone_gives_the_best_throughput_of_the_paper(model: str) -> None:
    batch = FIGURE_6_BATCHES[model][-1]

    seconds = computing_s(model, batch, as_fast_as_published(model, FITTED))

    assert batch / seconds == pytest.approx(max(rate for rate in FIGURE_6[model]["home"] if rate), rel=1e-9)


def test_a_quick_run_goes_through_every_part(tmp_path: Path) -> None:
    claims = home_kernels.run(tmp_path, quick=True)

    assert [claim.paper for claim in claims] == [pytest.approx(4.16, abs=0.01)]
    assert {path.name for path in tmp_path.iterdir()} == {"home_kernels.csv", "home_kernels.png"}
