"""What vDNN moves, when, and how long its layers take, on a chain of convolutions."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from proposing import MACHINE, count, propose
from random_workloads import workloads
from small_machines import device, machine_of
from small_networks import ADDITION, CONVOLUTION, LINEAR, network

from stepsim.costmodels import GivenCosts
from stepsim.machines import DeviceKind
from stepsim.plan import Plan, TaskKind
from stepsim.report import Report, report
from stepsim.simulator import simulate
from stepsim.strategies import KeepAll
from stepsim.strategies.memory.lowering import plan_for_rows
from stepsim.strategies.memory.rows import settle
from stepsim.strategies.memory.vdnn import VDnn, VDnnDynamic
from stepsim.workloads import Phase, Workload


def offloaded(vdnn: VDnn, workload: Workload) -> list[int]:
    """Layers whose output goes out, in order."""
    return [row.subject - 1 for row in vdnn.rows(workload) if row.kind is TaskKind.SWAP_OUT]


@pytest.mark.parametrize(
    ("inputs", "expected"),
    [("all", [0, 1, 2]), ("conv", [0, 2]), ("single-conv", [0, 2]), ("every", [0, 2, 3, 4])],
)
def test_each_choice_offloads_the_inputs_that_it_names(inputs, expected) -> None:
    """The output of the last layer is read by the loss; the input of the step is no activation."""
    workload = network("aten.relu", CONVOLUTION, ADDITION, CONVOLUTION, LINEAR)

    assert offloaded(VDnn(inputs=inputs), workload) == expected


def test_an_input_that_two_layers_read_goes_out_with_the_last_and_not_as_a_single_one() -> None:
    workload = network("aten.relu", CONVOLUTION, CONVOLUTION)
    twice = replace(workload.ops[2], inputs=(*workload.ops[2].inputs, 1))
    workload = replace(workload, ops=(*workload.ops[:2], twice, *workload.ops[3:]))

    rows = VDnn(inputs="conv").rows(workload)
    kinds = [(row.kind, row.subject) for row in rows if row.kind is not TaskKind.RELEASE]

    assert kinds.index((TaskKind.SWAP_OUT, 1)) == kinds.index((TaskKind.COMPUTE, 2)) - 2
    assert offloaded(VDnn(inputs="single-conv"), workload) == [1]


@pytest.mark.parametrize("op_s", [0.25, 1.0, 4.0])
def test_a_layer_that_offloads_takes_as_long_as_its_copy_if_that_is_longer(op_s: float) -> None:
    """Forward: the first layer offloads nothing, the others their inputs, 1 s each. Every layer back brings one in."""
    layers = 4
    workload = network(*[CONVOLUTION] * layers)
    costs = GivenCosts(seconds={op.kind: op_s for op in workload.ops})
    plan = plan_for_rows(workload, MACHINE, settle(workload, VDnn(inputs="conv").rows(workload), 0))

    makespan_s = simulate(plan, MACHINE, costs).makespan_s

    forward_s = 2 * op_s + (layers - 1) * max(op_s, 1.0)
    backward_s = (layers - 1) * max(op_s, 1.0) + op_s
    assert makespan_s == pytest.approx(forward_s + backward_s)


def test_what_comes_back_is_one_layer_ahead_and_stops_at_a_convolution() -> None:
    workload = network(CONVOLUTION, "aten.relu", CONVOLUTION, "aten.relu", CONVOLUTION)
    rows = VDnn(inputs="conv").rows(workload)

    back = [
        (row.kind, workload.ops[row.subject].name if row.kind is TaskKind.COMPUTE else row.subject)
        for row in rows
        if row.kind is TaskKind.SWAP_IN
        or (row.kind is TaskKind.COMPUTE and workload.ops[row.subject].phase is Phase.BACKWARD)
    ]

    computes, swaps = TaskKind.COMPUTE, TaskKind.SWAP_IN
    assert back == [
        (swaps, 4),
        (computes, "B4"),
        (swaps, 2),
        (computes, "B3"),
        (computes, "B2"),
        (computes, "B1"),
        (computes, "B0"),
    ]


def test_the_dynamic_choice_moves_as_little_as_fits() -> None:
    workload = network(*[CONVOLUTION, "aten.relu"] * 5)

    enough = [propose(vdnn, workload, 0).predicted_peak_bytes for vdnn in (KeepAll(), VDnn(inputs="conv"), VDnn())]

    moved = [count(propose(VDnnDynamic(), workload, limit), TaskKind.SWAP_OUT) for limit in enough]

    assert enough == sorted(set(enough), reverse=True)
    assert moved == [0, 4, 10]


def test_the_dynamic_choice_looks_no_further_than_the_first_that_fits() -> None:
    """Where everything can stay, a host is not needed; and what is not chosen is not simulated."""
    workload, simulated = network(*[CONVOLUTION] * 3), list[Plan]()
    costs = GivenCosts(seconds={op.kind: 1.0 for op in workload.ops})
    machine = machine_of([device("gpu0", DeviceKind.GPU)])

    def evaluate(plan: Plan) -> Report:
        simulated.append(plan)
        return report(simulate(plan, machine, costs), plan)

    found = VDnnDynamic().plan(workload, machine, costs, memory_bytes=1000, evaluate=evaluate, time_limit_s=60.0)

    assert (found.feasible, count(found, TaskKind.SWAP_OUT)) == (True, 0)
    assert simulated == [found.plan]


@settings(max_examples=40, deadline=None)
@given(workload=workloads())
def test_any_graph_has_a_plan_that_keeps_its_word(workload: Workload) -> None:
    ops = [replace(op, kind=CONVOLUTION) if op.phase is Phase.FORWARD else op for op in workload.ops]
    for vdnn in (VDnn(), VDnn(inputs="conv"), VDnn(inputs="every"), VDnnDynamic()):
        proposal = propose(vdnn, replace(workload, ops=tuple(ops)), 50)

        assert proposal.feasible == (proposal.predicted_peak_bytes <= 50)


def test_what_a_layer_writes_in_place_leaves_after_it() -> None:
    workload = network(CONVOLUTION, CONVOLUTION, "aten.relu", in_place=frozenset({1}))

    rows = [(row.kind, row.subject) for row in VDnn(inputs="all").rows(workload) if row.kind is not TaskKind.RELEASE]

    assert rows[1:5] == [
        (TaskKind.COMPUTE, 1),
        (TaskKind.SWAP_OUT, 1),
        (TaskKind.SWAP_OUT, 2),
        (TaskKind.COMPUTE, 2),
    ]
