"""The paper's Algorithm 2: closed forms on chains, then any step against its plain version and the simulator."""

from functools import partial

import numpy as np
import pytest
from home_rules import added_by_layer, named_prices, random_actions, sized, walk, whole_prices
from hypothesis import given, settings
from hypothesis import strategies as st
from proposing import MACHINE, peak_bytes
from random_workloads import workloads
from small_workloads import chain

from stepsim.costmodels import GivenCosts
from stepsim.errors import StepsimError
from stepsim.simulator import simulate
from stepsim.strategies.memory.home.building import home_problem
from stepsim.strategies.memory.home.evaluator import Evaluator
from stepsim.strategies.memory.home.options import Rules
from stepsim.strategies.memory.home.problem import KEEP, RECOMPUTE, SWAP, Actions
from stepsim.strategies.memory.lowering import plan_for_policy
from stepsim.strategies.memory.prices import Prices, prices_of
from stepsim.strategies.memory.schedule import Action
from stepsim.workloads import Workload
from stepsim.workloads.capture import capture
from stepsim.workloads.models import small_resnet

PLENTY_BYTES = 10**12


def actions_of(workload: Workload, **taken: int) -> Actions:
    """Of layers by the name of their op; the others keep."""
    problem = home_problem(workload, named_prices(workload))
    names = [workload.ops[stage].name for stage in problem.made_at[problem.members.values[problem.members.starts[:-1]]]]
    return np.array([taken.get(name, KEEP) for name in names], np.int8)


def seconds(workload: Workload, prices: Prices, actions: Actions, memory_bytes: int, **rules) -> float | None:
    evaluator = Evaluator(home_problem(workload, prices), memory_bytes, Rules(**rules))
    return evaluator.evaluate(actions).seconds


def all_of(action: int, num_layers: int) -> Actions:
    return np.full(num_layers, action, np.int8)


def test_keeping_everything_takes_the_time_of_all_ops() -> None:
    workload = chain(5)
    prices = named_prices(workload, F0=0.5, F3=2.25, B1=7.0)

    assert seconds(workload, prices, all_of(KEEP, 5), PLENTY_BYTES) == 11 - 3 + 0.5 + 2.25 + 7.0


def test_swapping_everything_over_a_link_that_takes_no_time_adds_nothing() -> None:
    workload = chain(5)
    least_bytes = peak_bytes(workload, dict.fromkeys(range(1, 6), Action.SWAP))

    for memory_bytes in (least_bytes, least_bytes + 15, PLENTY_BYTES):
        assert seconds(workload, named_prices(workload), all_of(SWAP, 5), memory_bytes) == len(workload.ops)


def test_recomputing_everything_adds_exactly_one_forward_pass() -> None:
    """But for the loss, which is not made again."""
    workload = chain(5)
    forward_s = {f"F{layer}": 2.0**layer for layer in range(5)}
    evaluator = Evaluator(home_problem(workload, named_prices(workload, **forward_s)), PLENTY_BYTES)

    evaluation = evaluator.evaluate(all_of(RECOMPUTE, 5))

    assert evaluation.seconds == 6 + 2 * sum(forward_s.values())
    assert evaluation.overhead_s.tolist() == list(forward_s.values())


@pytest.mark.parametrize("in_s", [0.5, 4.0])
@pytest.mark.parametrize("out_s", [1.0, 3.0, 20.0])
@pytest.mark.parametrize(("forward_s", "backward_s"), [(2.0, 3.0), (8.0, 0.25)])
def test_a_swap_exposes_what_the_next_forward_and_the_backward_stage_before_do_not_hide(
    out_s: float, in_s: float, forward_s: float, backward_s: float
) -> None:
    """The paper's example: (OFFLOAD_2 - FWD_3)+ + (PRE_2 - BWD_4)+, whose tensor 2 is our x1, made by F1.

    Its BWD_3 reads tensor 2, as our B1 does, so that its BWD_4 is our B2. F3 has no room until x1 is out.

    compute  F0 F1 F2 .... F3 F4 F5 L B5 B4 B3 B2 .... B1 B0
    out            =======
    in                                         ========
    """
    small = {5: 1, 6: 1} | dict.fromkeys(range(8, 14), 0)  # x4, x5, and all gradients
    workload = sized(chain(6), small)
    prices = named_prices(workload, out_s, in_s, F2=forward_s, B2=backward_s)

    taken_s = seconds(workload, prices, actions_of(workload, F1=SWAP), 45)

    hidden_s = 11 + forward_s + backward_s
    assert taken_s == hidden_s + max(0, out_s - forward_s) + max(0, in_s - backward_s)


def test_a_copy_that_starts_only_when_its_map_was_read_is_hidden_by_nothing_here() -> None:
    workload = sized(chain(6), {5: 1, 6: 1} | dict.fromkeys(range(8, 14), 0))

    taken_s = seconds(workload, named_prices(workload, out_s=3.0), actions_of(workload, F1=SWAP), 45, out_after="read")

    assert taken_s == 13 + 3.0


@pytest.mark.parametrize(("queues", "both_out_s"), [("two", 1 + 10 + 10), ("one", 1 + 10 + 10), ("none", 2 + 10)])
def test_what_goes_out_is_waited_for_first_out_first_and_only_when_room_is_needed(queues, both_out_s) -> None:
    """x0 begins at 1, x1 at 2, or when x0 is out. F4 needs 20 bytes, the room of both.

    compute  F0 F1 F2 F3 ................... F4 F5 L ...
    out         x0======== x1========
    """
    workload = sized(chain(6), {5: 20, 6: 1} | dict.fromkeys(range(8, 14), 0))
    actions = actions_of(workload, F0=SWAP, F1=SWAP)
    prices = named_prices(workload, out_s=10.0)
    evaluator = Evaluator(home_problem(workload, prices), 53, Rules(queues=queues))

    evaluation = evaluator.evaluate(actions)

    assert evaluation.seconds == 13 + both_out_s - 4
    assert evaluation.overhead_s.tolist() == [11 - 4, both_out_s - 11, 0, 0, 0, 0]


def test_what_gives_its_room_back_when_it_begins_to_leave_is_waited_for_by_nobody_but_its_reader() -> None:
    """The same, with a backward pass so long that both are out by then."""
    workload = sized(chain(6), {5: 20, 6: 1} | dict.fromkeys(range(8, 14), 0))
    prices = named_prices(workload, out_s=10.0, B5=30.0)

    taken_s = seconds(workload, prices, actions_of(workload, F0=SWAP, F1=SWAP), 53, held=False)

    assert taken_s == 12 + 30


def test_without_room_a_policy_is_unusable() -> None:
    """Keeping all of a chain of six needs 10 + 60 + 1 + 10 bytes."""
    prices = named_prices(chain(6))

    assert seconds(chain(6), prices, all_of(KEEP, 6), 81) == 13
    assert seconds(chain(6), prices, all_of(KEEP, 6), 80) is None


def test_with_a_penalty_it_is_known_by_how_much_a_policy_exceeds_the_limit() -> None:
    evaluator = Evaluator(home_problem(chain(6), named_prices(chain(6))), 60, Rules(penalty=True))

    evaluation = evaluator.evaluate(all_of(KEEP, 6))

    assert evaluation.seconds is None
    assert evaluation.over_bytes == sum(level - 60 for level in (70, 71, 81, 81, 71, 61))  # F5 L B5 B4 B3 B2
    kept, swapped = evaluator.all_ticks(np.stack([all_of(KEEP, 6), all_of(SWAP, 6)]))
    assert kept > swapped


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"prefetch_stages": 0}, "prefetch_stages: must be at least 1, got 0"),
        ({"queues": "three"}, "queues: must be one of none, one, two, got 'three'"),
        ({"out_after": "dinner"}, "out_after: must be one of read, made, got 'dinner'"),
    ],
)
def test_rules_that_do_not_exist_are_refused(options, problem: str) -> None:
    with pytest.raises(StepsimError, match=f"^{problem}$"):
        Rules(**options)


# --- any step, any policy -----------------------------------------------------------------------------------------

any_rules = st.builds(
    Rules,
    prefetch_stages=st.sampled_from([1, 1, 2, 8]),
    out_after=st.sampled_from(["made", "read"]),
    queues=st.sampled_from(["two", "one", "none"]),
    penalty=st.booleans(),
)


@settings(max_examples=300)
@given(workload=workloads(max_layers=8), seed=st.integers(0, 2**32), share=st.floats(0.2, 1.1), rules=any_rules)
def test_seconds_and_overheads_and_bytes_are_those_of_the_rows_of_the_schedule(
    workload: Workload, seed: int, share: float, rules: Rules
) -> None:
    """To the last bit: the compiled evaluator and the schedule agree on which policies fit, and on what they take."""
    rng = np.random.default_rng(seed)
    prices = whole_prices(workload, rng)
    problem = home_problem(workload, prices)
    memory_bytes = int(share * peak_bytes(workload, {}))
    evaluator = Evaluator(problem, memory_bytes, rules)

    for _ in range(5):
        actions = random_actions(problem, rng)
        evaluation = evaluator.evaluate(actions)
        policy, num_alone = problem.policy(actions), int(problem.dies_at.max(initial=-1)) + 1
        taken_s, added_s, over_bytes = walk(workload, prices, policy, memory_bytes, rules, num_alone)

        assert (evaluation.seconds is None) == (over_bytes > 0)
        assert not rules.penalty or evaluation.over_bytes == over_bytes
        if not over_bytes:
            assert evaluation.seconds == taken_s
            assert evaluation.overhead_s.tolist() == added_by_layer(problem, added_s)


@settings(max_examples=100)
@given(workload=workloads(), seed=st.integers(0, 2**32), share=st.floats(0.5, 1.1), ahead=st.sampled_from([1, 8]))
def test_a_policy_takes_what_its_plan_takes_in_the_simulator(
    workload: Workload, seed: int, share: float, ahead: int
) -> None:
    """Without launch costs, on a link with a lane each way: the model of the paper is then exact."""
    rng = np.random.default_rng(seed)
    costs = GivenCosts(seconds={op.kind: float(rng.integers(0, 5)) for op in workload.ops})
    problem = home_problem(workload, prices_of(workload, MACHINE, costs))
    memory_bytes = int(share * peak_bytes(workload, {}))
    actions = random_actions(problem, rng)

    taken_s = Evaluator(problem, memory_bytes, Rules(prefetch_stages=ahead)).evaluate(actions).seconds

    plan = plan_for_policy(workload, MACHINE, problem.policy(actions), memory_bytes, ahead)
    assert taken_s is None or taken_s == pytest.approx(simulate(plan, MACHINE, costs).makespan_s, rel=1e-12)


@pytest.mark.parametrize("ahead", [1, 8])
def test_so_it_is_on_a_captured_step_with_branches_and_batch_norm(ahead: int) -> None:
    workload = capture(partial(small_resnet, width=8), 8, "resnet").workload
    rng = np.random.default_rng(1)
    prices = whole_prices(workload, rng)
    problem = home_problem(workload, prices)
    memory_bytes = int(0.95 * peak_bytes(workload, {}))
    rules, fitting = Rules(prefetch_stages=ahead), 0
    evaluator = Evaluator(problem, memory_bytes, rules)

    for _ in range(40):
        actions = random_actions(problem, rng)
        policy = problem.policy(actions)
        taken_s, _, over_bytes = walk(workload, prices, policy, memory_bytes, rules, len(workload.ops))
        assert evaluator.evaluate(actions).seconds == (None if over_bytes else taken_s)
        fitting += not over_bytes

    assert 0 < fitting < 40
