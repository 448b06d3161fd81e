"""Bad limits, limits that nothing meets, and steps with something odd in them: what every strategy makes of them."""

import math
from dataclasses import replace

import pytest
from odd_steps import ODD_STEPS
from proposing import MACHINE, decisions, peak_bytes, propose
from small_workloads import chain

from stepsim.costmodels import GivenCosts
from stepsim.errors import StepsimError
from stepsim.memory import memory_profile
from stepsim.report import report
from stepsim.simulator import simulate
from stepsim.strategies import STRATEGIES, LeastMemory, Proposal, least_memory
from stepsim.strategies.memory.exhaustive import Exhaustive
from stepsim.strategies.memory.schedule import Action, candidates

every_strategy = pytest.mark.parametrize("name", [*STRATEGIES, "exhaustive"])
every_step = pytest.mark.parametrize("step", ODD_STEPS)


def strategy(name: str):
    return Exhaustive() if name == "exhaustive" else STRATEGIES[name]


@every_strategy
@pytest.mark.parametrize("memory_bytes", [-1, math.nan, 1e9, 2**61, 10**30, "8GiB"], ids=str)
def test_a_memory_limit_that_is_none_is_refused_by_its_value(name: str, memory_bytes) -> None:
    with pytest.raises(StepsimError, match="memory limit: must be whole bytes"):
        propose(strategy(name), chain(3), memory_bytes)


@every_strategy
@pytest.mark.parametrize("seconds", [-1.0, -1e-9, math.nan, math.inf, 1e12])
def test_a_time_limit_that_is_none_is_refused_by_its_value(name: str, seconds: float) -> None:
    with pytest.raises(StepsimError, match=r"time limit: must be 0 to 1e\+09 seconds, got "):
        propose(strategy(name), chain(3), 100, time_limit_s=seconds)


@every_step
@pytest.mark.parametrize("name", STRATEGIES)
def test_an_odd_step_has_a_plan_that_keeps_its_word_and_a_smallest_limit(name: str, step: str) -> None:
    """Within that limit it fits, and with one byte less it does not."""
    workload = ODD_STEPS[step]()

    def at(memory_bytes: int, time_limit_s: float = 60.0) -> Proposal:
        return propose(strategy(name), workload, memory_bytes, time_limit_s=time_limit_s)

    nothing, plenty = at(0), at(2 * peak_bytes(workload, {}))
    least = least_memory(at, nothing, 0, 60.0)

    assert least is not None
    assert least.exact
    for proposal in (nothing, plenty, at(least.memory_bytes)):
        assert proposal.predicted_peak_bytes == memory_profile(proposal.plan).peak_bytes("gpu0")
    assert (nothing.feasible, plenty.feasible) == (False, True)
    assert at(least.memory_bytes).feasible
    assert not at(least.memory_bytes - 1).feasible


@every_strategy
def test_what_cannot_be_recomputed_is_not(name: str) -> None:
    workload = ODD_STEPS["nothing can be recomputed"]()

    proposal = propose(strategy(name), workload, 41)

    again = {tensor for tensor, action in decisions(proposal.plan).items() if action is Action.RECOMPUTE}
    assert again.isdisjoint(candidates(workload))


@every_strategy
def test_without_any_time_there_is_a_plan_and_it_says_whether_it_fits(name: str) -> None:
    workload = chain(8)
    limit_bytes = peak_bytes(workload, {}) - 11

    proposal = propose(strategy(name), workload, limit_bytes, time_limit_s=0.0)

    assert proposal.feasible == (memory_profile(proposal.plan).peak_bytes("gpu0") <= limit_bytes)
    if proposal.complete:  # then time played no part
        assert proposal.plan == propose(strategy(name), workload, limit_bytes).plan


SEARCHES = ["greedy", "home", "home-extended", "capuchin-best", "checkmate", "checkmate-rounded", "refined"]


@pytest.mark.parametrize("name", SEARCHES)
def test_a_search_without_any_time_is_marked(name: str) -> None:
    assert not propose(strategy(name), chain(8), 61, time_limit_s=0.0).complete


@pytest.mark.parametrize("name", ["vdnn-dynamic", "refined"])
def test_a_search_compares_plans_that_exceed_the_limit_so_they_are_scored(name: str) -> None:
    """The step that keeps everything is one of them."""
    workload, costs = chain(6), GivenCosts(seconds={f"{kind}{i}": 1.0 for kind in "FB" for i in range(6)} | {"L": 1.0})
    peaks: list[int] = []

    def evaluate(plan):
        peaks.append(memory_profile(plan).peak_bytes("gpu0"))
        return report(simulate(plan, MACHINE, costs), plan)

    STRATEGIES[name].plan(workload, MACHINE, costs, memory_bytes=61, evaluate=evaluate, time_limit_s=60)

    assert max(peaks) == peak_bytes(workload, {}) > 61


def steps_down(peaks: dict[int, int], complete: bool = True):
    """A search that finds the peak of the largest key that is within the limit, and below all of them the least."""

    def at(memory_bytes: int, time_limit_s: float = 60.0) -> Proposal:
        found = max((limit for limit in peaks if limit <= memory_bytes), default=min(peaks))
        proposal = propose(STRATEGIES["keep-all"], chain(1), 100)
        return Proposal(
            strategy="by hand",
            plan=proposal.plan,
            feasible=peaks[found] <= memory_bytes,
            complete=complete,
            predicted_s=1.0,
            predicted_peak_bytes=peaks[found],
            search_seconds=0.0,
        )

    return at


@pytest.mark.parametrize(
    ("peaks", "least"),
    [({0: 50}, 50), ({0: 90, 50: 50}, 50), ({0: 50, 50: 70, 70: 70}, 70), ({0: 1000, 37: 37, 200: 180}, 37)],
    ids=["its peak", "less than its peak", "more than its peak", "far below"],
)
def test_the_smallest_limit_is_found_from_above_and_from_below(peaks: dict[int, int], least: int) -> None:
    search = steps_down(peaks)

    assert least_memory(search, search(10), 10, 60.0) == LeastMemory(memory_bytes=least, exact=True)


def short_of_host(fits_bytes: int, peak_bytes: int):
    """A search for which the host is too small below ``fits_bytes``; what it finds is within the limit in any case."""

    def at(memory_bytes: int, time_limit_s: float = 60.0) -> Proposal:
        found = propose(STRATEGIES["keep-all"], chain(1), 100)
        peak = min(memory_bytes, peak_bytes)
        return replace(found, feasible=memory_bytes >= fits_bytes, predicted_peak_bytes=peak)

    return at


@pytest.mark.parametrize(("fits_bytes", "peak_bytes"), [(50, 90), (90, 90), (100, 90), (11, 10)])
def test_where_the_host_is_too_small_the_limit_is_the_smallest_that_leaves_enough_on_the_device(
    fits_bytes: int, peak_bytes: int
) -> None:
    search = short_of_host(fits_bytes, peak_bytes)

    least = least_memory(search, search(10), 10, 60.0, most_bytes=1000)

    assert least == LeastMemory(memory_bytes=fits_bytes, exact=True)


@pytest.mark.parametrize("limit_bytes", [10, 1000, 2000])
def test_where_the_host_is_too_small_for_any_limit_there_is_no_smallest(limit_bytes: int) -> None:
    search = short_of_host(10**9, 90)

    assert least_memory(search, search(limit_bytes), limit_bytes, 60.0, most_bytes=1000) is None


def test_a_limit_that_the_host_rules_out_is_found_to_be_none_after_one_that_the_device_does() -> None:
    """Within 10 bytes it holds 50; within 50, 40 and too much on the host, as within all."""
    found = propose(STRATEGIES["keep-all"], chain(1), 100)

    def at(memory_bytes: int, time_limit_s: float = 60.0) -> Proposal:
        return replace(found, feasible=False, predicted_peak_bytes=50 if memory_bytes < 50 else 40)

    assert least_memory(at, at(10), 10, 60.0) is None


def test_a_smallest_limit_from_searches_that_were_stopped_is_not_called_exact() -> None:
    search = steps_down({0: 50}, complete=False)

    assert least_memory(search, search(10), 10, 60.0) == LeastMemory(memory_bytes=50, exact=False)


def test_without_time_to_look_further_a_limit_that_works_is_told() -> None:
    search = steps_down({0: 1000, 37: 37})

    assert least_memory(search, search(10), 10, 0.0) == LeastMemory(memory_bytes=1000, exact=False)
