"""What the benchmarks time is what it says."""

import pytest

from benchmarks.engines import mixed_problem
from benchmarks.plans import EVERY_MECHANISM, KERNELS_ONLY
from stepsim.plan import TaskKind
from stepsim.plan.check import check_plan
from stepsim.simulator.compiled import CompiledEngine, is_free_of_contention
from stepsim.simulator.reference import run_reference


@pytest.mark.parametrize("num_devices", [1, 4, 16])
def test_the_mix_of_every_mechanism_is_a_plan_that_both_engines_run_alike(num_devices):
    problem = mixed_problem(2_000, num_devices, EVERY_MECHANISM)

    check_plan(problem.plan)

    assert CompiledEngine(problem).run().end_s.tolist() == run_reference(problem, "leftover").end_s.tolist()


def test_the_mix_has_the_shares_that_are_fixed():
    kind = mixed_problem(20_000, 16, EVERY_MECHANISM).plan.tasks.kind

    shares = {
        TaskKind.COMPUTE: 0.60,
        TaskKind.COPY: 0.15,
        TaskKind.COLLECTIVE: 0.10,
        TaskKind.HOST: 0.15,
    }
    assert {one: (kind == one).mean() for one in shares} == pytest.approx(shares, abs=0.01)


def test_kernels_alone_contend_for_nothing():
    assert is_free_of_contention(mixed_problem(2_000, 4, KERNELS_ONLY))
