"""Every strategy that the command line knows: its plan runs, with the values and the bytes that were promised."""

import pytest
from checking import check
from small_plans import CPU, bound_to, keep_all_peak_bytes
from tiny_models import tiny_resnet, tiny_transformer

from stepsim.costmodels import GivenCosts
from stepsim.executor import Executor
from stepsim.machines import this_cpu
from stepsim.memory import memory_profile
from stepsim.plan import TaskKind
from stepsim.report import report
from stepsim.simulator import simulate
from stepsim.strategies import STRATEGIES
from stepsim.strategies.memory.lowering import plan_for_rows
from stepsim.strategies.memory.on_demand import evicting
from stepsim.strategies.memory.rows import settle
from stepsim.strategies.memory.schedule import order


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


@pytest.mark.parametrize("factory", [tiny_resnet, tiny_transformer], ids=lambda factory: factory.__name__)
def test_a_plan_that_evicts_on_demand_runs_with_equal_gradients_at_the_predicted_peak(factory):
    """Between any two uses, in the forward pass too."""
    bound = bound_to(factory, 8)
    limit_bytes = int(0.8 * keep_all_peak_bytes(bound))
    rows = evicting(bound.workload, order(bound.workload, {}, 0), limit_bytes)

    plan = plan_for_rows(bound.workload, this_cpu(), settle(bound.workload, rows, limit_bytes))

    assert (plan.tasks.kind == TaskKind.SWAP_IN).any()
    check(plan, bound)
    measured = Executor(plan, bound).run(metered=True).memory.peak_bytes(CPU)
    assert measured == memory_profile(plan).peak_bytes(CPU) <= limit_bytes
