"""The steps of the control experiment on vDNN, its choice of algorithms, and its smallest run."""

import pandas as pd
import pytest

from experiments import vdnn_losses
from experiments.control_costs import unlimited
from experiments.control_setting import VDNN_MACHINE, VDNN_MEASURED
from experiments.vdnn_losses import Fast, claims, downgraded, trained
from experiments.vdnn_steps import Step, input_bytes, is_convolution
from stepsim.machines import load_machine
from stepsim.strategies import KeepAll
from stepsim.workloads.storage import RELU

ALEXNET = Step(model="alexnet", batch=128)


def test_the_step_takes_what_was_measured_with_and_without_workspaces() -> None:
    measured = VDNN_MEASURED["alexnet"]

    assert trained(ALEXNET, KeepAll(), ALEXNET.layers).step_s == pytest.approx(128 * measured.fast_s)
    slow_s = trained(ALEXNET, KeepAll(), Fast()).step_s
    assert slow_s == pytest.approx(128 * measured.fast_s * measured.slowdown, rel=1e-6)


def test_a_workspace_is_a_share_of_the_input_in_all_three_ops_of_a_fast_layer() -> None:
    step = Step(model="alexnet", batch=128, workspace_share=2.0)
    layer, size_bytes = next(iter(input_bytes(step.workload).items()))

    workload = step.with_fast({layer})

    ops = [op for op in workload.ops if is_convolution(op) and op.module == layer]
    assert {workload.tensors[op.outputs[-1]].size_bytes for op in ops} == {2 * size_bytes}
    assert len(workload.tensors) == len(step.workload.tensors) + len(ops)


def test_a_relu_on_a_convolution_writes_no_tensor_of_its_own() -> None:
    relus = [op for op in ALEXNET.workload.ops if op.kind == RELU]

    assert relus
    assert all(op.outputs == () and op.mutates == op.inputs[:1] for op in relus)


def test_where_everything_fits_no_layer_is_downgraded_and_where_it_does_not_some_are() -> None:
    large = Step(model="vgg16", batch=256)

    assert downgraded(ALEXNET, "conv") == ALEXNET.layers
    found = downgraded(large, "conv")
    assert found is not None
    assert Fast() < found < large.layers


def test_memory_without_limit_leaves_the_rest_of_the_machine_as_it_is() -> None:
    machine = load_machine(VDNN_MACHINE)

    assert unlimited(machine).links == machine.links


@pytest.mark.parametrize(
    ("loss", "speed", "feasible", "holds"),
    [(0.56, 0.96, True, [True, True]), (0.6, 0.94, True, [False, False]), (0.56, 0.96, False, [True, False])],
)
def test_claims_fail_outside_their_bands(loss: float, speed: float, feasible: bool, holds: list[bool]) -> None:
    speeds = {"all(m)": 1 - loss, "conv(m)": 1 - loss, "dynamic": speed}
    setting = {"workspace_share": 1.0, "slowdown_factor": 1.0, "feasible": feasible}
    table = pd.DataFrame([setting | {"policy": policy, "speed": of} for policy, of in speeds.items()])

    assert [claim.holds for claim in claims(table, False)] == [holds[0], *holds]


def test_a_quick_run_writes_table_and_picture_and_its_claims_hold(tmp_path) -> None:
    found = vdnn_losses.run(tmp_path, quick=True)

    assert {path.name for path in tmp_path.iterdir()} == {"vdnn_losses.csv", "vdnn_losses.png"}
    assert [claim.claim for claim in found if not claim.holds] == []
