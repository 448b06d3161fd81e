"""Plans and inputs that the executor cannot run: one line that says what is wrong with which row."""

import dataclasses
from collections.abc import Callable

import numpy as np
import pytest
import torch
from small_plans import bound_to, plan_of, policy_of
from tiny_models import conv_net_with_bias, tiny_resnet, tiny_transformer, with_dropout

from stepsim.errors import PlanError, WorkloadError
from stepsim.executor import Executor, execute
from stepsim.plan import NONE, BufferTable, Plan, TaskKind
from stepsim.plan.builder import PlanBuilder
from stepsim.strategies.memory.schedule import Action


class OneRow:
    """A plan in the making for the conv net: its tables, and room for one row that goes wrong."""

    def __init__(self) -> None:
        self.bound = bound_to(conv_net_with_bias)
        self.builder = PlanBuilder()
        self.cpu, self.host = self.builder.device("cpu0"), self.builder.device("host")
        self.stream = self.builder.stream("compute", self.cpu)

    def work(self, **facts: object) -> int:
        return self.builder.work("work", **{"graph": self.bound.workload.graph_hash, "ops": (0,), **facts})

    def buffer(self, tensor: int = NONE) -> int:
        return self.builder.buffer(4, self.cpu, owner=self.stream, tensor=tensor)

    def inputs(self) -> list[int]:
        """Buffers of what the first op reads."""
        return [self.buffer(tensor) for tensor in self.bound.workload.ops[0].inputs]


def too_few_inputs(plan: OneRow) -> None:
    plan.builder.compute(plan.work(), plan.stream)


def too_few_outputs(plan: OneRow) -> None:
    plan.builder.compute(plan.work(), plan.stream, reads=plan.inputs())


def too_many_outputs(plan: OneRow) -> None:
    outputs = [plan.buffer() for _ in range(2)]
    plan.builder.compute(plan.work(), plan.stream, reads=plan.inputs(), writes=outputs, allocates=outputs)


def output_of_another_stream(plan: OneRow) -> None:
    (op, *_), tensors = plan.bound.workload.ops, plan.bound.workload.tensors
    foreign = plan.builder.stream("other", plan.cpu)
    size_bytes = tensors[op.outputs[0]].size_bytes
    made = plan.builder.buffer(size_bytes, plan.cpu, owner=foreign, tensor=op.outputs[0], name="made")
    plan.builder.compute(plan.work(), plan.stream, reads=plan.inputs(), writes=[made], allocates=[made])


def inputs_in_another_order(plan: OneRow) -> None:
    first, *others = plan.inputs()
    plan.builder.compute(plan.work(), plan.stream, reads=[*others, first])


def inputs_of_no_tensor(plan: OneRow) -> None:
    inputs = [plan.buffer() for _ in plan.inputs()]
    plan.builder.compute(plan.work(), plan.stream, reads=inputs)


def several_ops(plan: OneRow) -> None:
    plan.builder.compute(plan.work(ops=(0, 1)), plan.stream)


def no_op(plan: OneRow) -> None:
    plan.builder.compute(plan.work(ops=()), plan.stream)


def glue(plan: OneRow) -> None:
    plan.builder.compute(plan.builder.work("fill"), plan.stream)


def host_work(plan: OneRow) -> None:
    plan.builder.host(plan.builder.work("synchronise"))


def collective(plan: OneRow) -> None:
    plan.builder.collective("all_reduce", [0], plan.stream, plan.builder.group(), size_bytes=4)


def copy_on_the_device(plan: OneRow) -> None:
    plan.builder.copy(plan.buffer(), plan.buffer(), plan.stream)


def message(plan: OneRow) -> None:
    group, other = plan.builder.group(), plan.builder.stream("other", plan.cpu)
    plan.builder.send(plan.buffer(), plan.cpu, plan.stream, group)
    plan.builder.receive(plan.buffer(), plan.cpu, other, group)


def swap_in_of_what_was_on_the_host(plan: OneRow) -> None:
    plan.builder.swap_in(plan.builder.buffer(4, plan.host), plan.buffer(), plan.stream)


def another_graph(plan: OneRow) -> None:
    plan.builder.compute(plan.work(graph="f" * 64), plan.stream)


def no_graph(plan: OneRow) -> None:
    plan.builder.compute(plan.work(graph=""), plan.stream)


def a_second_device(plan: OneRow) -> None:
    plan.builder.stream("compute", plan.builder.device("cpu1"))


def nothing(plan: OneRow) -> None:
    pass


@pytest.mark.parametrize(
    ("add", "problem"),
    [
        (too_few_inputs, "row 0: reads 0 buffers, op 'convolution' takes 3"),
        (too_few_outputs, "row 0: makes 0 buffers, op 'convolution' gives 1"),
        (too_many_outputs, "row 0: makes 2 buffers, op 'convolution' gives 1"),
        (output_of_another_stream, "row 0: makes buffer 'made', which another stream owns"),
        (inputs_in_another_order, r"row 0: buffer 'b1' is \(6, 3, 3, 3\), where \(2, 3, 8, 8\) is read"),
        (inputs_of_no_tensor, "row 0: buffer 'b3' stands for no tensor of the graph"),
        (several_ops, "row 0: its work names 2 ops of the graph, the executor runs one"),
        (no_op, "row 0: its work names 0 ops of the graph, the executor runs one"),
        (glue, "row 0: its work names 0 ops of the graph, the executor runs one"),
        (host_work, "row 0: the executor of one device cannot run a host row"),
        (collective, "row 0: the executor of one device cannot run a collective row"),
        (copy_on_the_device, "row 0: the executor of one device cannot run a copy row"),
        (message, "row 0: the executor of one device cannot run a send row"),
        (swap_in_of_what_was_on_the_host, "row 0: swaps in what no row before it swaps out"),
        (another_graph, r"the plan is for graph f{12}, the module gives graph \w{12}"),
        (no_graph, r"the plan is for graph \(none\), the module gives graph \w{12}"),
        (a_second_device, "the executor runs one device, the plan has streams on 2"),
        (nothing, "the plan has no buffer of '.*', which the step is run for"),
    ],
    ids=lambda case: case.__name__ if callable(case) else "",
)
def test_a_row_that_the_executor_cannot_run_is_refused(add: Callable[[OneRow], None], problem: str) -> None:
    spoilt = OneRow()
    add(spoilt)
    plan = spoilt.builder.build()

    with pytest.raises(PlanError) as caught:
        Executor(plan, spoilt.bound)

    assert caught.match(f"^{problem}$")


def test_a_plan_of_another_module_is_refused() -> None:
    plan = plan_of(bound_to(conv_net_with_bias), {})

    with pytest.raises(PlanError, match=r"^the plan is for graph \w{12}, the module gives graph \w{12}$"):
        Executor(plan, bound_to(tiny_resnet))


def test_a_plan_of_another_batch_size_is_refused() -> None:
    plan = plan_of(bound_to(conv_net_with_bias, 2), {})
    module, inputs, optimizer = conv_net_with_bias(3)

    with pytest.raises(PlanError, match="the plan is for graph"):
        execute(plan, module, inputs, optimizer)


def with_tasks(plan: Plan, **columns: object) -> Plan:
    return dataclasses.replace(plan, tasks=dataclasses.replace(plan.tasks, **columns))


def test_a_plan_that_recomputes_what_was_never_drawn_is_refused() -> None:
    """No strategy makes one: the row of the dropout is relabelled."""
    bound = bound_to(with_dropout)
    plan = plan_of(bound, {})
    kind = plan.tasks.kind.copy()
    row = next(index for index, op in enumerate(bound.workload.ops) if op.random)
    kind[row] = TaskKind.RECOMPUTE

    with pytest.raises(PlanError, match=f"^row {row}: recomputes op '.*', whose random numbers no row .*draws$"):
        Executor(with_tasks(plan, kind=kind), bound)


@pytest.mark.parametrize("tensor", [NONE, "made by an op", 10**6])
def test_a_buffer_that_is_there_from_the_start_must_be_one_that_comes_from_outside(tensor: object) -> None:
    """A buffer like the first one is added, and no row knows it."""
    bound = bound_to(conv_net_with_bias)
    plan = plan_of(bound, {})
    added = {name: np.append(column, column[:1]) for name, column in plan.buffers.columns().items()}
    added["name"], added["role"] = (*plan.buffers.name, "extra"), (*plan.buffers.role, "activation")
    added["tensor"][-1] = bound.workload.ops[0].outputs[0] if isinstance(tensor, str) else tensor
    spoilt = dataclasses.replace(plan, buffers=BufferTable(**added))

    with pytest.raises(PlanError, match=r"^buffer 'extra' is there from the start, and its value comes from nowhere$"):
        Executor(spoilt, bound)


@pytest.mark.parametrize(
    ("inputs", "problem"),
    [
        (lambda tokens: (tokens,), "inputs: the step takes 2 tensors, got 1"),
        (lambda tokens: (tokens[:1], tokens), r"input 0: the step takes \(2, 8\) of torch.int64, got \(1, 8\) of .*"),
        (lambda tokens: (tokens, tokens.int()), r"input 1: the step takes .* of torch.int64, got .* of torch.int32"),
    ],
    ids=["number", "shape", "dtype"],
)
def test_inputs_unlike_those_of_the_capture_are_refused(inputs: Callable[..., object], problem: str) -> None:
    bound = bound_to(tiny_transformer)
    executor = Executor(plan_of(bound, policy_of(bound, Action.SWAP)), bound)

    with pytest.raises(WorkloadError, match=f"^{problem}$"):
        executor.run(inputs(torch.zeros(2, 8, dtype=torch.int64)))
