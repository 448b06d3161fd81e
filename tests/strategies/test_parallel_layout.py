"""Steps on several devices: what they take, against closed forms, and what is refused."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from parallel_steps import FREE, WIDTH, graphs, rows_of, tower, tower_costs, unit_costs
from small_machines import cpu, gpus

from stepsim.errors import MachineError, PlanError
from stepsim.machines import Machine
from stepsim.plan import NONE, TaskKind
from stepsim.plan.check import check_plan
from stepsim.simulator import simulate
from stepsim.strategies.parallel import Layout, data_parallel, lay_out
from stepsim.strategies.parallel.schedule import SCHEDULES
from stepsim.strategies.parallel.sharding import reduced_tensors
from stepsim.strategies.parallel.traffic import stages_of
from stepsim.workloads import Phase
from stepsim.workloads.shapes import transformer

WEIGHT_BYTES = 2 * WIDTH * WIDTH


def small_transformer(layers=2, batch=8):
    return transformer(layers=layers, hidden=16, sequence=8, batch=batch, vocabulary=32)


@pytest.mark.parametrize("schedule", ["1f1b", "gpipe"])
@pytest.mark.parametrize(("p", "m"), [(1, 1), (2, 1), (2, 4), (4, 4), (4, 8), (3, 12), (4, 2)])
def test_equal_stages_idle_for_p_minus_1_of_m_microbatches(schedule, p, m):
    """Where communication is free, the step takes (m + p - 1) (forward + backward) of one microbatch on one stage.

    0  F0 F1       B0.. F2 B1.. F3 B2..    B3..
    1     F0 B0.. F1 B1.. F2 B2.. F3 B3..
    """
    machine = gpus(p, bandwidth_bytes_per_s=FREE)
    plan = lay_out(tower(p), machine, Layout(pipeline=p, microbatches=m, schedule=schedule))

    timeline = simulate(plan, machine, tower_costs(linear=1.0, linear_input=2.0))

    assert timeline.makespan_s == pytest.approx((m + p - 1) * 3.0, rel=1e-12)


def test_a_microbatch_alone_waits_for_each_transfer():
    """p ops forward, p backward, the first weight's gradient and its update; between neighbours c both ways."""
    p, c = 4, 0.25
    machine = gpus(p, bandwidth_bytes_per_s=24 * WIDTH * 2 / c)
    plan = lay_out(tower(p), machine, Layout(pipeline=p))

    timeline = simulate(plan, machine, unit_costs(plan))

    assert timeline.makespan_s == pytest.approx(p + p + 1 + 1 + 2 * (p - 1) * c, rel=1e-12)


def test_a_full_pipeline_takes_what_its_slowest_stage_computes():
    """Transfers of c hide behind it, but for the first and the last one.

    0   F0 F1 F2 ...                                             B6  B7
    1      c F0.. F1.. F2.. ...   B0.. B1.. ...              B7.. c       1 + c + m (2 + 2) + c + 1
    """
    m, c = 8, 0.5
    machine = gpus(2, bandwidth_bytes_per_s=24 // m * WIDTH * 2 / c)
    plan = lay_out(tower(3), machine, Layout(pipeline=2, microbatches=m, schedule="gpipe"))

    timeline = simulate(plan, machine, tower_costs(linear=1.0, linear_input=1.0))

    assert stages_of(tower(3), 2)[0].ops[Phase.FORWARD] == (0,)
    assert timeline.makespan_s == pytest.approx(1 + c + m * (2 + 2) + c + 1, rel=1e-12)


@pytest.mark.parametrize("reduce_s", [0.5, 2.0, 3.0])
def test_a_data_parallel_step_is_compute_and_the_exposed_all_reduces(reduce_s):
    """Each layer's backward takes 2 and fills a bucket, which two devices all-reduce in a: as much as a layer or more.

    compute  F F F B3.. B2.. B1..
    data               a3   a2   a1        F n + 2 + (n - 1) max(2, a) + a
    """
    n = 3
    machine = gpus(2, bandwidth_bytes_per_s=WEIGHT_BYTES / reduce_s)
    plan = lay_out(tower(n), machine, Layout(data=2, bucket_bytes=1))

    timeline = simulate(plan, machine, tower_costs(linear_input=1.0, linear_weight=1.0))

    expected_s = n + 2 + (n - 1) * max(2.0, reduce_s) + reduce_s
    assert timeline.makespan_s == pytest.approx(expected_s, rel=1e-12)


def test_one_bucket_for_all_gradients_overlaps_nothing():
    n, reduce_s = 3, 0.5
    machine = gpus(2, bandwidth_bytes_per_s=WEIGHT_BYTES / reduce_s)
    plan = data_parallel(tower(n), machine)

    timeline = simulate(plan, machine, tower_costs(linear_input=1.0, linear_weight=1.0))

    assert timeline.makespan_s == pytest.approx(n + 2 * n + n * reduce_s, rel=1e-12)


def test_only_the_last_microbatch_reduces_gradients():
    plan = lay_out(tower(3), gpus(2), Layout(data=2, microbatches=4, bucket_bytes=2 * WEIGHT_BYTES))

    reduces = [row for row in rows_of(plan, TaskKind.COLLECTIVE) if plan.tasks.device[row] == 0]
    last_forward = max(row for row in range(len(plan) // 2) if plan.work.kind[plan.tasks.work[row]] == "linear")

    assert plan.tasks.size_bytes[reduces].tolist() == [2 * WEIGHT_BYTES, WEIGHT_BYTES]
    assert min(reduces) > last_forward


@pytest.mark.parametrize("reduce_s", [0.75, 3.0])
def test_a_tensor_parallel_step_waits_for_its_all_reduces(reduce_s):
    """Two a layer forward, which nothing hides; two backward and that of the head, beside a weight's gradient of 1."""
    workload = small_transformer(layers=3)
    machine = gpus(2, bandwidth_bytes_per_s=8 * 8 * 16 * 2 / reduce_s)
    plan = lay_out(workload, machine, Layout(tensor=2))

    timeline = simulate(plan, machine, unit_costs(plan))

    exposed_s = 6 * reduce_s + 7 * max(0.0, reduce_s - 1)
    assert timeline.makespan_s == pytest.approx(len(workload.ops) + exposed_s, rel=1e-12)


@given(graphs(), st.data())
@settings(max_examples=60, deadline=None)
def test_any_layout_of_any_graph_passes_the_self_check_and_ends(workload, data):
    num_forward = sum(op.phase is Phase.FORWARD for op in workload.ops)
    layout = Layout(
        data=data.draw(st.integers(1, 2)),
        tensor=data.draw(st.integers(1, 2)),
        pipeline=data.draw(st.integers(1, min(4, num_forward))),
        microbatches=data.draw(st.sampled_from([1, 2, 3, 6])),
        schedule=data.draw(st.sampled_from(sorted(SCHEDULES))),
        bucket_bytes=data.draw(st.sampled_from([1, 100])),
    )
    machine = gpus(layout.num_devices, bandwidth_bytes_per_s=FREE)

    plan = lay_out(workload, machine, layout)
    check_plan(plan)
    timeline = simulate(plan, machine, unit_costs(plan))

    assert len(plan) == num_rows(workload, layout)
    busiest_s = max(Counter(plan.tasks.device[rows_of(plan, TaskKind.COMPUTE)].tolist()).values())
    assert timeline.makespan_s >= busiest_s * (1 - 1e-12)


def num_rows(workload, layout):
    """Ranks x (microbatches x (ops and all-reduces forward and backward, sends, receives) + buckets + updates)."""
    reduced = reduced_tensors(workload) if layout.tensor > 1 else frozenset()
    total = 0
    for stage in stages_of(workload, layout.pipeline):
        passes = [*stage.ops[Phase.FORWARD], *stage.ops[Phase.BACKWARD]]
        sends = sum(len(tensors) for after in stage.sends.values() for tensors in after.values())
        receives = sum(len(tensors) for tensors in stage.receives.values())
        reduces = sum(tensor in reduced for index in passes for tensor in workload.ops[index].outputs)
        gradients = [t for i in passes for t in workload.ops[i].outputs if t in workload.gradients.values()]
        sizes = [-(-workload.tensors[tensor].size_bytes // layout.tensor) for tensor in gradients]
        buckets = num_buckets(sizes, layout.bucket_bytes) if layout.data > 1 else 0
        rows = layout.microbatches * (len(passes) + sends + receives + reduces) + buckets
        total += rows + len(stage.ops[Phase.UPDATE])
    return layout.data * layout.tensor * total


def num_buckets(sizes, bucket_bytes):
    num, filled = 0, 0
    for size in sizes:
        filled += size
        if filled >= bucket_bytes:
            num, filled = num + 1, 0
    return num + (filled > 0)


def test_the_parts_of_all_devices_are_the_whole_work():
    workload = small_transformer(batch=16)

    plan = lay_out(workload, gpus(8), Layout(data=2, tensor=2, pipeline=2, microbatches=4))

    works = plan.tasks.work[rows_of(plan, TaskKind.COMPUTE)]
    assert plan.work.flop[works].sum() == workload.flop


def test_whole_ops_are_those_of_the_workload_and_parts_stand_for_none():
    workload = tower(2)
    whole = lay_out(workload, gpus(1), Layout())
    parts = lay_out(workload, gpus(1), Layout(microbatches=2))

    assert set(whole.work.signature) == {op.signature for op in workload.ops}
    assert whole.work.bytes_read[whole.tasks.work].tolist() == [op.bytes_read for op in workload.ops]
    named = dict(zip(parts.work.kind, parts.work.signature, strict=True))
    assert named["linear"] == ""
    assert named["adam"] != ""


def test_weights_count_in_full_for_each_microbatch_and_gradients_are_read_to_be_added_to():
    """x of 24 x 4 tokens of 8 bytes and W of 4 x 4 x 2; dW reads x and dy, and itself from the second microbatch on."""
    plan = lay_out(tower(1), gpus(1), Layout(microbatches=2))

    read, buffers = {}, {}
    for row in rows_of(plan, TaskKind.COMPUTE):
        work, task = plan.tasks.work[row], plan.task(row)
        read.setdefault(task.work, []).append(int(plan.work.bytes_read[work]))
        buffers.setdefault(task.work, []).append((task.reads, task.writes))

    assert read["linear"] == [24 * 4 * 8 // 2 + WEIGHT_BYTES] * 2
    assert read["linear_weight"] == [24 * 4 * 8 // 2, 24 * 4 * 8 // 2 + WEIGHT_BYTES]
    gradient = "d layer0.weight from layer0"
    assert buffers["linear_weight"] == [(("tokens",), (gradient,)), (("tokens", gradient), (gradient,))]


def test_teams_and_peers_follow_the_order_of_the_machine():
    """Tensor ranks next to each other, then data ranks, then stages.

    stage 0   data 0: gpu0 gpu1   data 1: gpu2 gpu3
    stage 1   data 0: gpu4 gpu5   data 1: gpu6 gpu7
    """
    plan = lay_out(small_transformer(), gpus(8), Layout(data=2, tensor=2, pipeline=2))

    routes = zip(plan.routes.source.tolist(), plan.routes.destination.tolist(), strict=True)
    tensor_teams, data_teams = [[0, 1], [2, 3], [4, 5], [6, 7]], [[0, 2], [1, 3], [4, 6], [5, 7]]
    assert plan.devices.name == tuple(f"gpu{i}" for i in range(8))
    assert plan.devices.process.tolist() == plan.threads.process.tolist() == list(range(8))
    assert plan.collectives.team.to_lists() == tensor_teams + data_teams
    assert set(routes) == {(i, i + 4) for i in range(4)} | {(i + 4, i) for i in range(4)}
    members = plan.tasks.collective != NONE
    for row in np.flatnonzero(members):
        team = data_teams if plan.streams.name[plan.tasks.stream[row]] == "data" else tensor_teams
        assert plan.collectives.team[plan.tasks.collective[row]].tolist() in team


def test_all_ranks_of_a_stage_do_the_same_at_the_same_time():
    machine = gpus(8, bandwidth_bytes_per_s=1e4)
    plan = lay_out(small_transformer(), machine, Layout(data=2, tensor=2, pipeline=2, microbatches=2))

    timeline = simulate(plan, machine, unit_costs(plan))

    for stage in range(2):
        ranks = [np.flatnonzero(plan.tasks.device == 4 * stage + rank) for rank in range(4)]
        for rows in ranks[1:]:
            assert plan.tasks.kind[rows].tolist() == plan.tasks.kind[ranks[0]].tolist()
            assert timeline.spans.start_s[rows] == pytest.approx(timeline.spans.start_s[ranks[0]], rel=1e-9)


@pytest.mark.parametrize("factory", ["small_transformer", "small_resnet"])
def test_a_captured_step_is_laid_out_like_any_other(factory):
    """One row for each op where nothing is divided; two stages take less than two microbatches one after the other."""
    from stepsim.workloads import models
    from stepsim.workloads.capture import capture

    workload = capture(getattr(models, factory), 8, factory).workload

    alone = lay_out(workload, gpus(1), Layout())
    machine = gpus(8, bandwidth_bytes_per_s=FREE)
    divided = lay_out(workload, machine, Layout(data=2, tensor=2, pipeline=2, microbatches=2))

    assert len(alone) == len(workload.ops)
    assert reduced_tensors(workload)
    assert simulate(divided, machine, unit_costs(divided)).makespan_s < 2 * len(workload.ops)


def test_steps_of_a_pipeline_follow_each_other():
    """The first stage, which begins the next step, is the last to end: steps do not overlap."""
    p, m = 2, 4
    machine = gpus(p, bandwidth_bytes_per_s=FREE)
    plan = lay_out(tower(p), machine, Layout(pipeline=p, microbatches=m))

    one, three = (simulate(plan.repeat(steps), machine, tower_costs()).makespan_s for steps in (1, 3))

    assert three == pytest.approx(3 * one, rel=1e-12)


REFUSED_LAYOUTS = {
    "data": (0, "layout: data must be a whole number >= 1, got 0"),
    "tensor": (-1, "layout: tensor must be a whole number >= 1, got -1"),
    "pipeline": (1.5, "layout: pipeline must be a whole number >= 1, got 1.5"),
    "microbatches": (True, "layout: microbatches must be a whole number >= 1, got True"),
    "bucket_bytes": (0, "layout: bucket_bytes must be a whole number >= 1, got 0"),
    "schedule": ("zb", "layout: schedule must be one of 1f1b, gpipe, got 'zb'"),
}


@pytest.mark.parametrize("name", REFUSED_LAYOUTS)
def test_a_layout_without_meaning_is_refused(name):
    value, message = REFUSED_LAYOUTS[name]

    with pytest.raises(PlanError) as refusal:
        Layout(**{name: value})

    assert str(refusal.value) == message


def test_a_layout_of_another_size_than_the_machine_is_refused():
    with pytest.raises(MachineError) as refusal:
        lay_out(tower(2), gpus(3), Layout(data=2, pipeline=2))

    assert str(refusal.value) == "layout: data 2 x tensor 1 x pipeline 2 = 4 GPUs, machine 'small' has 3"


def test_a_machine_without_gpus_is_refused():
    with pytest.raises(MachineError, match="machine 'small' has 0"):
        data_parallel(tower(2), cpu())


@pytest.mark.parametrize(("data", "microbatches"), [(5, 1), (2, 5), (2, 24)])
def test_a_batch_that_does_not_divide_is_refused(data, microbatches):
    product = data * microbatches

    with pytest.raises(PlanError, match=f"layout: data x microbatches = {product} must divide the batch of 24"):
        lay_out(tower(2), gpus(data), Layout(data=data, microbatches=microbatches))


def test_more_stages_than_forward_ops_are_refused():
    with pytest.raises(PlanError, match="pipeline: must be at most 2, the forward ops of the workload, got 3"):
        lay_out(tower(2), gpus(3), Layout(pipeline=3))


def test_a_machine_whose_gpus_do_not_reach_each_other_is_refused_when_it_runs():
    devices = gpus(2).devices
    plan = data_parallel(tower(2), Machine(name="islands", devices=devices))

    with pytest.raises(MachineError, match="no route from 'gpu0' to 'gpu1'"):
        simulate(plan, Machine(name="islands", devices=devices), unit_costs(plan))
