import numpy as np
import pytest
from small_machines import gpus

from stepsim.costmodels.given import GivenCosts
from stepsim.errors import CalibrationError
from stepsim.plan import Origin
from stepsim.plan.builder import PlanBuilder
from stepsim.simulator import simulate


def forward_swap_reduce():
    builder = PlanBuilder()
    gpu, host = builder.device("gpu0"), builder.device("host")
    compute, d2h = builder.stream("compute", gpu), builder.stream("d2h", gpu, role="d2h")
    y = builder.buffer(6, gpu, owner=compute)
    builder.compute(builder.work("F"), compute, writes=[y], allocates=[y])
    builder.swap_out(y, builder.buffer(6, host), d2h)
    builder.collective("all_reduce", [0], compute, builder.group(), size_bytes=6)
    builder.release([y], compute)
    builder.host(builder.work("gap"))
    return builder.build()


SECONDS = {"F": 2.0, "gap": 3.0, "all_reduce": 5.0}


def test_work_and_collectives_take_what_their_kind_was_given_and_transfers_their_bytes():
    plan, machine = forward_swap_reduce(), gpus(bandwidth_bytes_per_s=2.0)

    costs = GivenCosts(seconds=SECONDS, latency_s=0.5).task_costs(plan, machine)

    assert costs.seconds_alone(plan, machine).tolist() == [2.0, 0.5 + 6 / 2.0, 5.0, 0.0, 3.0]


def test_every_launch_costs_the_same():
    costs = GivenCosts(seconds=SECONDS, launch_s=0.25).task_costs(forward_swap_reduce(), gpus())

    assert set(costs.table.launch_s[costs.index].tolist()) == {0.25}


def test_a_price_is_listed_once_for_each_kind_and_says_that_it_was_given():
    costs = GivenCosts(seconds=SECONDS).task_costs(forward_swap_reduce(), gpus())

    assert len(costs.table) == len(SECONDS) + 1  # and one for what is neither work nor collective
    assert set(costs.table.origin.tolist()) == {Origin.GIVEN}
    assert np.unique(costs.index).tolist() == [0, 1, 2, 3]


def test_a_step_at_given_costs():
    """
    compute  FF RRRRR
    d2h         SSSSSS
    """
    timeline = simulate(forward_swap_reduce(), gpus(), GivenCosts(seconds=SECONDS))

    assert timeline.makespan_s == 8.0


@pytest.mark.parametrize("kind", ["F", "gap"])
def test_work_without_seconds_is_named(kind):
    seconds = {name: value for name, value in SECONDS.items() if name != kind}

    with pytest.raises(CalibrationError) as caught:
        GivenCosts(seconds=seconds).task_costs(forward_swap_reduce(), gpus())

    assert str(caught.value) == f"no seconds given for work {kind!r}; given: {sorted(seconds)}"
