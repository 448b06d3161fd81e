"""From a schedule to a plan: streams, buffers, work, and what waits for what."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_plans import costs_of
from random_workloads import steps
from small_machines import cpu, device, gpus, machine_of
from small_workloads import chain

from stepsim.costmodels import GivenCosts
from stepsim.errors import MachineError
from stepsim.machines import DeviceKind
from stepsim.plan import NONE, TaskKind
from stepsim.simulator import simulate
from stepsim.strategies.memory.lowering import computing_device, plan_for_policy
from stepsim.strategies.memory.rows import HOST_COPY
from stepsim.strategies.memory.schedule import Action, schedule

SWAP_FIRST = {1: Action.SWAP}


def test_moves_stand_on_streams_of_their_own_direction_and_the_rest_on_the_compute_stream() -> None:
    plan = plan_for_policy(chain(3), gpus(), SWAP_FIRST, 0)

    lanes = dict(zip(plan.row_names(), (plan.lane_names()[lane] for lane in plan.lane_of_rows()), strict=True))

    assert lanes.pop("swap out x0 on host") == "gpu0 d2h"
    assert lanes.pop("swap in x0#1") == "gpu0 h2d"
    assert set(lanes.values()) == {"gpu0 compute"}
    assert plan.streams.role == ("compute", "d2h", "h2d")


def test_each_copy_of_a_tensor_is_a_buffer_and_says_of_which() -> None:
    plan = plan_for_policy(chain(3), gpus(), {1: Action.SWAP, 2: Action.RECOMPUTE}, 0)
    buffers = plan.buffers

    names = {name: plan.devices.name[place] for name, place in zip(buffers.name, buffers.device, strict=True)}
    tensors = dict(zip(buffers.name, buffers.tensor.tolist(), strict=True))

    assert {name: names[name] for name in names if name.startswith(("x0", "x1"))} == {
        "x0": "gpu0",
        "x0 on host": "host",
        "x0#1": "gpu0",
        "x1": "gpu0",
        "x1#1": "gpu0",
    }
    assert {tensors[name] for name in ("x0", "x0 on host", "x0#1")} == {1}
    assert buffers.owner[buffers.name.index("x0 on host")] == NONE
    assert buffers.owner[buffers.name.index("x0#1")] == plan.streams.name.index("compute")


def test_moves_wait_for_what_they_read_and_are_waited_for_by_what_reads_them() -> None:
    """What allocates on a foreign stream, as the way in does, also waits for the last row of the owner stream.

    compute  F0 F1 .... free x0 F2 L B2 .... B1 B0
    d2h            out                        |
    h2d                                  in --'
    """
    plan = plan_for_policy(chain(3), gpus(), SWAP_FIRST, 0)
    made, read, out, free, before, back, reader = (
        plan.row_names().index(name)
        for name in ("F0 x0", "F1 x1", "swap out x0 on host", "release x0", "B2 g2", "swap in x0#1", "B0 g0")
    )

    needs = plan.tasks.dependencies.to_lists()

    assert {row: needs[row] for row in (read, out, free, back, reader)} == {
        read: [],
        out: [made],
        free: [out],
        back: [out, before],
        reader: [back],
    }


def test_ops_of_one_signature_share_one_piece_of_work_that_stands_for_the_first() -> None:
    workload = chain(3)
    first, second, *rest = workload.ops
    twin = replace(second, kind=first.kind, signature=first.signature)
    alike = replace(workload, ops=(first, twin, *rest))

    plan = plan_for_policy(alike, gpus(), {}, 0)

    assert plan.tasks.work[0] == plan.tasks.work[1]
    assert plan.work.ops[int(plan.tasks.work[0])].tolist() == [0]
    assert len(plan.work) == len(alike.ops) - 1
    assert set(plan.work.graph) == {alike.graph_hash}


def test_the_plan_is_for_the_first_device_that_computes() -> None:
    host_first = machine_of([device("host", DeviceKind.HOST), device("cpu0", DeviceKind.CPU)])

    assert [computing_device(machine) for machine in (gpus(2), cpu(), host_first)] == ["gpu0", "cpu0", "cpu0"]
    assert plan_for_policy(chain(2), gpus(2), {}, 0).devices.name == ("gpu0", "host")


def test_a_step_that_moves_nothing_needs_no_host() -> None:
    machine = machine_of([device("only", DeviceKind.GPU)])

    plan = plan_for_policy(chain(2), machine, {1: Action.RECOMPUTE}, 0)

    assert plan.devices.name == ("only",)
    assert TaskKind.RECOMPUTE in plan.tasks.kind


@pytest.mark.parametrize(
    ("kind", "problem"),
    [(DeviceKind.HOST, "has no device that computes"), (DeviceKind.GPU, "has no host device to swap to")],
)
def test_a_machine_that_lacks_a_device_is_refused(kind, problem) -> None:
    machine = machine_of([device("only", kind)])

    with pytest.raises(MachineError, match=f"^machine 'small' {problem}$"):
        plan_for_policy(chain(2), machine, SWAP_FIRST, 0)


@given(steps())
def test_a_plan_has_a_row_for_each_row_of_the_schedule_with_the_same_copies(step) -> None:
    workload, policy, memory_bytes = step
    rows = schedule(workload, policy, memory_bytes)

    plan = plan_for_policy(workload, gpus(), policy, memory_bytes)

    buffers, host = plan.buffers, plan.devices.name.index("host")
    tasks = plan.tasks
    assert tasks.kind.tolist() == [int(row.kind) for row in rows]
    for column in ("reads", "writes", "allocates", "releases"):
        for found, row in zip(getattr(tasks, column).to_lists(), rows, strict=True):
            wanted = [(tensor, number == HOST_COPY) for tensor, number in getattr(row, column)]
            assert [(int(buffers.tensor[b]), buffers.device[b] == host) for b in found] == wanted


@settings(max_examples=60)
@given(steps(), st.data())
def test_the_plan_of_any_policy_runs_to_its_end_on_a_gpu_and_keeps_the_invariants(step, data) -> None:
    """Three streams, a thread that takes time to launch, copies that take time by their bytes."""
    workload, policy, memory_bytes = step
    plan, machine = plan_for_policy(workload, gpus(), policy, memory_bytes), gpus()

    spans = simulate(plan, machine, data.draw(costs_of(plan))).spans

    start_s, end_s, needs = spans.start_s, spans.end_s, plan.tasks.dependencies
    assert (start_s[needs.owners()] >= end_s[needs.values]).all()
    for lane in range(len(plan.streams)):
        on_lane = spans.lane == lane
        assert (start_s[on_lane][1:] >= end_s[on_lane][:-1]).all()


def test_a_swap_hides_behind_the_ops_beside_it() -> None:
    """An op takes 1 s, a move of 10 bytes at 10 bytes/s takes 1 s: on streams of their own they cost nothing.

    compute  F0 F1 F2 F3 L  B3 B2 B1 B0
    d2h         .. out
    h2d                     .. in x0 beside B2
    """
    workload, machine = chain(4), gpus(bandwidth_bytes_per_s=10.0)
    costs = GivenCosts(seconds={op.kind: 1.0 for op in workload.ops})
    plans = [plan_for_policy(workload, machine, policy, 10**9) for policy in ({}, {2: Action.SWAP})]

    keep, swap = (simulate(plan, machine, costs).makespan_s for plan in plans)

    assert keep == len(workload.ops)
    assert swap == keep
    assert TaskKind.SWAP_IN in plans[1].tasks.kind
