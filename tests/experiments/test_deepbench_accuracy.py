"""The experiment on DeepBench: its claims from errors by hand, and the kernels that it reads."""

import pandas as pd
import pytest

from experiments.deepbench_accuracy import BATCHED, HERE, OTHERS, OWN, PLAIN, SLOW, TABLES, claims, deepbench_kernels
from stepsim.costmodels.kernels import DEVICE


def errors(gpu, op_class, variant, **mape):
    row = {"gpu": gpu, "op_class": op_class, "variant": variant, "kernels": 10, "median_ratio": 1.0}
    return pd.DataFrame([{**row, "fitted_on": fitted_on, "mape": error} for fitted_on, error in mape.items()])


def test_the_nearer_model_must_be_the_one_that_knows_more():
    told = errors("T4", "conv", "forward", **{OWN: 0.2, PLAIN: 0.4, HERE: 0.3, OTHERS: 0.1})

    here, own = claims(told)

    assert (own.ours, own.paper, own.holds) == (0.2, 0.4, True)
    assert (here.ours, here.paper, here.holds) == (0.3, 0.1, False)


def test_variants_count_by_their_kernels_and_gradients_of_convolutions_are_not_asked():
    """10 products at 10 % and 30 at 50 %: 40 %."""
    few = errors("GTX", "linear", "NN", **{HERE: 0.1, OTHERS: 0.6})
    many = errors("GTX", "linear", "TN", **{HERE: 0.5, OTHERS: 0.6}).assign(kernels=30)
    gradient = errors("GTX", "conv", "data", **{HERE: 9.0, OTHERS: 0.1})

    (claim,) = claims(pd.concat([few, many, gradient]))

    assert claim.ours == pytest.approx(0.4)
    assert claim.holds


@pytest.mark.parametrize(("ratio", "holds"), [(1.5, True), (1.0, False)])
def test_a_table_that_ran_slow_must_stay_slower_than_deepbench(ratio, holds):
    told = errors(*SLOW, "NN", **{OWN: 0.5, BATCHED: 0.5, PLAIN: 0.3, HERE: 0.1, OTHERS: 0.3})
    told.loc[told["fitted_on"] == OWN, "median_ratio"] = ratio

    found = {claim.claim.partition("fitted on ")[2].partition(", between")[0]: claim for claim in claims(told)}

    assert found[OWN].holds is holds
    assert found[BATCHED].holds


@pytest.mark.parametrize("machine", TABLES)
def test_kernels_have_the_data_sheet_of_their_machine(data_dir, machine):
    kernels = deepbench_kernels(data_dir, machine)

    assert set(kernels["op_class"]) == {"linear", "conv"}
    assert (kernels[list(DEVICE)] > 0).all(axis=None)
    # No product computes faster than a tenth above the data sheet.
    products = kernels[kernels["op_class"] == "linear"]
    assert (products["flop"] / products["seconds"] < 1.1 * products["peak_flop_per_s"]).all()
