"""Worlds are changed in the one thing that they say, and the claims say what the ratios do."""

import numpy as np
import pandas as pd
import pytest

from experiments import home_sensitivity
from experiments.home_constants import FITTED
from experiments.home_costs import PaperCosts, limit_bytes, machine_with
from experiments.home_paper import FIGURE_6, FIGURE_6_BATCHES, MODELS
from experiments.home_sensitivity import CASES, FIGURE_6_CASE, batches, claims, moved_by, over_rivals, within
from experiments.home_setting import step
from experiments.home_worlds import World, memory_bytes, one_link, without_waits_for_room
from stepsim.memory import memory_profile
from stepsim.plan import TaskKind
from stepsim.plan.builder import PlanBuilder
from stepsim.simulator import simulate
from stepsim.strategies.memory.home.building import home_problem
from stepsim.strategies.memory.home.evaluator import Evaluator
from stepsim.strategies.memory.home.options import Rules
from stepsim.strategies.memory.home.problem import KEEP, SWAP
from stepsim.strategies.memory.lowering import plan_for_policy
from stepsim.strategies.memory.prices import prices_of
from stepsim.strategies.memory.rows import resident_bytes
from stepsim.strategies.memory.schedule import schedule

MACHINE, COSTS = machine_with(FITTED), PaperCosts(FITTED)


def test_copies_both_ways_over_one_link_share_its_rate():
    """Side by side n bytes each way take latency + n / rate with a link each, latency + 2 n / rate with one."""
    size_bytes, (link, _) = 10**9, MACHINE.links
    builder = PlanBuilder()
    gpu, host = builder.device("gpu0"), builder.device("host")
    compute = builder.stream("compute", gpu)
    d2h, h2d = builder.stream("d2h", gpu, role="d2h"), builder.stream("h2d", gpu, role="h2d")
    leaves, comes = (builder.buffer(size_bytes, gpu, owner=compute) for _ in range(2))
    there, here = (builder.buffer(size_bytes, host) for _ in range(2))
    builder.swap_out(leaves, there, d2h)
    builder.swap_in(here, comes, h2d)
    plan = builder.build()

    apart = simulate(plan, MACHINE, COSTS).makespan_s
    shared = simulate(plan, one_link(MACHINE), COSTS).makespan_s

    takes_s = size_bytes / link.bandwidth_bytes_per_s
    assert apart == pytest.approx(link.latency_s + takes_s, rel=1e-12)
    assert shared == pytest.approx(link.latency_s + 2 * takes_s, rel=1e-12)


def test_without_waits_for_room_a_step_takes_what_the_evaluator_says_that_holds_no_room_in_flight():
    """The first quarter of the layers swapped, within the least that this takes: computing has to wait for room."""
    workload = step("vgg16", 3950)
    problem = home_problem(workload, prices_of(workload, MACHINE, COSTS))
    actions = np.where(np.arange(problem.num_layers) < problem.num_layers // 4, SWAP, KEEP).astype(np.int8)
    policy = problem.policy(actions)
    limit = max(resident_bytes(workload, schedule(workload, policy, 0)))
    plan = plan_for_policy(workload, MACHINE, policy, limit)

    free_s = simulate(without_waits_for_room(plan), MACHINE, COSTS).makespan_s

    told_s = Evaluator(problem, limit, Rules(held=False)).evaluate(actions).seconds
    assert free_s == pytest.approx(told_s, rel=1e-12)
    assert free_s < 0.9 * simulate(plan, MACHINE, COSTS).makespan_s


def test_only_releases_lose_what_they_waited_for():
    workload = step("vgg16", 3950)
    plan = plan_for_policy(workload, MACHINE, {}, limit_bytes(FITTED))

    assert without_waits_for_room(plan) == plan
    assert TaskKind.RELEASE in plan.tasks.kind


@pytest.mark.parametrize("model", ["vgg16", "inception_v3"])
def test_with_other_storage_the_limit_is_the_same_share_of_what_keeping_everything_takes(model):
    batch, world = batches(model)[-1], World(all_outputs=False)

    shares = [
        memory_bytes(each, model, batch) / _kept_bytes(step(model, batch, all_outputs=each.all_outputs))
        for each in (World(), world)
    ]

    assert shares[0] == pytest.approx(shares[1], rel=1e-6)
    assert memory_bytes(world, model, batch) != limit_bytes(FITTED)


def _kept_bytes(workload):
    plan = plan_for_policy(workload, MACHINE, {}, 0)
    return memory_profile(plan).peak_bytes("gpu0")


def test_ratios_are_means_over_the_batches_at_which_the_rival_fits():
    assert over_rivals([[6.0, 2.0], [4.0, 4.0]]) == [2.0]
    assert over_rivals([[6.0, 2.0], [4.0, 0.0]]) == [3.0]
    assert np.isnan(over_rivals([[6.0, 0.0], [4.0, 0.0]])[0])


def test_where_home_does_not_fit_and_the_rival_does_the_ratio_is_0():
    assert over_rivals([[6.0, 2.0], [0.0, 4.0]]) == [1.5]


@pytest.mark.parametrize("model", MODELS)
def test_batches_are_those_at_which_the_paper_has_all_systems(model):
    assert len(set(batches(model))) == 2
    for batch in batches(model):
        place = FIGURE_6_BATCHES[model].index(batch)
        assert None not in [rates[place] for rates in FIGURE_6[model].values()]


def test_every_case_but_figure_6_changes_the_world_or_one_system():
    for case in CASES:
        changes = (case.world != World()) + bool(case.systems)
        assert changes == 0 if case is FIGURE_6_CASE else changes > 0
    assert len({(case.factor, case.value) for case in CASES}) == len(CASES)


def test_a_case_does_not_do_what_another_does():
    done = [(case.world, tuple(case.systems.items())) for case in CASES]

    assert len(set(done)) == len(done)


TABLE = pd.DataFrame(
    [
        {"factor": "none", "value": "as in figure 6", "model": "a", "vdnn": 2.0},
        {"factor": "none", "value": "as in figure 6", "model": "b", "vdnn": 4.0},
        {"factor": "link", "value": "slow", "model": "a", "vdnn": 3.0},
        {"factor": "link", "value": "slow", "model": "b", "vdnn": 5.0},
        {"factor": "link", "value": "fast", "model": "a", "vdnn": 1.0},
        {"factor": "link", "value": "fast", "model": "b", "vdnn": 4.5},
    ]
)


def test_a_factor_moves_a_ratio_by_what_lies_between_its_values_and_figure_6():
    """Of a from 1 to 3, over 2; of b from 4, which is figure 6, to 5, over 4."""
    assert moved_by(TABLE, "vdnn").to_dict() == {"link": pytest.approx((2 / 2 + 1 / 4) / 2)}


@pytest.mark.parametrize(("least", "holds"), [(1.0, True), (0.99, False)])
def test_home_behind_vdnn_at_one_value_of_one_model_fails_the_claim_of_its_factor(least, holds):
    table = TABLE.replace({"vdnn": {1.0: least}})

    found = {claim.claim.partition(":")[0]: claim for claim in claims(table)}

    assert found["as in figure 6"].holds
    assert (found["whatever the link"].ours, found["whatever the link"].holds) == (least, holds)


def test_the_paper_is_within_the_values_at_their_ends_and_not_beyond():
    ratios = pd.Series([1.0, 1.5])

    assert [within(ratios, ratio) for ratio in (0.9, 1.0, 1.5, 1.6)] == [False, True, True, False]


def test_a_quick_run_writes_table_and_picture_and_its_claims_hold(tmp_path):
    found = home_sensitivity.run(tmp_path, quick=True)

    assert {path.name for path in tmp_path.iterdir()} == {"home_sensitivity.csv", "home_sensitivity.png"}
    assert [claim.claim for claim in found if not claim.holds] == []
    assert len(found) >= 3
