import numpy as np
import pandas as pd
import pytest

from stepsim.costmodels.model import uniform
from stepsim.costmodels.trust import first_that_knows
from stepsim.plan import Origin


class Knows:
    """Knows the works with a number in ``seconds``, and remembers what it was asked."""

    features = ("work",)

    def __init__(self, origin, seconds):
        self.origin, self.seconds, self.asked = origin, seconds, []

    def fit(self, samples):
        return self

    def predict(self, tasks):
        self.asked += tasks["work"].tolist()
        return uniform(np.array([self.seconds.get(work, np.nan) for work in tasks["work"]]), self.origin, spread=0.5)


TASKS = pd.DataFrame({"work": ["a", "b", "c"]})


def test_each_task_is_priced_by_the_first_model_that_knows_it():
    measured, roofline = Knows(Origin.MEASURED, {"b": 1.0}), Knows(Origin.ROOFLINE, {"a": 5.0, "b": 6.0})

    found = first_that_knows([measured, roofline], TASKS)

    assert found.seconds == pytest.approx([5.0, 1.0, np.nan], nan_ok=True)
    assert found.origin.tolist()[:2] == [Origin.ROOFLINE, Origin.MEASURED]
    assert found.spread.tolist()[:2] == [0.5, 0.5]
    assert roofline.asked == ["a", "c"]


def test_no_model_is_asked_when_all_is_known():
    first, second = Knows(Origin.MEASURED, {"a": 1.0, "b": 1.0, "c": 1.0}), Knows(Origin.ROOFLINE, {})

    first_that_knows([first, second], TASKS)

    assert second.asked == []


def test_without_models_nothing_is_known():
    assert np.isnan(first_that_knows([], TASKS).seconds).all()
