"""The paper's Algorithms 1 and 3 against their plain version, and HOME as a strategy."""

import time
from itertools import product

import numpy as np
import pytest
from home_rules import named_prices, swarm, whole_prices
from hypothesis import given, settings
from hypothesis import strategies as st
from proposing import MACHINE, count, decisions, peak_bytes, propose
from random_workloads import workloads
from small_workloads import chain

from stepsim.errors import StepsimError
from stepsim.plan import TaskKind
from stepsim.strategies import Home, HomeExtended
from stepsim.strategies.memory.home.building import home_problem
from stepsim.strategies.memory.home.evaluator import Evaluator
from stepsim.strategies.memory.home.options import Rules, Swarm
from stepsim.strategies.memory.home.problem import Actions
from stepsim.strategies.memory.home.swarm import Found, search
from stepsim.strategies.memory.home.work import OVER, UNUSABLE
from stepsim.strategies.memory.lowering import plan_for_policy
from stepsim.strategies.memory.schedule import Action
from stepsim.workloads import Workload


def evaluator_of(workload: Workload, memory_bytes: int, **rules) -> Evaluator:
    return Evaluator(home_problem(workload, named_prices(workload, 3.0, 3.0)), memory_bytes, Rules(**rules))


def found_by(evaluator: Evaluator, seed: int = 0, **options) -> Found:
    return search(evaluator, Swarm(**options), np.random.default_rng(seed))


def every_policy(num_layers: int) -> Actions:
    """Shape (policies, layers)."""
    return np.array(list(product(range(3), repeat=num_layers)), np.int8)


@settings(max_examples=120)
@given(
    workload=workloads(max_layers=8),
    seed=st.integers(0, 2**32),
    share=st.floats(0.4, 1.1),
    leader=st.sampled_from(["previous", "ever"]),
    random_share=st.sampled_from([0.0, 0.0, 0.3]),
    penalty=st.booleans(),
    ahead=st.sampled_from([1, 8]),
)
def test_trials_taken_up_half_way_and_skipped_ones_give_what_evaluating_all_anew_gives(
    workload: Workload, seed: int, share: float, leader, random_share: float, penalty: bool, ahead: int
) -> None:
    """To the last bit: the same policy, and the same scores of all particles after each iteration."""
    problem = home_problem(workload, whole_prices(workload, np.random.default_rng(seed)))
    memory_bytes = int(share * peak_bytes(workload, {}))
    rules = Rules(penalty=penalty, prefetch_stages=ahead)
    options = Swarm(num_particles=6, num_iterations=4, leader=leader, random_share=random_share)
    whole = Evaluator(problem, memory_bytes, rules)

    def score(actions: Actions) -> float:
        ticks = whole.ticks(actions)
        return np.inf if ticks == UNUSABLE else ticks

    found = search(Evaluator(problem, memory_bytes, rules), options, np.random.default_rng(seed))
    best, history = swarm(problem, score, options, np.random.default_rng(seed))

    assert (found.actions is None) == (best is None)
    assert best is None or found.actions.tolist() == best.tolist()
    for number, scores in enumerate(history):
        fit_s = np.array([ticks for ticks in scores if ticks < OVER]) * problem.tick_s
        last = min(number, len(found.best_s) - 1)  # it stopped where nothing changed any more
        assert found.best_s[last] == fit_s.min() if len(fit_s) else np.isnan(found.best_s[last])
        assert found.mean_s[last] == pytest.approx(fit_s.mean()) if len(fit_s) else np.isnan(found.mean_s[last])


def test_the_best_policy_ever_is_what_was_found() -> None:
    evaluator = evaluator_of(chain(8), 75)

    found = found_by(evaluator, num_particles=20, num_iterations=10)

    assert found.seconds == evaluator.evaluate(found.actions).seconds == np.nanmin(found.best_s)


def test_on_a_short_chain_the_swarm_of_the_paper_finds_the_best_of_all_policies() -> None:
    evaluator = evaluator_of(chain(5), 55)
    best = evaluator.all_ticks(every_policy(5)).min()

    assert best < UNUSABLE
    assert found_by(evaluator).seconds == best * evaluator.problem.tick_s


def test_it_stops_when_every_particle_is_what_its_teachers_are() -> None:
    found = found_by(evaluator_of(chain(8), 75))

    assert found.complete
    assert len(found.best_s) < 50
    assert found.best_s[-1] == found.best_s[-2]


def test_the_same_seed_finds_the_same_and_another_one_starts_elsewhere() -> None:
    one, two, other = (found_by(evaluator_of(chain(9), 75), seed, num_particles=5) for seed in (1, 1, 2))

    assert one.actions.tolist() == two.actions.tolist()
    assert one.mean_s.tolist() == two.mean_s.tolist()
    assert one.mean_s[0] != other.mean_s[0]


def test_when_time_is_up_the_best_so_far_is_given_and_marked() -> None:
    evaluator = evaluator_of(chain(8), 75)

    found = search(evaluator, Swarm(), np.random.default_rng(0), deadline_s=time.monotonic())

    assert not found.complete
    assert found.seconds == found.best_s[0]


def test_where_no_policy_fits_nothing_is_found_but_with_a_penalty_what_exceeds_least() -> None:
    evaluator = evaluator_of(chain(5), 15, penalty=True)

    literal, found = found_by(evaluator_of(chain(5), 15)), found_by(evaluator)

    assert literal.actions is None
    assert found.seconds is None
    assert np.isnan(found.best_s).all()
    assert evaluator.ticks(found.actions) == evaluator.all_ticks(every_policy(5)).min()


def test_with_a_penalty_a_swarm_finds_its_way_to_what_fits() -> None:
    """Of so few random policies none fits."""
    limit_bytes = peak_bytes(chain(12), dict.fromkeys(range(1, 13), Action.SWAP)) + 1

    literal, penalised = (
        found_by(evaluator_of(chain(12), limit_bytes, penalty=penalty), num_particles=4, random_share=share)
        for penalty, share in ((False, 0.0), (True, 0.1))
    )

    assert literal.seconds is None
    assert penalised.seconds is not None


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"num_particles": 0}, "num_particles: must be at least 1, got 0"),
        ({"num_iterations": -1}, "num_iterations: must be at least 0, got -1"),
        ({"leader": "nobody"}, "leader: must be one of previous, ever, got 'nobody'"),
        ({"random_share": 1.5}, "random_share: must be from 0 to 1, got 1.5"),
    ],
)
def test_options_that_do_not_exist_are_refused(options, problem: str) -> None:
    with pytest.raises(StepsimError, match=f"^{problem}$"):
        Swarm(**options)


# --- as a strategy ------------------------------------------------------------------------------------------------


def test_it_recomputes_what_is_cheap_to_make_and_swaps_what_is_cheap_to_move() -> None:
    """A copy takes 1 s each way; an op takes 0.1 s, or 3 s, which hides both copies."""
    cheap, dear = (propose(Home(), chain(6), 71, op_s=op_s) for op_s in (0.1, 3.0))

    assert cheap.feasible
    assert dear.feasible
    assert (count(cheap, TaskKind.RECOMPUTE), count(cheap, TaskKind.SWAP_OUT)) == (1, 0)
    assert (count(dear, TaskKind.RECOMPUTE), count(dear, TaskKind.SWAP_OUT) > 0) == (0, True)
    assert dear.predicted_s == 3.0 * 13


def test_the_extended_one_asks_for_what_comes_back_eight_ops_ahead() -> None:
    """So that a long copy in is hidden, which the paper's cannot."""
    workload = chain(14)
    limit_bytes = peak_bytes(workload, {}) - 30

    paper, extended = (propose(strategy, workload, limit_bytes, op_s=0.4) for strategy in (Home(), HomeExtended()))

    assert extended.plan == plan_for_policy(workload, MACHINE, decisions(extended.plan), limit_bytes, 8)
    assert extended.predicted_s < paper.predicted_s


def test_the_extended_one_asks_less_early_where_nothing_fits_eight_ops_ahead() -> None:
    """Where the first one's plan is all that fits, eight ops ahead are too many."""
    workload = chain(14)
    limit_bytes = peak_bytes(workload, dict.fromkeys(range(1, 15), Action.SWAP))

    stubborn, extended = (propose(HomeExtended(fewer_stages=fewer), workload, limit_bytes) for fewer in ((), (4, 2, 1)))

    assert not stubborn.feasible
    assert extended.feasible


def test_a_strategy_out_of_time_says_so_and_still_gives_a_plan() -> None:
    proposal = propose(Home(), chain(8), 75, time_limit_s=0.0)

    assert not proposal.complete
    assert proposal.feasible


def test_where_no_particle_fits_everything_is_swapped() -> None:
    limit_bytes = peak_bytes(chain(12), dict.fromkeys(range(1, 13), Action.SWAP)) + 1

    proposal = propose(Home(swarm=Swarm(num_particles=4)), chain(12), limit_bytes)

    assert proposal.feasible
    assert count(proposal, TaskKind.SWAP_OUT) == 12
