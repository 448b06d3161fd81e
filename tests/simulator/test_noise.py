"""Monte Carlo over the spread of costs."""

import numpy as np
import pytest
from small_machines import RowCosts, gpus

from stepsim.errors import OutOfMemoryError, StepsimError, StoppedError
from stepsim.plan.builder import PlanBuilder
from stepsim.simulator import simulate, step_times


def kernels(number=1, num_gpus=1):
    """``number`` kernels behind each other on each gpu."""
    builder = PlanBuilder()
    streams = [builder.stream("compute", builder.device(f"gpu{gpu}")) for gpu in range(num_gpus)]
    for stream in streams:
        for _ in range(number):
            builder.compute(builder.work("F"), stream)
    return builder.build()


def times(plan, costs, machine=None, *, num_runs=2000, seed=1):
    return step_times(
        plan, machine or gpus(), costs, num_runs=num_runs, generator=np.random.default_rng(seed), sharing="leftover"
    )


def test_without_spread_every_run_takes_what_the_step_takes():
    found = times(kernels(3), RowCosts(seconds=2.0), num_runs=5)

    assert found.seconds.tolist() == [6.0] * 5
    assert found.without_noise_s == 6.0


def test_the_times_of_one_kernel_are_lognormal_around_its_cost():
    """Median 2, and 68 % of the runs within one standard deviation of the logarithm."""
    found = times(kernels(), RowCosts(seconds=2.0, spread=0.25))

    quantiles = found.quantiles((0.1587, 0.5, 0.8413))
    assert list(quantiles.values()) == pytest.approx([2 * np.exp(-0.25), 2.0, 2 * np.exp(0.25)], rel=0.04)


def test_kernels_vary_each_for_itself():
    """The variance of a sum of 100 is 100 times that of one, so its spread is a tenth."""
    one = times(kernels(1), RowCosts(seconds=1.0, spread=0.2)).seconds
    many = times(kernels(100), RowCosts(seconds=1.0, spread=0.2)).seconds

    assert many.std() / many.mean() == pytest.approx(one.std() / one.mean() / 10, rel=0.1)


def test_the_slowest_of_many_devices_is_later_than_any_one_at_its_median():
    """That is why a synchronous step on many devices takes longer than its costs say."""
    found = times(kernels(1, num_gpus=16), RowCosts(seconds=1.0, spread=0.1), gpus(16))

    assert found.without_noise_s == 1.0
    assert found.quantiles((0.05,))[0.05] > 1.0


def test_members_of_a_group_vary_together_and_bytes_take_longer_too():
    builder = PlanBuilder()
    devices = [builder.device(f"gpu{gpu}") for gpu in range(2)]
    group = builder.group()
    for device in devices:
        builder.collective("all_reduce", devices, builder.stream("nccl", device), group, size_bytes=4)

    found = times(builder.build(), RowCosts(spread=0.3), gpus(2))

    assert found.without_noise_s == 4.0
    assert found.quantiles((0.5,))[0.5] == pytest.approx(4.0, rel=0.05)
    assert np.log(found.seconds).std() == pytest.approx(0.3, rel=0.1)


def test_the_same_seed_gives_the_same_times_and_another_gives_others():
    plan, costs = kernels(3), RowCosts(seconds=1.0, spread=0.2)

    assert times(plan, costs, num_runs=10).seconds.tolist() == times(plan, costs, num_runs=10).seconds.tolist()
    assert times(plan, costs, num_runs=10).seconds.tolist() != times(plan, costs, num_runs=10, seed=2).seconds.tolist()


def test_what_takes_no_noise_is_what_simulate_says():
    plan, costs = kernels(7), RowCosts(seconds=0.1, launch_s=0.03, spread=0.2)

    assert times(plan, costs, num_runs=1).without_noise_s == simulate(plan, gpus(), costs).makespan_s


def test_of_several_steps_the_times_are_those_of_one():
    plan, costs = kernels(2).repeat(4), RowCosts(seconds=1.0, spread=0.1)

    found = times(plan, costs, num_runs=50)

    assert found.without_noise_s == 2.0
    assert found.seconds.mean() == pytest.approx(2.0, rel=0.1)


def test_what_cannot_be_simulated_has_no_times():
    builder = PlanBuilder()
    gpu = builder.device("gpu0")
    builder.buffer(2, gpu, name="x")
    builder.compute(builder.work("F"), builder.stream("compute", gpu))
    plan = builder.build()

    with pytest.raises(OutOfMemoryError, match="out of memory on gpu0"):
        times(plan, RowCosts(), gpus(memory_bytes=1))
    with pytest.raises(StepsimError, match="unknown sharing 'equal'"):
        step_times(plan, gpus(), RowCosts(), num_runs=1, generator=np.random.default_rng(), sharing="equal")


def test_what_is_stopped_says_after_how_many_runs():
    def stop(done, total):
        if done == 3:
            raise KeyboardInterrupt

    with pytest.raises(StoppedError, match=r"^stopped after 2 of 10 runs with noise$"):
        step_times(kernels(), gpus(), RowCosts(), num_runs=10, generator=np.random.default_rng(), progress=stop)


def test_no_runs_are_refused():
    with pytest.raises(StepsimError, match="num_runs must be >= 1, got 0"):
        times(kernels(), RowCosts(seconds=1.0), num_runs=0)
