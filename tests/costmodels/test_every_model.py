"""What every fitted model promises, whatever it models."""

import json
import re
from collections.abc import Callable
from dataclasses import astuple, dataclass
from typing import Any

import numpy as np
import pandas as pd
import pytest
from recordings import copy_rows, frame, launch_rows, recorded, work_rows
from small_machines import gpus

from stepsim.costmodels import Calibration
from stepsim.costmodels.alpha_beta import AlphaBeta
from stepsim.costmodels.collectives import CollectiveTable
from stepsim.costmodels.copies import CopyModel, Lines
from stepsim.costmodels.efficiency import EfficientRoofline
from stepsim.costmodels.launches import LaunchModel
from stepsim.costmodels.measured import MeasuredTable
from stepsim.costmodels.pageable import StagedCopy
from stepsim.costmodels.roofline import Roofline
from stepsim.costmodels.transfers import InterpolatedTransferModel
from stepsim.errors import CalibrationError, NotFittedError
from stepsim.plan import Origin
from stepsim.plan.builder import PlanBuilder


@dataclass(frozen=True)
class Case:
    """A model, samples that it learns from, and tasks that it prices."""

    new: Callable[[], Any]
    samples: pd.DataFrame
    tasks: pd.DataFrame

    def fit(self, model, samples):
        return model.fit(samples)

    def predict(self, model):
        return model.predict(self.tasks).seconds


class CalibrationCase(Case):
    """There is no unfitted calibration: `Calibration.fit` makes one."""

    def fit(self, model, samples):
        rows = samples.rename(columns={"seconds": "duration_s"})
        return Calibration.fit([recorded(rows.to_dict("records"))])

    def predict(self, model):
        return price_one_plan(model)


def timed(rows):
    """Rows of a trace as samples."""
    return frame(rows).rename(columns={"duration_s": "seconds"})


def price_one_plan(calibration):
    builder = PlanBuilder()
    gpu, host = builder.device("gpu0"), builder.device("host")
    stream = builder.stream("compute", gpu)
    for signature in ("matrix", "never timed"):
        builder.compute(builder.work("op", signature=signature, flop=70), stream)
    y = builder.buffer(30, gpu, owner=stream)
    builder.compute(builder.work("op", signature="small"), stream, writes=[y], allocates=[y])
    builder.swap_out(y, builder.buffer(30, host), stream)
    plan = builder.build()
    return calibration.task_costs(plan, gpus()).seconds_alone(plan, gpus())


def sized(seconds_of, *facts, sizes=tuple(4**k for k in range(5, 15))):
    """Samples of all sizes for each of the mappings ``facts``."""
    rows = [{**fact, "size_bytes": size, "seconds": seconds_of(size)} for fact in facts for size in sizes]
    return pd.DataFrame(rows)


def line_s(size_bytes):
    return 1e-5 + size_bytes / 1e10


COPIES = sized(line_s, {"source": "pinned", "destination": "device", "opposite": False, "at_once": 1})
COLLECTIVES = sized(line_s, *({"collective": "all_reduce", "ranks": ranks, "nodes": 1} for ranks in (2, 4, 8)))
PEAKS = {"peak_flop_per_s": 1e13, "memory_bandwidth_bytes_per_s": 1e12}
BOUND = sized(lambda size: 2 * size / 1e12, {"flop": 1e3, **PEAKS})
KERNELS = sized(lambda size: max(4e-6, size / 1e11), {"mode": "stream"})

pytestmark = pytest.mark.filterwarnings("ignore:.*lies outside the fitted range")

MODELS = {
    "measured table": Case(
        tasks=pd.DataFrame({"work": ["matrix", "small"]}),
        samples=timed(work_rows()),
        new=MeasuredTable,
    ),
    "transfers": Case(
        tasks=pd.DataFrame({"size_bytes": [1, 10, 30, 40, 1000]}),
        samples=timed(copy_rows(ways=[("device", "host")])),
        new=InterpolatedTransferModel,
    ),
    "roofline": Case(
        tasks=pd.DataFrame({"flop": [0.0, 1e3, 1e6], "size_bytes": 1e3}),
        samples=timed(work_rows()),
        new=Roofline,
    ),
    "lines": Case(new=Lines, samples=COPIES, tasks=pd.DataFrame({"size_bytes": [1, 5000, 2**40]})),
    "copies of pageable memory": Case(new=StagedCopy, samples=COPIES, tasks=pd.DataFrame({"size_bytes": [1, 5000]})),
    "copies": Case(new=CopyModel, samples=COPIES, tasks=COPIES.assign(opposite=True).drop(columns="seconds")),
    "collective table": Case(new=CollectiveTable, samples=COLLECTIVES, tasks=COLLECTIVES.assign(ranks=5)),
    "compact collective table": Case(
        new=lambda: CollectiveTable(compact=True), samples=COLLECTIVES, tasks=COLLECTIVES.assign(ranks=5)
    ),
    "alpha beta": Case(new=AlphaBeta, samples=COLLECTIVES, tasks=COLLECTIVES.assign(ranks=16)),
    "launches": Case(new=LaunchModel, samples=KERNELS, tasks=KERNELS),
    "efficient roofline": Case(new=EfficientRoofline, samples=BOUND, tasks=BOUND),
}

CALIBRATION = CalibrationCase(
    samples=timed([*work_rows(), *copy_rows(), *launch_rows()]), tasks=pd.DataFrame(), new=lambda: None
)

SINGLE = pytest.mark.parametrize("case", MODELS.values(), ids=MODELS)
EVERY = pytest.mark.parametrize("case", [*MODELS.values(), CALIBRATION], ids=[*MODELS, "calibration"])


def refusal(case, samples):
    with pytest.raises(CalibrationError) as refused:
        case.fit(case.new(), samples)
    message = str(refused.value)
    assert message
    assert "\n" not in message
    return message


@SINGLE
def test_an_unfitted_model_refuses_to_predict_and_names_itself(case):
    model = case.new()

    with pytest.raises(NotFittedError, match=type(model).__name__):
        case.predict(model)


@SINGLE
def test_fit_returns_the_model(case):
    model = case.new()

    assert case.fit(model, case.samples) is model


@EVERY
def test_a_fitted_model_predicts_finite_positive_seconds(case):
    seconds = case.predict(case.fit(case.new(), case.samples))

    assert np.isfinite(seconds).all()
    assert (seconds > 0).all()


@SINGLE
def test_a_prediction_tells_spread_origin_and_range_of_each_task(case):
    prediction = case.fit(case.new(), case.samples).predict(case.tasks)

    assert (prediction.spread >= 0).all()
    assert set(prediction.origin.tolist()) <= set(Origin)
    assert [len(column) for column in (prediction.seconds, prediction.spread, prediction.in_range)] == [
        len(case.tasks)
    ] * 3


@SINGLE
def test_a_model_reads_no_more_of_its_tasks_than_its_features(case):
    model = case.fit(case.new(), case.samples)

    assert set(model.features) <= set(case.tasks.columns)
    assert model.predict(case.tasks[list(model.features)]).seconds == pytest.approx(case.predict(model), rel=0)


@EVERY
def test_fitting_twice_gives_the_same_predictions_bit_for_bit(case):
    first = case.predict(case.fit(case.new(), case.samples))
    second = case.predict(case.fit(case.new(), case.samples))

    assert first.tobytes() == second.tobytes()


@EVERY
def test_predictions_do_not_depend_on_the_order_of_the_samples(case):
    shuffled = case.samples.sample(frac=1, random_state=0)

    ordered_s = case.predict(case.fit(case.new(), case.samples))
    shuffled_s = case.predict(case.fit(case.new(), shuffled))

    assert (case.samples.index != shuffled.index).any()
    assert shuffled_s == pytest.approx(ordered_s, rel=1e-12)


@EVERY
def test_no_samples_are_refused(case):
    refusal(case, case.samples.iloc[:0])


@EVERY
@pytest.mark.parametrize("seconds", [np.nan, np.inf, 0.0, -1.0])
@pytest.mark.parametrize("place", [0, -1])
def test_a_sample_without_positive_seconds_is_refused_with_its_value(case, seconds, place):
    spoilt = case.samples.copy()
    spoilt.loc[spoilt.index[place], "seconds"] = seconds

    assert str(seconds) in refusal(case, spoilt)


@pytest.mark.parametrize("size_bytes", [np.nan, np.inf, -1.0])
@pytest.mark.parametrize(
    "case", [MODELS["transfers"], MODELS["roofline"], CALIBRATION], ids=["transfers", "roofline", "calibration"]
)
def test_a_sample_of_a_senseless_size_is_refused(case, size_bytes):
    spoilt = case.samples.astype({"size_bytes": float})
    spoilt["size_bytes"] = spoilt["size_bytes"].where(spoilt["size_bytes"] != 10, size_bytes)

    refusal(case, spoilt)


@pytest.mark.parametrize("name", sorted({*MODELS} - {"measured table"}))
def test_a_single_sample_is_refused_where_a_model_needs_several(name):
    case = MODELS[name]

    assert re.search("at least [25]", refusal(case, case.samples.iloc[:1]))


def test_transfers_all_of_one_size_are_refused():
    case = MODELS["transfers"]

    assert "at least 2 different values, got 1" in refusal(case, case.samples.assign(size_bytes=10))


VARIED = pytest.mark.parametrize("name", sorted({*MODELS} - {"measured table"}))

RANGED = pytest.mark.parametrize("name", sorted({*MODELS} - {"measured table", "efficient roofline"}))
"""Models that were fitted on a range of sizes, and know no better outside."""

SHIPPED = pytest.mark.parametrize("name", sorted({*MODELS} - {"measured table", "roofline"}))
"""Models with a JSON form of their own."""


@VARIED
def test_constant_times_are_refused_with_the_time(name):
    case = MODELS[name]

    assert "constant times: all" in refusal(case, case.samples.assign(seconds=3.5))
    assert "3.5 s" in refusal(case, case.samples.assign(seconds=3.5))


@RANGED
def test_a_model_warns_of_the_first_task_outside_its_range_and_only_once(name, recwarn):
    case = MODELS[name]
    model = case.fit(case.new(), case.samples)
    far = case.samples.assign(size_bytes=1e15)

    model.predict(far)
    model.predict(far)

    (warned,) = recwarn.list
    assert re.search(r"_bytes 1e\+15 lies outside the fitted range \d+ to [\d.e+]+: its time", str(warned.message))


@SHIPPED
def test_a_model_that_went_through_json_predicts_the_same(name):
    case = MODELS[name]
    model = case.fit(case.new(), case.samples)

    again = type(model).from_json(json.loads(json.dumps(model.as_json(), allow_nan=False)))

    for told, before in zip(astuple(again.predict(case.tasks)), astuple(model.predict(case.tasks)), strict=True):
        assert told.tolist() == before.tolist()


@VARIED
def test_a_model_does_not_warn_of_tasks_that_it_was_fitted_on(name, recwarn):
    case = MODELS[name]
    model = case.fit(case.new(), case.samples)

    assert model.predict(case.samples).in_range.all()
    assert not recwarn.list


@RANGED
def test_only_tasks_outside_the_fitted_range_are_told_as_such(name):
    case = MODELS[name]
    inside, outside = case.samples.iloc[:1], case.samples.iloc[:1].assign(size_bytes=1e15)

    with pytest.warns(UserWarning, match="lies outside"):
        prediction = case.fit(case.new(), case.samples).predict(pd.concat([inside, outside]))

    assert prediction.in_range.tolist() == [True, False]


def test_a_roofline_over_the_peaks_of_the_task_is_in_range_everywhere_and_warns_of_nothing(recwarn):
    case = MODELS["efficient roofline"]
    model = case.fit(case.new(), case.samples)

    assert model.predict(case.samples.assign(size_bytes=1e15, flop=1e20)).in_range.all()
    assert not recwarn.list


@pytest.mark.parametrize("name", ["transfers", "lines", "copies", "collective table", "alpha beta"])
def test_repeats_that_scatter_widen_the_spread(name):
    """Each size at 0.9 and 1.1 times its median: deviations of log(1.1 / 0.9) / 2, times sqrt 2 for two repeats."""
    case = MODELS[name]
    pairs = pd.concat([case.samples.assign(seconds=case.samples["seconds"] * factor) for factor in (0.9, 1.1)])

    steady, noisy = (case.fit(case.new(), samples).predict(case.tasks).spread for samples in (case.samples, pairs))

    assert noisy == pytest.approx(np.hypot(steady, np.log(1.1 / 0.9) / np.sqrt(2)), rel=1e-6)


def test_a_transfer_of_no_bytes_is_refused():
    case = MODELS["transfers"]

    assert "size_bytes" in refusal(case, case.samples.assign(size_bytes=[0, 40, 160]))


def test_work_that_neither_computes_nor_moves_makes_no_roofline():
    case = MODELS["roofline"]

    assert "computes or moves" in refusal(case, case.samples.assign(flop=0, size_bytes=0))
