"""Promises that every memory strategy keeps, on any step."""

from functools import cache, partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from proposing import MACHINE, decisions, peak_bytes, propose
from random_workloads import workloads
from small_networks import CONVOLUTION, RELU, network
from small_workloads import accumulated, chain

from stepsim.costmodels import GivenCosts
from stepsim.memory import memory_profile
from stepsim.plan import Plan
from stepsim.report import report
from stepsim.simulator import simulate
from stepsim.strategies import STRATEGIES
from stepsim.strategies.memory.lowering import plan_for_policy
from stepsim.workloads import Workload
from stepsim.workloads.capture import capture
from stepsim.workloads.models import small_resnet, small_transformer

every_strategy = pytest.mark.parametrize("name", STRATEGIES)

UNCONDITIONAL = {name for name in STRATEGIES if name.startswith(("vdnn", "superneurons"))} - {"vdnn-dynamic"}
"""These do what their papers say whether there is room or not, and may not fit where others do."""

TRIES_SEVERAL = {"vdnn-dynamic", "swapadvisor", "refined"} | {
    name for name in STRATEGIES if name.startswith("capuchin")
}
"""These look at the simulated time of more than one plan."""

FOR_CONVOLUTIONS = {"vdnn-dynamic"}
"""It moves what lies before the first linear layer, with which a transformer begins."""

FOR_FEW_OPS = {"checkmate", "checkmate-rounded"}
"""A program of more than a hundred ops takes longer than a test may."""


def strategies_but(*left_out: set[str]) -> list[str]:
    return [name for name in STRATEGIES if name not in set().union(*left_out)]


@cache
def captured(family: str) -> Workload:
    factory = {
        "resnet": partial(small_resnet, width=4),
        "transformer": partial(small_transformer, width=16, blocks=1, heads=2, length=8, vocabulary=20),
    }[family]
    return capture(factory, 4, family).workload


@every_strategy
def test_a_proposal_goes_by_the_name_that_the_command_line_knows(name: str) -> None:
    assert propose(STRATEGIES[name], chain(3), 1000).strategy == name


@pytest.mark.parametrize("name", strategies_but(UNCONDITIONAL))
def test_with_room_for_everything_every_strategy_keeps_everything(name: str) -> None:
    workload = chain(6)

    proposal = propose(STRATEGIES[name], workload, 1000)

    assert (proposal.feasible, proposal.complete) == (True, True)
    assert proposal.plan == plan_for_policy(workload, MACHINE, {}, 1000)
    assert proposal.predicted_s == len(workload.ops)


@every_strategy
@settings(max_examples=12)
@given(workload=workloads(), share=st.floats(0, 1.2))
def test_a_proposal_says_of_its_plan_what_is_so(name: str, workload: Workload, share: float) -> None:
    limit_bytes = int(share * peak_bytes(workload, {}))

    proposal = propose(STRATEGIES[name], workload, limit_bytes)

    costs = GivenCosts(seconds={op.kind: 1.0 for op in workload.ops})
    assert proposal.predicted_peak_bytes == memory_profile(proposal.plan).peak_bytes("gpu0")
    assert proposal.feasible == (proposal.predicted_peak_bytes <= limit_bytes)
    assert proposal.predicted_s == simulate(proposal.plan, MACHINE, costs).makespan_s
    assert proposal.predicted_s >= len(workload.ops)
    assert proposal.complete
    assert proposal.plan == propose(STRATEGIES[name], workload, limit_bytes).plan


@every_strategy
@pytest.mark.parametrize("share", [0.7, 1.2])
def test_a_step_that_accumulates_gradients_has_a_plan_that_keeps_its_word(name: str, share: float) -> None:
    workload = accumulated(network(CONVOLUTION, RELU, CONVOLUTION, RELU), 2)
    limit_bytes = int(share * peak_bytes(workload, {}))

    proposal = propose(STRATEGIES[name], workload, limit_bytes)

    assert proposal.predicted_peak_bytes == memory_profile(proposal.plan).peak_bytes("gpu0")
    assert proposal.feasible == (proposal.predicted_peak_bytes <= limit_bytes)
    assert proposal.predicted_s >= len(workload.ops)


@every_strategy
def test_a_limit_that_nothing_meets_gives_an_infeasible_proposal_with_the_peak_it_reaches(name: str) -> None:
    proposal = propose(STRATEGIES[name], chain(6), 15)

    assert not proposal.feasible
    assert proposal.predicted_peak_bytes > 15


@pytest.mark.parametrize("name", strategies_but(TRIES_SEVERAL))
def test_a_strategy_scores_the_plan_that_it_gives_and_needs_no_other(name: str) -> None:
    workload, scored = chain(6), list[Plan]()
    costs = GivenCosts(seconds={op.kind: 1.0 for op in workload.ops})

    def evaluate(plan: Plan):
        scored.append(plan)
        return report(simulate(plan, MACHINE, costs), plan)

    proposal = STRATEGIES[name].plan(workload, MACHINE, costs, memory_bytes=61, evaluate=evaluate, time_limit_s=60)

    assert scored == [proposal.plan]


def test_keep_all_is_feasible_down_to_its_peak_and_no_further() -> None:
    """Input, six activations, the loss and the first gradient are there at once."""
    keep_all, peak = STRATEGIES["keep-all"], 10 + 60 + 1 + 10

    assert propose(keep_all, chain(6), peak).feasible
    assert not propose(keep_all, chain(6), peak - 1).feasible
    assert propose(keep_all, chain(6), peak - 1).predicted_peak_bytes == peak


@pytest.mark.parametrize("family", ["resnet", "transformer"])
@pytest.mark.parametrize("name", strategies_but({"keep-all"}, UNCONDITIONAL, FOR_CONVOLUTIONS, FOR_FEW_OPS))
def test_under_a_limit_that_keep_all_exceeds_a_real_step_still_fits_and_takes_longer(name: str, family: str) -> None:
    workload = captured(family)
    limit_bytes = int(0.9 * peak_bytes(workload, {}))
    kept = propose(STRATEGIES["keep-all"], workload, limit_bytes)

    proposal = propose(STRATEGIES[name], workload, limit_bytes)

    assert not kept.feasible
    assert proposal.feasible
    assert proposal.predicted_s > kept.predicted_s
    assert decisions(proposal.plan)
