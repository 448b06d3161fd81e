"""A plan made from a workload of another batch is the plan of the step at that batch."""

from small_plans import UNLIMITED
from tiny_models import tiny_transformer

from stepsim.executor import BoundProgram, Executor
from stepsim.executor.eager import eager_step, max_abs_difference
from stepsim.machines import this_cpu
from stepsim.strategies.memory.lowering import plan_for_policy
from stepsim.workloads.capture import capture_workload


def test_a_plan_for_another_batch_than_was_captured_runs_there_and_equals_eager_pytorch():
    workload = capture_workload(tiny_transformer, 2, "step").at_batch(5)
    plan = plan_for_policy(workload, this_cpu(), {}, UNLIMITED)
    bound = BoundProgram.of(tiny_transformer, 5, "step")
    reference = eager_step(bound)

    execution = Executor(plan, bound).run()

    assert max_abs_difference(execution, reference) == 0.0
