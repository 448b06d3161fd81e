"""Two engines, one meaning: outcomes equal bit for bit, on plans with every mechanism and on plans of near ties."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from near_tie_plans import near_tie_case
from random_plans import busy_plans, near_ties
from seeded_plans import busy_case

from stepsim.simulator.compiled import CompiledEngine, is_free_of_contention, sweep
from stepsim.simulator.problem import problem_of
from stepsim.simulator.reference import flows, kernels, run_reference, settling

SHARINGS = st.sampled_from(["leftover", "fair"])


def assert_equal(one, two):
    """Bit for bit; where nothing happened both say NaN."""
    for name in ("ready_s", "start_s", "end_s", "issued"):
        ours, theirs = getattr(one, name), getattr(two, name)
        rows = np.flatnonzero((ours != theirs) & ~((ours != ours) & (theirs != theirs)))
        assert not len(rows), f"{name} of row {rows[0]}: {ours[rows[0]]!r} and {theirs[rows[0]]!r}"


@settings(max_examples=1500)
@given(busy_plans(), SHARINGS)
def test_the_engines_agree_bit_for_bit_on_plans_with_every_mechanism(case, sharing):
    problem = problem_of(case.plan, case.machine, case.costs)

    assert_equal(run_reference(problem, sharing), CompiledEngine(problem, sharing).run())


@settings(max_examples=500)
@given(near_ties(), SHARINGS)
def test_the_engines_agree_bit_for_bit_on_plans_whose_ends_tie_on_paper(case, sharing):
    problem = problem_of(case.plan, case.machine, case.costs)

    assert_equal(run_reference(problem, sharing), CompiledEngine(problem, sharing).run())


@settings(max_examples=300)
@given(busy_plans(max_rows=12))
def test_a_plan_that_is_free_of_contention_is_swept_to_the_same_outcome(case):
    problem = problem_of(case.plan, case.machine, case.costs)

    if is_free_of_contention(problem):
        assert_equal(sweep(problem), CompiledEngine(problem).run())


def test_many_of_the_small_plans_are_swept_and_many_of_the_large_ones_are_not():
    """Else the test above, or the others, would say little."""

    def swept(num_rows):
        cases = (busy_case(seed, num_rows) for seed in range(60))
        return sum(is_free_of_contention(problem_of(*case)) for case in cases)

    assert swept(3) > 20
    assert swept(40) < 10


def settle_always(running, rate):
    """As `settling.Running.set_rate`, but it settles where the rate stays the same, too."""
    if rate == running.rate > 0:
        running.left = max(0.0, running.left - running.rate * (running.env.now - running.since_s))
        running.since_s = running.env.now
        running._alarm = running.env.timeout(running.left / rate)
        running._alarm.callbacks.append(running._ring)
    else:
        original_set_rate(running, rate)


original_set_rate = settling.Running.set_rate
original_binding = flows._binding


def without_the_first_link(flowing, bytes_per_s):
    return {link: places for link, places in original_binding(flowing, bytes_per_s).items() if link > 0}


def without_priority(self, row, priority, needs, seconds):
    return original_run(self, row, 0, needs, seconds)


original_run = kernels.SharedDevice.run


@pytest.mark.parametrize(
    ("home", "name", "faulty"),
    [
        (settling.Running, "set_rate", settle_always),
        (flows, "_binding", without_the_first_link),
        (kernels.SharedDevice, "run", without_priority),
    ],
    ids=["settling at every event", "a link that is not shared", "a lost priority"],
)
def test_a_fault_in_one_engine_is_found(monkeypatch, home, name, faulty):
    monkeypatch.setattr(home, name, faulty)

    found = [seed for seed in range(100) if differs(busy_case(seed, 40)) or differs(near_tie_case(seed, 4))]

    assert len(found) >= 3, found


def differs(case):
    problem = problem_of(*case)
    try:
        assert_equal(run_reference(problem, "leftover"), CompiledEngine(problem).run())
    except AssertionError:
        return True
    return False
