import numpy as np
import pytest
from small_machines import gpus, spans_of

from stepsim.costmodels import RecordedCosts
from stepsim.errors import CalibrationError
from stepsim.plan import Origin, TaskKind
from stepsim.plan.builder import PlanBuilder
from stepsim.simulator import simulate


def kernel_and_copy():
    builder = PlanBuilder()
    gpu, host = builder.device("gpu0"), builder.device("host")
    builder.compute(builder.work("kernel"), builder.stream("compute", gpu))
    builder.add(TaskKind.COPY, stream=builder.stream("h2d", gpu), route=(host, gpu), size_bytes=1000)
    return builder.build()


def test_each_row_takes_its_recorded_seconds_and_launch_whatever_the_links():
    """
    thread   LL L
    compute    KKKKK
    h2d         CCC
    """
    costs = RecordedCosts(seconds=np.array([5.0, 3.0]), launch_s=np.array([2.0, 1.0]))

    timeline = simulate(kernel_and_copy(), gpus(bandwidth_bytes_per_s=1.0), costs)

    assert spans_of(timeline) == [(2, 7), (3, 6)]


def test_every_cost_is_marked_as_recorded():
    costs = RecordedCosts(seconds=np.ones(2), launch_s=np.zeros(2))

    priced = costs.task_costs(kernel_and_copy(), gpus())

    assert set(priced.table.origin.tolist()) == {Origin.RECORDED}


def test_costs_of_another_plan_are_refused_with_both_lengths():
    costs = RecordedCosts(seconds=np.ones(3), launch_s=np.zeros(2))

    with pytest.raises(CalibrationError, match="seconds are for 3 rows and launches for 2, the plan has 2"):
        costs.task_costs(kernel_and_copy(), gpus())
