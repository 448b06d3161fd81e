"""Every strategy that the command line knows: its plan runs, with the values and the bytes that were promised."""

import pytest
from checking import check
from small_plans import CPU, bound_to, keep_all_peak_bytes
from tiny_models import tiny_resnet, tiny_transformer

from stepsim.costmodels import GivenCosts
from stepsim.executor import Executor
from stepsim.machines import this_cpu
from stepsim.report import report
from stepsim.simulator import simulate
from stepsim.strategies import STRATEGIES


@pytest.mark.parametrize("factory", [tiny_resnet, tiny_transformer], ids=lambda factory: factory.__name__)
@pytest.mark.parametrize("name", STRATEGIES)
def test_a_plan_runs_with_equal_gradients_at_the_predicted_peak(name, factory):
    bound, machine = bound_to(factory, 8), this_cpu()
    costs = GivenCosts(seconds={op.kind: 1e-4 for op in bound.workload.ops})
    limit_bytes = int(0.9 * keep_all_peak_bytes(bound))

    proposal = STRATEGIES[name].plan(
        bound.workload,
        machine,
        costs,
        memory_bytes=limit_bytes,
        evaluate=lambda plan: report(simulate(plan, machine, costs), plan),
        time_limit_s=20,
    )

    check(proposal.plan, bound)
    measured = Executor(proposal.plan, bound).run(metered=True).memory.peak_bytes(CPU)
    assert measured == proposal.predicted_peak_bytes
    assert proposal.feasible == (measured <= limit_bytes)
