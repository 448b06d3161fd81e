import json

import numpy as np
import pytest

from stepsim.costmodels.kernels.trees import Boosting, Trees, grow, squares
from stepsim.errors import CalibrationError


def grown(features, target, **options):
    return grow(features, squares(target), Boosting(**options), np.random.default_rng(0))


def test_one_tree_of_one_question_answers_the_mean_of_each_side():
    """Start is the mean 2.5; the rest, -1.5 and +1.5 on 50 rows a side, is answered whole at rate 1."""
    features = np.arange(100.0)[:, np.newaxis]
    target = np.where(features[:, 0] < 50, 1.0, 4.0)

    trees = grown(features, target, trees=1, depth=1, rate=1.0, smoothing=1e-9, share=1.0, bins=101)

    assert trees.start == 2.5
    assert trees.predict(features) == pytest.approx(target)


def test_smoothing_counts_as_rows_that_answer_nothing():
    """4 rows a side and 4 of smoothing: half of the rest of 1.5 is answered."""
    features = np.repeat([0.0, 1.0], 4)[:, np.newaxis]
    target = np.repeat([1.0, 4.0], 4)

    trees = grown(features, target, trees=1, depth=1, rate=1.0, smoothing=4.0, share=1.0)

    assert trees.predict(np.array([[0.0], [1.0]])) == pytest.approx([1.75, 3.25])


def test_many_trees_learn_a_smooth_function_of_two_features():
    rng = np.random.default_rng(1)
    features = rng.uniform(-1, 1, (2000, 2))
    target = features[:, 0] * features[:, 1] + features[:, 0] ** 2

    trees = grown(features, target, trees=200, depth=4, rate=0.1, share=1.0)

    fresh = rng.uniform(-1, 1, (500, 2))
    error = trees.predict(fresh) - (fresh[:, 0] * fresh[:, 1] + fresh[:, 0] ** 2)
    assert np.sqrt(np.mean(error**2)) < 0.1 * np.std(target)


def test_the_same_samples_grow_the_same_trees():
    features = np.random.default_rng(2).uniform(size=(100, 5))

    first, second = (grown(features, features[:, 0], trees=5, depth=2) for _ in range(2))

    assert (first.value == second.value).all()
    assert (first.feature == second.feature).all()


def test_a_loss_that_weighs_some_rows_half_is_met_at_its_weighted_mean():
    """Rows at 0 of weight 1 and at 3 of weight 1/2: (0 + 1.5) / 1.5 = 1."""
    features, target, weight = np.zeros((4, 1)), np.array([0.0, 0.0, 3.0, 3.0]), np.array([1.0, 1.0, 0.5, 0.5])

    def loss(answers):
        return weight * (target - answers), weight

    trees = grow(features, loss, Boosting(trees=1, depth=1), np.random.default_rng(0))

    assert trees.predict(features) == pytest.approx([1.0] * 4)


def test_trees_survive_json_but_for_the_digits_that_are_cut():
    """20 trees whose values are each off by half a thousandth at most."""
    features = np.random.default_rng(3).uniform(size=(200, 3))
    trees = grown(features, features.sum(axis=1), trees=20, depth=3)

    again = Trees.from_json(json.loads(json.dumps(trees.as_json())))

    between = features[(np.abs(features[:, :, np.newaxis] - trees.threshold.ravel()) > 1e-4).all(axis=(1, 2))]
    assert len(between) > 10
    assert again.predict(between) == pytest.approx(trees.predict(between), abs=0.01)


def test_a_line_of_text_asks_and_answers_in_thousandths():
    trees = Trees.from_json({"start": 1.0, "trees": ["0>0.5 1>2: 1 20 300 4000"]})

    features = np.array([[0.0, 0.0], [1.0, 0.0], [0.5, 3.0], [1.0, 3.0]])
    assert trees.predict(features) == pytest.approx([1.001, 1.02, 1.3, 5.0])
    assert trees.as_json() == {"start": 1.0, "trees": ["0>0.5 1>2: 1 20 300 4000"]}


@pytest.mark.parametrize("lines", [["0>0: 1"], ["0>0: 1 2", "0>0 1>0: 1 2 3 4"], []], ids=["short", "mixed", "none"])
def test_trees_that_are_not_of_one_size_are_refused(lines):
    with pytest.raises(CalibrationError, match="d questions need 2"):
        Trees.from_json({"start": 0.0, "trees": lines})
