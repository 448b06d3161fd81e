"""Plans of one step, measured in turns."""

import numpy as np
import pytest
import torch
from small_plans import CPU, bind, bound_to, plan_of, policy_of
from tiny_models import conv_net_with_bias, with_dropout

from stepsim.executor import Executor
from stepsim.executor.measure import WARM_UP, Measured, measure
from stepsim.memory import memory_profile
from stepsim.strategies.memory.schedule import Action
from stepsim.timeline import Timeline

RUNS = 3


def test_each_plan_is_run_as_often_as_asked_and_equals_eager_pytorch() -> None:
    bound = bound_to(conv_net_with_bias)
    plans = [plan_of(bound, {}), plan_of(bound, policy_of(bound, Action.SWAP), memory_bytes=0)]

    found = measure(bound, plans, runs=RUNS)

    for plan, measured in zip(plans, found, strict=True):
        assert measured.max_abs_difference == 0.0
        assert measured.memory.peak_bytes(CPU) == memory_profile(plan).peak_bytes(CPU)
        assert [run.plan_hash for run in measured.runs] == [plan.content_hash] * RUNS
        assert {run.memory.resident_bytes.max() for run in measured.runs} == {memory_profile(plan).peak_bytes(CPU)}


def test_plans_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    bound = bound_to(conv_net_with_bias)
    keep, swap = plan_of(bound, {}), plan_of(bound, policy_of(bound, Action.SWAP))
    order, run = [], Executor.run
    monkeypatch.setattr(Executor, "run", lambda self, **options: order.append(self.plan) or run(self, **options))

    measure(bound, [keep, swap], runs=RUNS)

    metered = 1
    assert order == [keep, swap] * (metered + WARM_UP + RUNS)


def test_the_module_is_trained_by_one_step_a_run() -> None:
    bound, twin = (bind(conv_net_with_bias) for _ in range(2))
    plan = plan_of(bound, {})

    measure(bound, [plan, plan], runs=RUNS)

    executor = Executor(plan, twin)
    for _ in range(2 * (1 + WARM_UP + RUNS)):
        executor.run()
    assert all(map(torch.equal, bound.step.module.parameters(), twin.step.module.parameters()))


def test_a_step_that_draws_random_numbers_is_no_further_from_eager_pytorch() -> None:
    bound = bound_to(with_dropout)

    (measured,) = measure(bound, [plan_of(bound, {})], runs=1)

    assert measured.max_abs_difference == 0.0


def test_progress_ends_with_all_rounds_done() -> None:
    bound, seen = bound_to(conv_net_with_bias), []

    measure(bound, [plan_of(bound, {})], runs=RUNS, progress=lambda done, number: seen.append((done, number)))

    number = len(seen)
    assert number >= RUNS
    assert seen == [(done, number) for done in range(1, number + 1)]


@pytest.mark.parametrize(("seconds", "median"), [([3.0, 1.0, 2.0], 2.0), ([4.0, 1.0, 3.0, 2.0], 3.0), ([5.0], 5.0)])
def test_the_median_run_is_one_of_the_runs_the_upper_one_of_two(seconds, median) -> None:
    bound = bound_to(conv_net_with_bias)
    plan = plan_of(bound, {})
    rows = np.ones(len(plan))
    runs = tuple(Timeline.of(plan, 0 * rows, second * rows, "measured") for second in seconds)

    measured = Measured(runs=runs, memory=memory_profile(plan), max_abs_difference=0.0, allocated_peak_bytes=None)

    assert measured.median_run.makespan_s == median
